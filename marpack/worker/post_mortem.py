"""`--pdb`: the debugger, opened in the author's own frame once the handler has failed."""

import pdb  # noqa: T100 - it is what --pdb asks for
import sys
import traceback
from types import FrameType, TracebackType


class QuitDebugging(KeyboardInterrupt):
    """The author has left the debugger with `q`."""


class PostMortem(pdb.Pdb):
    """A debugger that begins at the innermost frame of the author's, not in the library that raised."""

    def __init__(self, model_dir: str) -> None:
        super().__init__(nosigint=True, skip=None)
        self._model_dir = model_dir
        self.prompt = "(marpack pdb) "

    def get_stack(self, f: FrameType | None, t: TracebackType | None) -> tuple[list[tuple[FrameType, int]], int]:
        """Return the frames of a traceback and the number of the one to begin with."""
        stack, last = super().get_stack(f, t)
        own = [index for index, (frame, _) in enumerate(stack) if frame.f_code.co_filename.startswith(self._model_dir)]
        return stack, own[-1] if own else last


def debug_failure(error: BaseException, model_dir: str) -> None:
    """Show an exception and let the author look around where it was raised.

    `c` goes on with the run; `q` raises QuitDebugging.
    """
    debugger = PostMortem(model_dir)
    debugger.message("".join(traceback.format_exception_only(error)).rstrip())
    debugger.message("post mortem: c goes on with the next input, q ends the run")
    sys.stdout.flush()
    debugger.reset()
    debugger.interaction(None, error.__traceback__)
    if debugger.quitting:
        raise QuitDebugging
