"""A process that loads payloads, each in a child and folder of its own, and prints the names of those that ran nothing.

A process of its own, as what is forked must have no threads; one for all of them, so that torch is imported once.
"""

import gc
import json
import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import pandas  # noqa: F401, ICN001 - as the loaders' other libraries, once for all children
import sympy  # noqa: F401
import torch._export.serde.serialize
import torch._inductor.codecache
import torch.export.pt2_archive._package
import torch.package  # noqa: F401
from inspection.payloads import Payload, payloads

_LONGEST = 20  # seconds that a loader may take
_AFTERWARDS = 2.0  # seconds in which a process that it started may still do it


def runs_code(payload: Payload, folder: Path) -> bool:
    """Load a payload in a child whose working folder that is, and tell whether it made its file."""
    for name, content in {payload.member: payload.make(), **payload.files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    child = os.fork()
    if child == 0:
        _load(payload, folder)
    os.waitpid(child, 0)
    end = time.monotonic() + _AFTERWARDS
    canary = folder / "canary"
    while not os.path.lexists(canary) and time.monotonic() < end:
        time.sleep(0.02)
    return os.path.lexists(canary)


def _load(payload: Payload, folder: Path) -> None:
    signal.alarm(_LONGEST)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    warnings.simplefilter("ignore")
    try:
        payload.load(folder / payload.member)
        for thread in threading.enumerate():
            if not thread.daemon and thread is not threading.main_thread():
                thread.join()
    finally:  # what it raises is its own affair
        os._exit(0)


def main() -> None:
    """Read names from stdin, and print those of the payloads that ran no code, both as JSON."""
    gc.collect()
    gc.freeze()  # children copy fewer pages
    idle = []
    for name in json.load(sys.stdin):
        with tempfile.TemporaryDirectory() as folder:
            if not runs_code(payloads()[name], Path(folder).resolve()):
                idle.append(name)
    print(json.dumps(idle))  # noqa: T201


if __name__ == "__main__":
    main()
