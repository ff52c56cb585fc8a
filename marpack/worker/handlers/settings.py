"""Options of a handler: its target's, and those of the config's `handler` section."""

from typing import Any

from marpack.errors import HandlerError
from marpack.protocol.diagnostics import note
from marpack.protocol.targets import TargetDifference, settings_for
from marpack.worker.handlers.transforms import ImageNet


def better(handler: object, difference: TargetDifference) -> bool:
    """Say whether a handler shows marpack's better behaviour in one point."""
    return settings_for(handler).target.has(difference)


class OptionError(HandlerError):
    """A key of the `handler` section has a value that it cannot have."""

    code = "handler-option"


# What each may be, by an example: a whole number from 1 up, or any number from 0 up.
_EXAMPLES: dict[str, float] = {
    "topk": 3,
    "threshold": 0.5,
    "ngrams": 2,
    "resize": 256,  # pixels of the shorter edge
    "crop": 224,  # pixels of either edge
}


def apply(handler: Any, *known: str) -> None:  # Any: a built-in; its own attributes are set
    """Set what the model config says of the keys a handler knows; on the server, which has none, only note it."""
    section = _section(handler)
    asked = {key: section[key] for key in known if key in section}
    if not asked:
        return
    if not better(handler, TargetDifference.HANDLER_OPTIONS):
        message = f"the server does not read handler.{', handler.'.join(asked)} in the model config"
        hint = "set them as attributes of a subclass, or set target: marpack"
        note("handler-options", message, stage="initialize", hint=hint)
        return
    for key, value in asked.items():
        _check(key, value)
    _set(handler, asked)


def _section(handler: Any) -> dict[str, Any]:  # Any: YAML as it stands
    config = getattr(handler, "model_yaml_config", None)
    section = config.get("handler") if isinstance(config, dict) else None
    return section if isinstance(section, dict) else {}


def _check(key: str, value: Any) -> None:  # Any: YAML as it stands
    example = _EXAMPLES[key]
    kinds, minimum = ((int,), 1) if isinstance(example, int) else ((int, float), 0)
    if type(value) not in kinds or value < minimum:  # not isinstance: a bool is an int, too
        names = " or ".join(kind.__name__ for kind in kinds)
        raise OptionError(
            f"{value!r} is no {names} of at least {minimum}",
            where=f"model-config.yaml: handler.{key}",
            hint=f"write {key}: {example:g}",
        )


def _set(handler: Any, asked: dict[str, Any]) -> None:  # Any: as apply
    sizes = {key: asked.pop(key) for key in ("resize", "crop") if key in asked}
    for key, value in asked.items():
        setattr(handler, key, value)
    if sizes and isinstance(handler.image_processing, ImageNet):  # not an author's own steps
        handler.image_processing = handler.image_processing.resized(**sizes)
