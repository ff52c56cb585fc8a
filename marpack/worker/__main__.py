"""The child: `python -m marpack.worker FD MARKER MEMORY PARENT` loads one model and responds on the socket FD.

With a further word, `preload`, it imports torch while it waits for the model; with `offline`, it leaves the network;
with `zygote`, it imports torch and forks such processes.
"""

import importlib
import logging
import os
import resource
import select
import socket
import sys
import threading
import time
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, NoReturn

from msgspec.structs import replace

from marpack.protocol.messages import Dying, FromWorker, Load, LoadFailed, Pipe, Predict, ToWorker
from marpack.torchserve.metrics import LogHandler
from marpack.worker.captured_output import StdoutWriter, close_stdin, flush
from marpack.worker.model_loader import During, HandlerLoader
from marpack.worker.service import InferenceService
from marpack.worker.trouble import last_words

if TYPE_CHECKING:
    from marpack.worker.tracing import Tracer

# Modules that a model's first request imports; by name, since not every environment has them all.
_PRELOADED = (
    "torch",
    "numpy",
    *(f"PIL.{kind}ImagePlugin" for kind in ("Png", "Jpeg", "Gif", "Bmp", "Ppm")),
    "marpack.worker.handlers.vision",
    "marpack.worker.loaders.formats",
)

# How long an idle thread of OpenMP spins, for libgomp (turns of a loop) and libomp (ms); by default much longer. On a
# machine with busy cores it takes a core from the thread that it waits for: 10 to 20 times slower. Results stay equal.
_SPINNING = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "1"}

# Seconds for a handler to finish its batch when its parent is gone: more than a parent that ends it gives.
_FAREWELL = 3.0


def main(descriptor: int, marker: bytes, max_memory: int) -> int:
    """Load the model that the first message names, then respond until the parent goes away; return the exit code.

    Args:
        descriptor: The connected socket.
        marker: Bytes to print after loading and after each batch, so that the parent can assign prints to batches.
        max_memory: Bytes of data that this process may have; 0: no limit.
    """
    os.set_inheritable(descriptor, False)  # the author's subprocesses are not our clients
    if max_memory:
        resource.setrlimit(resource.RLIMIT_DATA, (max_memory, max_memory))
    prints = StdoutWriter(marker)
    pipe = Pipe(socket.socket(fileno=descriptor), ToWorker)
    load = pipe.receive()
    if not isinstance(load, Load):
        return 0
    logging.basicConfig(handlers=[LogHandler(sys.stdout, prints.put)], level=logging.INFO)  # as the server's worker
    close_stdin()
    os.chdir(load.model_dir)
    if not load.trace:
        return _converse(load, pipe, prints, None)
    from marpack.worker.tracing import Tracer  # noqa: PLC0415 - few runs are traced

    return _converse(load, pipe, prints, Tracer(load.model_dir))


def _converse(load: Load, pipe: Pipe, prints: StdoutWriter, tracer: "Tracer | None") -> int:
    during: During = tracer.during if tracer else nullcontext
    own, loader = os.getpid(), HandlerLoader(load, during=during)
    service: InferenceService | None = None
    message: ToWorker | None = load
    reply: FromWorker
    while message is not None:
        try:
            if isinstance(message, Predict) and service is not None:
                with during("handle"):
                    reply = service.predict(message.requests, pipe.send)
            else:
                service, reply = loader.run()
                service.take_lines = prints.take_lines
        except BaseException as error:  # noqa: BLE001 - the worker's loop: the parent gets every exception
            if service is None:
                reply = loader.failure(error)
            else:
                reply = Dying(last_words(error, load.model_dir), getattr(error, "answered", ()))
        if os.getpid() != own:
            os._exit(0)  # the handler forked and let its child return: only one of them may respond
        prints.end_batch()
        if tracer is not None:
            reply = replace(reply, touched=tracer.take())
        pipe.send(reply)
        if isinstance(reply, LoadFailed | Dying):
            return 1
        message = pipe.receive()
    return 0


def end_with_parent(descriptor: int) -> None:
    """End this process soon after the parent closes its socket; on Linux a supervisor does it at once."""

    def wait() -> None:
        poll = select.poll()
        poll.register(descriptor, 0)  # not for what arrives: until the other end is closed
        poll.poll()
        time.sleep(_FAREWELL)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def bound_spinning() -> None:
    """Let idle threads of OpenMP sleep soon, unless the user sets how they wait; call it before torch is imported."""
    if not {*_SPINNING, "OMP_WAIT_POLICY"} & os.environ.keys():
        os.environ.update(_SPINNING)


def preload() -> None:
    """Import the modules that take long and that most models need."""
    for name in _PRELOADED:
        with suppress(ImportError):
            importlib.import_module(name)


def end(code: int) -> NoReturn:
    """End this process at once: tearing down an interpreter with torch in it takes longer than many a run."""
    flush()
    os._exit(code)


if __name__ == "__main__":
    bound_spinning()
    if "zygote" in sys.argv[5:]:
        from marpack.worker.linux import serve_forks

        serve_forks(int(sys.argv[4]), int(sys.argv[1]), preload)
    if "offline" in sys.argv[5:]:  # first of all: it takes one thread, and new credentials cancel the parent's signal
        from marpack.worker.linux import leave_network

        leave_network()
    if sys.platform == "linux":
        from marpack.worker.linux import supervise

        supervise(int(sys.argv[4]), int(sys.argv[1]))
    else:
        end_with_parent(int(sys.argv[1]))
    if "preload" in sys.argv[5:]:
        preload()
    end(main(int(sys.argv[1]), f"\x1e{sys.argv[2]}\x1e".encode(), int(sys.argv[3])))
