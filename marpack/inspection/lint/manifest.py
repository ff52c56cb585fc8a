"""What the manifest itself says, apart from the files it names."""

from collections.abc import Iterator

from marpack.archive.manifest import RUNTIMES, Manifest
from marpack.archive.names import MODEL_NAME
from marpack.findings import Finding
from marpack.inspection.lint.codes import Code, suggestion

WHERE = "MAR-INF/MANIFEST.json"
ENVELOPES = ("base", "body", "json", "kserve", "kservev2")

NAME = Code(
    "model-name",
    "The model's name does not begin with a letter or digit and go on with those, '_', '-' and '.'.",
    "Rename the model.",
)
RUNTIME = Code(
    "runtime-unknown",
    "The server refuses a manifest whose runtime is not python, python3 or LSP.",
    "Set the runtime to python.",
)
LSP = Code(
    "runtime-lsp",
    "LSP is the C++ backend, which neither the pip package nor the images hold; a stock server starts no worker.",
    "Set the runtime to python, or use a server built with the C++ backend.",
)
ENVELOPE = Code(
    "envelope-ignored",
    "TorchServe takes the envelope from its own config.properties (service_envelope), never from the manifest.",
    "Set service_envelope on the server.",
)
ENVELOPE_UNKNOWN = Code(
    "envelope-unknown",
    "The manifest's envelope is none that TorchServe has.",
    "Use body, json, kserve or kservev2.",
)


def check_manifest(manifest: Manifest) -> Iterator[Finding]:
    """Yield what is odd about the manifest's own values."""
    model = manifest.model
    if not MODEL_NAME.fullmatch(model.name):
        message = f"'{model.name[:40]}' is not a model name"
        where = f"{WHERE}: model.modelName"
        yield (
            NAME.error(f"{message}: no address reaches it", where)
            if "/" in model.name
            else NAME.warning(message, where)
        )
    if manifest.runtime not in (*RUNTIMES, "PYTHON", "PYTHON3"):
        hint = suggestion(manifest.runtime, RUNTIMES)
        yield RUNTIME.error(
            f"the server does not know the runtime '{manifest.runtime[:40]}'", f"{WHERE}: runtime", hint
        )
    if manifest.runtime == "LSP":
        yield LSP.warning("the runtime LSP needs a server built with the C++ backend", f"{WHERE}: runtime")
    if model.envelope:
        yield _envelope(model.envelope)


def _envelope(name: str) -> Finding:
    where = f"{WHERE}: model.envelope"
    if name not in ENVELOPES:
        hint = suggestion(name, ENVELOPES)
        return ENVELOPE_UNKNOWN.warning(f"TorchServe has no envelope '{name[:40]}'", where, hint)
    return ENVELOPE.note(f"the server does not read the envelope '{name}' from the manifest", where)
