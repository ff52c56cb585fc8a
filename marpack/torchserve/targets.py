"""Whose behaviour an answer shows, where the two targets differ, and what else was decided for a handler."""

import weakref
from collections.abc import Callable
from enum import Enum, StrEnum

from msgspec import Struct


class Target(StrEnum):
    """Whose behaviour is shown: the server's, its failures included, or marpack's own runtime."""

    TORCHSERVE = "torchserve"
    MARPACK = "marpack"

    def has(self, difference: "TargetDifference") -> bool:
        """Say whether marpack's better behaviour applies here."""
        return self is Target.MARPACK and isinstance(difference, TargetDifference)


class TargetDifference(Enum):
    """One point where target `marpack` does better: (what, under torchserve, under marpack)."""

    TOPK_CLAMPED = (
        "image_classifier with fewer classes than topk",
        "503 Prediction failed",
        "as many classes as there are",
    )
    PICTURES_CONVERTED = (
        "pictures that are not 3-channel (gray, palette, RGBA, CMYK, 16-bit)",
        "503 Prediction failed",
        "converted to RGB",
    )
    PT2_ERRORS = (
        "an unknown torch.compile backend, or a compile that fails",
        "skipped, the model runs uncompiled",
        "an error while loading",
    )
    MORE_FORMATS = (
        "weights as .safetensors or .pt2, or as .pth without a model file",
        "the server cannot load them: the worker dies",
        "loaded",
    )
    ONNX_SESSION = (
        "BaseHandler.inference with an ONNX Runtime session",
        "503 Prediction failed: a session is not callable",
        "fed by input name, tensors returned",
    )
    TEXT_BATCHES = (
        "text_classifier with several requests in a batch",
        "503 number of batch response mismatched",
        "batched with real offsets",
    )
    MANIFEST_ENVELOPE = (
        "an envelope named in the manifest",
        "ignored: only the server's own service_envelope counts",
        "applied",
    )

    PLAIN_VOCABULARIES = (
        "text_classifier with source_vocab.json or source_vocab.txt",
        "the server reads source_vocab.pt only: the worker dies",
        "read, in preference to a pickle",
    )
    TORCHVISION_OPERATORS = (
        "weights that use torchvision's operators under base_handler",
        "the worker dies, unless the handler imports torchvision",
        "torchvision is imported first, if it is installed",
    )
    HANDLER_OPTIONS = (
        "topk, threshold, ngrams, resize and crop in the config's handler section",
        "ignored",
        "set on the built-in handlers",
    )
    MICRO_BATCH_FAILURES = (
        "a stage that raises under MicroBatching",
        "the batch hangs until responseTimeout: 500 Worker died.",
        "503 Prediction failed, with the reason",
    )
    LOST_ANSWERS = (
        "asyncCommunication, where a worker dies, a task is cancelled or an answer cannot be encoded",
        "no answer, however long the client waits",
        "500 Worker died.",
    )

    def __init__(self, what: str, torchserve: str, marpack: str) -> None:
        self.what = what
        self.torchserve = torchserve
        self.marpack = marpack


class HandlerSettings(Struct, frozen=True):
    """What was decided before the handler was made."""

    target: Target = Target.TORCHSERVE
    compile: bool = True  # --no-compile
    trust_pickle: bool = False  # --trust-pickle


# Beside contexts and handlers, because their authors find on them only what the server puts there. By id, each with a
# reference to the owner: another object can have the id of one that is gone.
_KEPT: dict[int, tuple[Callable[[], object], HandlerSettings]] = {}


def keep_settings(owner: object, settings: HandlerSettings) -> None:
    """Keep the settings of a context or a handler for as long as it exists."""
    key = id(owner)
    try:
        _KEPT[key] = weakref.ref(owner, lambda _: _KEPT.pop(key, None)), settings
    except TypeError:  # it forbids weak references: a worker has one handler, which stays
        _KEPT[key] = (lambda: owner), settings


def settings_for(handler: object) -> HandlerSettings:
    """Return the settings of a handler, whether or not its author calls BaseHandler's `initialize` and `handle`."""
    return _kept_for(handler) or settings_of(getattr(handler, "context", None))


def settings_of(context: object) -> HandlerSettings:
    """Return the settings of a context; a mock has none, and shows the server's behaviour."""
    return _kept_for(context) or HandlerSettings()


def _kept_for(owner: object) -> HandlerSettings | None:
    kept = _KEPT.get(id(owner))
    if kept is None or kept[0]() is not owner:
        return None
    return kept[1]
