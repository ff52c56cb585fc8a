"""The `ts.*` names, mapped onto our own modules: always in the worker, elsewhere where `install` was called."""

from marpack.torchserve.ts.finder import install, uninstall

__all__ = ["install", "uninstall"]
