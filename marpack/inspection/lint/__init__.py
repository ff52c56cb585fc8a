"""Static checks of what goes, or went, into an archive: nothing executed, nothing unpickled."""

from typing import TYPE_CHECKING, Any

from marpack.inspection.lint.files import MemberView

if TYPE_CHECKING:
    from marpack.inspection.lint.linting import lint

__all__ = ["MemberView", "lint"]


def __getattr__(name: str) -> Any:  # Any: what a module holds
    """Import the checks when they are asked for: `marpack inspect` parses one file with a module beside them."""
    if name != "lint":
        raise AttributeError(name)
    from marpack.inspection.lint.linting import lint as found  # noqa: PLC0415 - as the docstring says

    return found
