"""marpack: from trained weights to a model archive you can trust, before it is deployed."""

from marpack.version import __version__

__all__ = ["__version__"]
