"""A real TorchServe, timed from its start to its first answer."""

import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]


def start_to_first_answer(programs: Path, folder: Path, image: Path) -> float:
    """Return the seconds until a server that was just started has answered one picture.

    Args:
        programs: The `bin` of an environment with TorchServe.
        folder: Holds digits.mar; the server works in it.
        image: What is asked about.
    """
    sys.path.insert(0, str(ROOT / "tests"))
    from conformance.server import Server
    from conformance.wire import Message, exchange

    started = time.perf_counter()
    with Server(programs, folder / "peer") as server:
        registered = server.register(folder / "digits.mar", "digits")
        if registered.status != 200:
            raise SystemExit(f"the server did not take the archive: {registered.body!r}")
        headers = (("Content-Type", "image/png"),)
        answer = exchange(server.inference, Message("POST", "/predictions/digits", headers, image.read_bytes()))
        if answer.status != 200:
            raise SystemExit(f"the server did not answer: {answer.body!r}")
        return time.perf_counter() - started
