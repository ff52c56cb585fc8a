"""marpack: from trained weights to a model archive you can trust, before it is deployed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from marpack.version import __version__

if TYPE_CHECKING:
    from marpack.api import Model, build, load, open  # noqa: A004 - `marpack.open` reads best

__all__ = ["Model", "__version__", "build", "load", "open"]


def __getattr__(name: str) -> Any:  # Any: whichever name of the API
    # Looked up on first use: `marpack --help` must not pay for what it does not do.
    if name not in {"Model", "build", "load", "open"}:
        raise AttributeError(f"module 'marpack' has no attribute {name!r}")
    from marpack import api  # noqa: PLC0415

    return getattr(api, name)
