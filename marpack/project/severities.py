"""The key `checks` of marpack.yaml: how much a failed check of `marpack check` weighs, by the check's name."""

from typing import Annotated

from msgspec import Meta, Struct

from marpack.findings import Severity

ERROR = Severity.ERROR


class Severities(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename="kebab"):
    """One key per check: `error` keeps the archive from being deployed, `warning` and `note` only tell."""

    safe_to_open: Annotated[Severity, Meta(description="The server can read it, and reading it is safe.")] = ERROR
    digests: Annotated[Severity, Meta(description="Every byte is as it was built.")] = ERROR
    manifest: Annotated[Severity, Meta(description="The manifest names files that are there.")] = ERROR
    preflight: Annotated[
        Severity, Meta(description="Handler, model file, config, labels and weights fit together.")
    ] = ERROR
    pickles: Annotated[Severity, Meta(description="No pickle can run code.")] = ERROR
    requirements: Annotated[Severity, Meta(description="Its requirements are met here.")] = ERROR
    loads: Annotated[Severity, Meta(description="The handler loads and initializes.")] = ERROR
    samples: Annotated[Severity, Meta(description="Every packed sample is answered as expected.")] = ERROR
    batch_contract: Annotated[Severity, Meta(description="Batches are answered as their requests alone.")] = ERROR
    body_forms: Annotated[Severity, Meta(description="One content in several forms gets one answer.")] = ERROR
    repeatable: Annotated[Severity, Meta(description="Answers depend on neither order nor history.")] = ERROR
    labels: Annotated[Severity, Meta(description="The answers' labels are the archive's.")] = ERROR
    compiled: Annotated[Severity, Meta(description="The compiled model agrees with the eager one.")] = ERROR
    memory: Annotated[Severity, Meta(description="Memory does not grow with the requests.")] = ERROR
    model_folder: Annotated[Severity, Meta(description="Nothing is written into the model folder.")] = ERROR
