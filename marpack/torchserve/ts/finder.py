"""The import of `ts` and everything below it, answered from the tables."""

import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from marpack.torchserve.ts.table import ENGINES, LOADED, TABLE, brought_by, has_logger, incidental


class NotProvidedError(ModuleNotFoundError):
    """TorchServe has this module, and marpack does not."""

    def __init__(self, message: str, *, name: str, hint: str) -> None:
        super().__init__(message, name=name)
        self.hint = hint


class TsFinder(MetaPathFinder):
    """Finds `ts` and its submodules before any installed torchserve is looked for."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - the protocol's signature
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return the spec of a `ts` module, None where TorchServe has none of that name.

        Raises NotProvidedError for what TorchServe has and marpack does not, such as a module that needs an engine.
        """
        if fullname != "ts" and not fullname.startswith("ts."):
            return None
        for module, engine in ENGINES.items():
            if fullname == module or fullname.startswith(f"{module}."):
                message = f"{fullname} needs {engine}, which marpack does not replace"
                hint = f"try this archive on a TorchServe that has {engine}"
                raise NotProvidedError(message, name=fullname, hint=hint)
        if fullname not in TABLE:
            _refuse_what_torchserve_has(fullname)
            return None
        is_package = any(name.startswith(f"{fullname}.") for name in TABLE)
        return ModuleSpec(fullname, TsLoader(), is_package=is_package)


class TsLoader(Loader):
    """Makes a module whose names are marpack's own objects, looked up on first use."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return an empty module that knows its table."""
        return TsModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Import what the server's module does; there is no code, and names come on demand."""
        for name in brought_by(module.__name__):
            import_module(name)


class TsModule(ModuleType):
    """One `ts` module."""

    def __init__(self, name: str) -> None:
        super().__init__(name, f"TorchServe's {name}, provided by marpack.")

    def __getattr__(self, name: str) -> Any:  # Any: a class, a function, a module or a constant
        if name == "__all__":
            return self._public()
        value = self._found(name)
        setattr(self, name, value)
        return value

    def _found(self, name: str) -> Any:  # Any: as above
        target = TABLE[self.__name__].get(name) or incidental(self.__name__).get(name)
        if target is None and f"{self.__name__}.{name}" in LOADED:
            target = f"{self.__name__}.{name}"
        if target is not None:
            module, _, attribute = target.partition(":")
            return getattr(import_module(module), attribute) if attribute else import_module(module)
        if name == "logger" and has_logger(self.__name__):
            return logging.getLogger(self.__name__)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def _public(self) -> list[str]:
        """Return what `import *` takes: of what the server's module holds, what this environment has."""
        return [name for name in dir(self) if not name.startswith("_") and self._has(name)]

    def _has(self, name: str) -> bool:
        try:
            getattr(self, name)
        except ImportError:  # a package of the server's, as torchvision
            return False
        return True

    def __dir__(self) -> list[str]:
        inner = {name.rpartition(".")[2] for name in LOADED if name.rpartition(".")[0] == self.__name__}
        logger = {"logger"} if has_logger(self.__name__) else set()
        return sorted({*super().__dir__(), *TABLE[self.__name__], *incidental(self.__name__), *inner, *logger})


def install(*, installed_torchserve: bool = False) -> None:
    """Make `import ts` work in this process; the installed torchserve, if any, is used only when asked for."""
    if installed_torchserve:
        uninstall()
    elif not any(isinstance(finder, TsFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, TsFinder())


def uninstall() -> None:
    """Undo `install`, and forget the `ts` modules made by it."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, TsFinder)]
    for name in [name for name, module in sys.modules.items() if isinstance(module, TsModule)]:
        del sys.modules[name]


def _refuse_what_torchserve_has(module: str) -> None:
    """Raise NotProvidedError for a module of TorchServe's; those that it has not either, nobody finds."""
    from marpack.torchserve import stock  # noqa: PLC0415 - no handler that loads needs it

    if stock.has_module(module):
        message = f"marpack does not provide {module}, which TorchServe 0.12 has"
        hint = "try this archive on a server; marpack provides what handlers use as a rule"
        raise NotProvidedError(message, name=module, hint=hint)
