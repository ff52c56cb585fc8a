"""`.pt2` packages are opened with torch.load held to weights_only: torch itself falls back to running pickles."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from marpack.errors import WeightsError
from marpack.weights.torch_zip import TorchZip

_FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
# Constants that torch unpickles without asking torch.load.
_CODE = ("data/constants/opaque_obj", "data/constants/custom_obj")


class PackageNeedsCodeError(WeightsError):
    """A package holds constants that only come to be by running code."""

    code = "package-needs-code"


@contextmanager
def weights_only(path: Path, *, trust: bool) -> Iterator[None]:
    """Hold torch to weights_only=True for as long as a package is being opened, unless it is trusted.

    Raises PackageNeedsCodeError.
    """
    if trust:
        yield
        return
    _refuse_code(path)
    before = os.environ.get(_FORCE)
    os.environ[_FORCE] = "1"
    try:
        yield
    finally:
        _restore(before)


def _refuse_code(path: Path) -> None:
    with path.open("rb") as file:
        found = next((name for name in TorchZip.read(file).members if name.startswith(_CODE)), None)
    if found is not None:
        raise PackageNeedsCodeError(
            "the package holds an object that is made by running pickled code",
            where=f"{path.name}!{found}",
            hint="export the model without custom objects; or, if you trust it as you trust code, --trust-pickle",
        )


def _restore(before: str | None) -> None:
    if before is None:
        os.environ.pop(_FORCE, None)
    else:
        os.environ[_FORCE] = before
