"""The two targets, the points where they differ, and the settings of a handler."""

from enum import Enum, StrEnum

from msgspec import Struct

_SLOT = "_marpack_settings"  # of torchserve.context.Context and worker.handlers.base.BaseHandler


class Target(StrEnum):
    """The runtime that marpack imitates: the server with its failures, or marpack's own."""

    TORCHSERVE = "torchserve"
    MARPACK = "marpack"

    def has(self, difference: "TargetDifference") -> bool:
        """Return whether marpack's own behavior applies."""
        return self is Target.MARPACK and isinstance(difference, TargetDifference)


class TargetDifference(Enum):
    """One improvement of target `marpack`: (situation, with torchserve, with marpack)."""

    TOPK_CLAMPED = (
        "`image_classifier` with fewer classes than `topk`",
        "503 Prediction failed",
        "all classes",
    )
    PICTURES_CONVERTED = (
        "images without exactly 3 channels of 8 bits (gray, palette, RGBA, CMYK, 16-bit)",
        "503 Prediction failed",
        "converted to RGB",
    )
    PT2_ERRORS = (
        "an unknown `torch.compile` backend, or a failed compilation",
        "the model runs uncompiled",
        "an error while loading",
    )
    MORE_FORMATS = (
        "`.safetensors` or `.pt2` weights, or `.pth` without a model file",
        "the worker dies",
        "loaded",
    )
    ONNX_SESSION = (
        "`BaseHandler.inference` with an ONNX Runtime session",
        "503 Prediction failed: a session is not callable",
        "gets its inputs by name, returns tensors",
    )
    TEXT_BATCHES = (
        "`text_classifier` with several requests in a batch",
        "503 number of batch response mismatched",
        "one batch with the texts' offsets",
    )
    MANIFEST_ENVELOPE = (
        "an envelope named in the manifest",
        "ignored: only the server's `service_envelope` counts",
        "applied",
    )
    PLAIN_VOCABULARIES = (
        "`text_classifier` with `source_vocab.json` or `source_vocab.txt`",
        "the worker dies: it reads only `source_vocab.pt`",
        "loaded, and preferred to a pickle",
    )
    TORCHVISION_OPERATORS = (
        "weights that use torchvision's operators under `base_handler`",
        "the worker dies, unless the handler imports torchvision",
        "marpack imports torchvision first, if it is installed",
    )
    HANDLER_OPTIONS = (
        "`topk`, `threshold`, `ngrams`, `resize` and `crop` in the config's section `handler`",
        "ignored",
        "applied to the built-in handlers",
    )
    MICRO_BATCH_FAILURES = (
        "an exception in a stage of `MicroBatching`",
        "500 Worker died. after `responseTimeout`",
        "503 Prediction failed, with the reason",
    )
    LOST_ANSWERS = (
        "`asyncCommunication`, if a worker dies, a task is cancelled or a response cannot be encoded",
        "no response, however long the client waits",
        "500 Worker died.",
    )

    def __init__(self, what: str, torchserve: str, marpack: str) -> None:
        self.what = what
        self.torchserve = torchserve
        self.marpack = marpack


class HandlerSettings(Struct, frozen=True):
    """The options that change how a handler loads and responds."""

    target: Target = Target.TORCHSERVE
    compile: bool = True  # --no-compile
    trust_pickle: bool = False  # --trust-pickle


def keep_settings(owner: object, settings: HandlerSettings) -> None:
    """Keep the settings in the slot of a Context or a BaseHandler, so that `vars` does not show them to authors."""
    setattr(owner, _SLOT, settings)


def settings_of(context: object) -> HandlerSettings:
    """Return a context's settings; for an author's mock, those of the server's behavior."""
    kept = getattr(context, _SLOT, None)
    return kept if isinstance(kept, HandlerSettings) else HandlerSettings()


def settings_for(handler: object) -> HandlerSettings:
    """Return a handler's settings, also if its author does not call BaseHandler's `initialize` and `handle`."""
    kept = getattr(handler, _SLOT, None)
    return kept if isinstance(kept, HandlerSettings) else settings_of(getattr(handler, "context", None))
