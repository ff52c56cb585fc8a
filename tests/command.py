"""`marpack` as a process of its own, whose workers are forked from one that has torch and need not import it."""

import sys

from conformance.forking import ForkServer, forked_workers, shared


def command(*args: str) -> list[str]:
    """Return the command line of a `marpack` that is not asked how it starts its workers."""
    if set(args[:1]) <= {"run", "check", "score"}:
        return [sys.executable, __file__, shared().address, *args]
    return [sys.executable, "-m", "marpack", *args]


def run_with_forks(address: str) -> None:
    """Be the command, with workers from the fork server."""
    from marpack.cli.main import main
    from marpack.runner.client import Worker
    from marpack.runner.process import Zygote

    server = ForkServer(address)
    Worker.spawn = forked_workers(lambda: server)  # type: ignore[method-assign]
    Zygote.start = lambda _: None  # type: ignore[method-assign,assignment]  # the command's own would come too late
    sys.argv[0] = "marpack"
    main()


if __name__ == "__main__":
    run_with_forks(sys.argv.pop(1))
