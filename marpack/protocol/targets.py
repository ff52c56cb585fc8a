"""The two targets, the points where they differ, and the settings of a handler."""

from enum import Enum, StrEnum

from msgspec import Struct

_SLOT = "_marpack_settings"  # of torchserve.context.Context and worker.handlers.base.BaseHandler


class Target(StrEnum):
    """The runtime that responses are those of: the server, its failures included, or marpack's own."""

    TORCHSERVE = "torchserve"
    MARPACK = "marpack"

    def has(self, difference: "TargetDifference") -> bool:
        """Return whether marpack's own behaviour applies."""
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
    """The options of a run that change how a handler loads and responds."""

    target: Target = Target.TORCHSERVE
    compile: bool = True  # --no-compile
    trust_pickle: bool = False  # --trust-pickle


def keep_settings(owner: object, settings: HandlerSettings) -> None:
    """Keep the settings in the slot of a Context or a BaseHandler, so that `vars` does not show them to authors."""
    setattr(owner, _SLOT, settings)


def settings_of(context: object) -> HandlerSettings:
    """Return a context's settings; those of the server's behaviour for an author's mock."""
    kept = getattr(context, _SLOT, None)
    return kept if isinstance(kept, HandlerSettings) else HandlerSettings()


def settings_for(handler: object) -> HandlerSettings:
    """Return a handler's settings, also if its author does not call BaseHandler's `initialize` and `handle`."""
    kept = getattr(handler, _SLOT, None)
    return kept if isinstance(kept, HandlerSettings) else settings_of(getattr(handler, "context", None))
