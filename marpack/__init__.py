"""marpack: from trained weights to a model archive you can trust, before it is deployed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from marpack.version import __version__

if TYPE_CHECKING:
    from marpack.api.functions import (
        build,
        check,
        diff,
        doctor,
        export,
        init,
        inspect,
        open,  # noqa: A004 - `marpack.open` reads best
        plan_build,
        run,
        sign,
        unpack,
        verify,
    )
    from marpack.api.model import Model, load
    from marpack.api.requests import RawRequest
    from marpack.api.scoring import Scorer
    from marpack.scoring.mapping import RowMapping

__all__ = [
    "Model",
    "RawRequest",
    "RowMapping",
    "Scorer",
    "__version__",
    "build",
    "check",
    "diff",
    "doctor",
    "export",
    "init",
    "inspect",
    "load",
    "open",
    "plan_build",
    "run",
    "sign",
    "unpack",
    "verify",
]
# Modules are imported on first use, so that `import marpack` and `marpack --help` are fast.
_MODULES = {
    "Model": "marpack.api.model",
    "RawRequest": "marpack.api.requests",
    "RowMapping": "marpack.scoring.mapping",
    "Scorer": "marpack.api.scoring",
    "load": "marpack.api.model",
}


def __getattr__(name: str) -> Any:  # Any: whichever name of the API
    if name not in __all__:
        from marpack.removed import removed_function  # noqa: PLC0415 - modules are imported on first use

        if gone := removed_function(name):
            return gone
        raise AttributeError(f"module 'marpack' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - as above

    return getattr(import_module(_MODULES.get(name, "marpack.api.functions")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
