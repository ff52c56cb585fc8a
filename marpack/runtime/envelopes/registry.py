"""The envelopes by the names that archives and servers use."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

ENVELOPES = {
    "base": "BaseEnvelope",
    "body": "BodyEnvelope",
    "json": "JSONEnvelope",
    "kserve": "KServeEnvelope",
    "kservev2": "KServev2Envelope",
}

Handle = Callable[[Any, Any], Any]  # Any: (rows, Context) → answers


def envelope_of(name: str | None, handle: Handle) -> Handle:
    """Return an entry point wrapped in the envelope of that name; untouched where there is no name.

    Raises ModuleNotFoundError for a name that the server does not know either.
    """
    if not name:
        return handle
    if name not in ENVELOPES:
        known = ", ".join(sorted(set(ENVELOPES) - {"base"}))
        raise ModuleNotFoundError(f"there is no envelope named {name!r}; the server knows {known}")
    envelope = getattr(import_module(f"marpack.runtime.envelopes.{name}"), ENVELOPES[name])
    wrapped: Handle = envelope(handle).handle
    return wrapped
