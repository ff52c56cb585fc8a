"""Whose behaviour a handler shows, and what else the worker settles for it through the context."""

from msgspec import Struct

from marpack.runtime.targets import Difference, Target


class Settings(Struct, frozen=True):
    """What the worker decided before the handler was made."""

    target: Target = Target.TORCHSERVE
    compile: bool = True  # --no-compile
    trust_pickle: bool = False  # --trust-pickle


_REMEMBERED = "_marpack_settings"


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
    vars(handler)[_REMEMBERED] = settings
    return settings


def settings_for(handler: object) -> Settings:
    """Return the settings of a handler, whether or not its author calls BaseHandler's `initialize` and `handle`."""
    settings = vars(handler).get(_REMEMBERED)
    return settings if isinstance(settings, Settings) else settings_of(getattr(handler, "context", None))


def better(handler: object, difference: Difference) -> bool:
    """Say whether a handler shows marpack's better behaviour in one point."""
    return settings_for(handler).target.has(difference)
