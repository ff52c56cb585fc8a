"""Static checks of what goes, or went, into an archive: nothing executed, nothing unpickled."""

from marpack.inspection.lint.linting import lint
from marpack.inspection.lint.view import MemberView

__all__ = ["MemberView", "lint"]
