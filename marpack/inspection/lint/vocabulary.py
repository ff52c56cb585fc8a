"""The vocabulary that the server's text handlers load beside the model (contract §7)."""

from collections.abc import Iterator

from marpack.archive.manifest import Manifest
from marpack.findings import Finding
from marpack.inspection.lint.classes import Library, Server
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.files import Files
from marpack.inspection.lint.loading import Loader, is_servers_own

TEXT_HANDLER = "ts.torch_handler.text_handler.TextHandler"
FILE = "source_vocab.pt"

MISSING = Code(
    "vocabulary-missing",
    "The text handlers load source_vocab.pt from the archive's root, and it is not there; the worker dies.",
    "Pack the vocabulary as source_vocab.pt: torch.save({token: index}, 'source_vocab.pt').",
)


def check_vocabulary(files: Files, manifest: Manifest, library: Library, loader: Loader) -> Iterator[Finding]:
    """Yield that the vocabulary is missing, where the server's text handler would load it."""
    if loader.own_way or loader.cls is None or Server(TEXT_HANDLER) not in library.order(loader.cls):
        return
    named = manifest.model.extra.get("sourceVocab")
    name = named if isinstance(named, str) and named else FILE
    if name not in files and (named or is_servers_own(library, loader, "get_source_vocab_path")):
        yield MISSING.weigh(loader.severity, f"the text handler's vocabulary '{name}' is not in the archive", name)
