"""`--in-process` and `--pdb`: the handler in this very process, for breakpoints and the debugger.

The handler is not isolated: one that crashes or exits takes the run with it, and there is no timeout.
"""

import logging
import os
import pdb  # noqa: T100 - it is what --pdb asks for
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from types import FrameType, TracebackType
from typing import TextIO

from marpack.protocol.messages import DATA, METRICS, Answered, Load, Loaded, Touched
from marpack.runner.client import BatchResult, load_error
from marpack.runner.pool import Batch
from marpack.torchserve.http import death_response
from marpack.worker.model_loader import HandlerLoader
from marpack.worker.service import InferenceService
from marpack.worker.trouble import flatten, is_inside


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
        own = [i for i, (frame, _) in enumerate(stack) if is_inside(frame.f_code.co_filename, self._model_dir)]
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


class InProcessPool:
    """Handles batches one after the other, in this process."""

    restarts = 0
    peak_memory = 0  # it would be marpack's own
    load_logs = ""  # prints go to their stream at once

    def __init__(self, load: Load, *, debug: bool = False, prints: TextIO | None = None) -> None:
        """Take what to load, whether a failure opens the debugger, and the stream of the handler's prints (stdout)."""
        self.touched: set[Touched] = set()  # untraced: an audit hook cannot be removed from this process
        self._load = load
        self._debug = debug
        self._prints = prints or sys.stdout
        self._service: InferenceService | None = None
        self._folder = load.model_dir  # the handler's current folder, which it may change
        self.on_pause: Callable[[], None] = lambda: None
        self._lines: list[str] = []  # metrics and data of the batch in hand

    def start(self) -> Loaded:
        """Load the model; raises LoadError and DeviceUnavailableError."""
        # Shows the handler's logging as a worker's, and keeps its metrics for the batch in hand.
        handler = _Logs(self._lines.append, self._prints)
        handler.setFormatter(logging.Formatter("%(message)s"))
        logging.basicConfig(handlers=[handler], level=logging.INFO)
        loader = HandlerLoader(self._load, show=self._lines.append)
        try:
            with self._at_home():
                self._service, loaded = loader.run()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the worker's loop
            if self._debug:
                with suppress(QuitDebugging):  # there is nothing to go on with either way
                    debug_failure(error, self._load.model_dir)
            raise load_error(loader.failure(error), "", self._load) from None
        if self._debug:
            self._service.on_failure = partial(debug_failure, model_dir=self._load.model_dir)
        return loaded

    def outcomes(self, batches: Iterable[Batch]) -> Iterator[BatchResult]:
        """Yield the result of each batch, in order; the next one is read when it is done."""
        for batch in batches:
            self._lines.clear()
            started = time.perf_counter()
            if self._service is None:
                raise RuntimeError("start() comes first")
            try:
                with self._at_home():
                    answered = self._service.predict(batch, lambda _: None)
            except KeyboardInterrupt:
                raise  # the user's, not the handler's
            except BaseException as error:  # noqa: BLE001 - the worker's loop: where a worker would die
                trouble = flatten(error, stage="handle", model_dir=self._load.model_dir, hint=_NO_WORKER)
                response = death_response(None, lost=self._service.mode.loses_answers)
                answered = Answered(responses=(response,) * len(batch), stages={}, troubles=(trouble,))
            yield BatchResult(
                responses=answered.responses,
                stages=answered.stages,
                troubles=answered.troubles,
                logs="".join(f"{line}\n" for line in self._lines),
                seconds=time.perf_counter() - started,
            )
            self.on_pause()

    @contextmanager
    def _at_home(self) -> Iterator[None]:
        """Change to the handler's current folder; inputs and results are named from the user's folder."""
        ours = os.getcwd()  # noqa: PTH109 - os.chdir's other half
        os.chdir(self._folder)
        try:
            with redirect_stdout(self._prints):
                yield
        finally:
            self._folder = os.getcwd()  # noqa: PTH109
            os.chdir(ours)

    def resident_memory(self) -> int | None:
        """Return nothing: it would be marpack's own."""
        return None

    def close(self) -> None:
        """Release the model."""
        self._service = None

    kill = close


_NO_WORKER = "Run it without --in-process: this ends a worker, which is then started again."


class _Logs(logging.StreamHandler[TextIO]):
    def __init__(self, keep: Callable[[str], None], stream: TextIO) -> None:
        super().__init__(stream)
        self._keep = keep

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith((METRICS, DATA)):
            self._keep(record.getMessage())
        else:
            super().emit(record)
