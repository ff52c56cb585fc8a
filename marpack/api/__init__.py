"""The Python API."""

from marpack.api.model import Model, build, load, open  # noqa: A004 - `marpack.open` reads best

__all__ = ["Model", "build", "load", "open"]
