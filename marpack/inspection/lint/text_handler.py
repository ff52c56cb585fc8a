"""The server's text handlers: the vocabulary they load beside the model, and the batches they cannot take (§7)."""

from collections.abc import Iterator

from marpack.archive.manifest import Manifest
from marpack.findings import Finding
from marpack.inspection.lint.classes import Library, Server
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.files import Files
from marpack.inspection.lint.loading import Loader, is_servers_own
from marpack.inspection.lint.model_config import ModelConfig
from marpack.torchserve.targets import Difference, Target

TEXT_HANDLER = "ts.torch_handler.text_handler.TextHandler"
FILE = "source_vocab.pt"

MISSING = Code(
    "Weights",
    "vocabulary-missing",
    "The text handlers load source_vocab.pt from the archive's root, and it is not there; the worker dies.",
    "Pack the vocabulary as source_vocab.pt: torch.save({token: index}, 'source_vocab.pt').",
)
BATCHES = Code(
    "Weights",
    "text-batches",
    "The server's text classifier handles one request at a time; a batch of several is a 503 for each of them.",
    "Set batchSize to 1, override `preprocess` and `inference`, or build with target: marpack.",
)


def check_batches(config: ModelConfig, library: Library, loader: Loader, target: Target) -> Iterator[Finding]:
    """Yield that the server will fill batches which its own text classifier cannot take."""
    size = config.values.get("batchSize")
    if not isinstance(size, int) or size < 2 or target.has(Difference.TEXT_BATCHES) or loader.cls is None:
        return
    found = library.find(loader.cls, "preprocess")
    if found is not None and isinstance(found.owner, Server) and found.owner.dotted.endswith(".TextClassifier"):
        message = f"the text classifier takes one request at a time, and the batch size is {size}"
        yield BATCHES.warning(message, config.at("batchSize"))


def check_vocabulary(files: Files, manifest: Manifest, library: Library, loader: Loader) -> Iterator[Finding]:
    """Yield that the vocabulary is missing, where the server's text handler would load it."""
    if loader.own_way or loader.cls is None or Server(TEXT_HANDLER) not in library.order(loader.cls):
        return
    named = manifest.model.extra.get("sourceVocab")
    name = named if isinstance(named, str) and named else FILE
    if name not in files and (named or is_servers_own(library, loader, "get_source_vocab_path")):
        yield MISSING.weigh(loader.severity, f"the text handler's vocabulary '{name}' is not in the archive", name)
