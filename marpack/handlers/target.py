"""Whose behaviour a handler shows, and what else the worker settles for it through the context."""

import weakref
from contextlib import suppress

from msgspec import Struct

from marpack.torchserve.targets import Difference, Target


class Settings(Struct, frozen=True):
    """What the worker decided before the handler was made."""

    target: Target = Target.TORCHSERVE
    compile: bool = True  # --no-compile
    trust_pickle: bool = False  # --trust-pickle


# Not on the handlers: what their authors find there is the server's.
_REMEMBERED: dict[int, Settings] = {}  # by the id of a handler, which need be neither hashable nor comparable


def settings_of(context: object) -> Settings:
    """Read the settings off a context; a mock has none, and shows the server's behaviour."""
    target = getattr(context, "_target", None)
    return Settings(
        target if isinstance(target, Target) else Target.TORCHSERVE,
        getattr(context, "_compile", True) is not False,
        getattr(context, "_trust_pickle", False) is True,
    )


def remember(handler: object, context: object) -> Settings:
    """Keep the settings with the handler, for stages that are called without a context."""
    settings = settings_of(context)
    _REMEMBERED[id(handler)] = settings
    with suppress(TypeError):  # it forbids weak references
        weakref.finalize(handler, _REMEMBERED.pop, id(handler), None)
    return settings


def settings_for(handler: object) -> Settings:
    """Return the settings of a handler, whether or not its author calls BaseHandler's `initialize` and `handle`."""
    return _REMEMBERED.get(id(handler)) or settings_of(getattr(handler, "context", None))


def better(handler: object, difference: Difference) -> bool:
    """Say whether a handler shows marpack's better behaviour in one point."""
    return settings_for(handler).target.has(difference)
