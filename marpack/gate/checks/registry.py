"""Every check with its name, what it makes sure of, and what must hold before it makes sense."""

from collections.abc import Callable

from msgspec import Struct

from marpack.gate.checks import (
    batch_contract,
    body_forms,
    compiled,
    digests,
    labels,
    loads,
    manifest,
    memory,
    model_folder,
    opens,
    pickles,
    preflight,
    repeatable,
    requirements,
    samples,
)
from marpack.gate.subject import Subject
from marpack.gate.verdicts import Outcome


class Check(Struct, frozen=True):
    """One check."""

    name: str
    title: str
    run: Callable[[Subject], Outcome]
    needs: tuple[str, ...] = ()  # checks that must not have failed


_SOUND = ("safe-to-open", "digests", "manifest")
_TRUSTED = (*_SOUND, "preflight", "pickles", "requirements")
_LOADED = (*_TRUSTED, "loads")

CHECKS = (
    Check("safe-to-open", "the server can read it, and reading it is safe", opens.run),
    Check("digests", "every byte is as it was built", digests.run, ("safe-to-open",)),
    Check("manifest", "the manifest names files that are there", manifest.run, ("safe-to-open",)),
    Check("preflight", "handler, model file, config, labels and weights fit together", preflight.run, _SOUND),
    Check("pickles", "no pickle can run code", pickles.run, _SOUND),
    Check("requirements", "its requirements are met here", requirements.run, _SOUND),
    Check("loads", "the handler loads and initializes", loads.run, _TRUSTED),
    Check("samples", "every packed sample is answered as expected", samples.run, _LOADED),
    Check("batch-contract", "batches are answered as their requests alone", batch_contract.run, _LOADED),
    Check("body-forms", "one content in several forms gets one answer", body_forms.run, _LOADED),
    Check("repeatable", "answers depend on neither order nor history", repeatable.run, _LOADED),
    Check("labels", "the answers' labels are the archive's", labels.run, _LOADED),
    Check("compiled", "the compiled model agrees with the eager one", compiled.run, _LOADED),
    Check("memory", "memory does not grow with the requests", memory.run, _LOADED),
    Check("model-folder", "nothing is written into the model folder", model_folder.run, _LOADED),
)
