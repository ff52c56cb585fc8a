"""`marpack` as a process of its own, whose workers are forked from one that has torch and need not import it."""

import sys
from collections.abc import Mapping
from typing import Any

from conformance.forking import ForkServer, shared


def command(*args: str) -> list[str]:
    """Return the command line of a `marpack` that is not asked how it starts its workers."""
    if set(args[:1]) <= {"run", "check", "score"}:
        return [sys.executable, __file__, shared().address, *args]
    return [sys.executable, "-m", "marpack", *args]


def run_with_forks(address: str) -> None:
    """Be the command, with workers from the fork server."""
    from marpack.cli.main import main
    from marpack.runner.client import Worker
    from marpack.runner.zygote import Zygote

    spawn = Worker.spawn
    server = ForkServer(address)

    def fork(*, environment: Mapping[str, str] | None = None, python: str = sys.executable, **options: Any) -> Worker:
        if python != sys.executable:
            return spawn(environment=environment, python=python, **options)
        options.pop("preload", None)  # it has
        options.pop("zygote", None)
        options.pop("offline", None)  # a fork of a process with threads cannot
        return Worker(server.launch(environment=environment, **options))

    Worker.spawn = fork  # type: ignore[method-assign,assignment]
    Zygote.start = lambda _: None  # type: ignore[method-assign,assignment]  # the command's own would come too late
    sys.argv[0] = "marpack"
    main()


if __name__ == "__main__":
    run_with_forks(sys.argv.pop(1))
