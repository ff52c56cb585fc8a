"""What torch.compile does while requests are answered: the time it takes, and where it gives up on a graph."""

import time
from typing import Any

from marpack.torchserve.diagnostics import add_timing, note

_started: list[float] = []
_seen: set[str] = set()


def watch() -> None:
    """Have torch tell when it compiles; compile time is then shown apart from inference. Asking twice is once."""
    from torch._dynamo.callback import callback_handler  # noqa: PLC0415 - heavy, and only when something is compiled

    if _begin not in callback_handler.start_callbacks:
        callback_handler.register_start_callback(_begin)
        callback_handler.register_end_callback(_end)


def _begin(_args: Any) -> None:  # Any: torch's own record of the trigger
    _started.append(time.perf_counter())


def _end(_args: Any) -> None:  # Any: as above
    if _started:
        add_timing("compile", (time.perf_counter() - _started.pop()) * 1000)
    _note_breaks()


def _note_breaks() -> None:
    from torch._dynamo.utils import counters  # noqa: PLC0415 - as above

    for reason in counters["graph_break"]:
        if reason not in _seen:
            _seen.add(reason)
            what = reason.partition("\n")[0]
            hint = next((line.strip().removeprefix("Hint: ") for line in reason.splitlines() if "Hint:" in line), None)
            note("graph-break", f"torch.compile splits the graph: {what}", stage="inference", hint=hint)
