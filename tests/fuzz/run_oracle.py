"""Compare marpack with Python's unpicklers on many made files, on all cores: `python -m fuzz.run_oracle --help`.

The seed makes the same files in every run. A file that marpack is wrong about is printed as small as it can be made.
"""

import argparse
import json
import os
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from fuzz.oracle import compare, minimised, some_variants
from fuzz.streams import Maker, corpus
from fuzz.unpicklers import bounded
from fuzz.wrapped import compare_wrapped, made

_BARE, _WRAPPED = 2000, 100  # files of a job
_LONGEST = 300  # seconds of a job, which takes one or two
_KIND = 12  # letters of a failure that are the same for all of its kind
_MOST = 20  # failures that are made small
Job = tuple[str, int, int]  # "bare" or "wrapped", its number, its files


def jobs(bare: int, wrapped: int) -> list[Job]:
    kinds = (("wrapped", wrapped, _WRAPPED), ("bare", bare, _BARE))
    return [(kind, at // size, min(size, count - at)) for kind, count, size in kinds for at in range(0, count, size)]


def silence() -> None:
    """Leave out what C writes to stderr of an object that is broken."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def do(job: Job, seed: str) -> tuple[Counter[str], list[str]]:
    """Return what a job's files were, and its failures."""
    kind, number, count = job
    signal.alarm(_LONGEST)
    warnings.simplefilter("ignore")
    maker, seen, failures = Maker(f"{seed} {kind} {number}"), Counter[str](), list[str]()
    with bounded():
        for _ in range(count):
            failures += (one_bare if kind == "bare" else one_wrapped)(maker, seen)
    signal.alarm(0)
    return seen, failures[:_MOST]


def one_bare(maker: Maker, seen: Counter[str]) -> list[str]:
    data, variants = maker.stream(), some_variants(maker.random)
    seen["bare"] += 1
    problems = list(compare(data, variants, seen))
    if not problems:
        return []
    small = minimised(data, lambda shorter: is_like(compare(shorter, variants), problems[0]))
    return [f"{next(compare(small, variants))}: {small!r}"]


def one_wrapped(maker: Maker, seen: Counter[str]) -> list[str]:
    case = made(maker)
    seen["wrapped"] += 1
    problems = list(compare_wrapped(case, seen))
    if not problems:
        return []
    small = minimised(case.data, lambda data: is_like(compare_wrapped(case._replace(data=data)), problems[0]))
    return [f"{problems[0]}: {case.name} by {' > '.join(case.chain)}: {small!r}"]


def is_like(problems: Iterable[str], known: str) -> bool:
    """Return whether one of the problems is of the same kind."""
    return any(problem.startswith(known[:_KIND]) for problem in problems)


def main() -> None:
    """Run as many as asked for; fail if marpack was wrong about any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bare", type=int, default=1_000_000, help="pickles in memory")
    parser.add_argument("--wrapped", type=int, default=10_000, help="files that wrap pickles")
    parser.add_argument("--seed", default="31", help="another one makes other files")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    corpus()
    begin = time.monotonic()
    seen, failures = Counter[str](), list[str]()
    with ProcessPoolExecutor(options.processes, initializer=silence) as pool:
        for counts, failed in pool.map(partial(do, seed=options.seed), jobs(options.bare, options.wrapped)):
            seen += counts
            failures += failed
    seconds = time.monotonic() - begin
    sys.stderr.write("".join(f"{failure}\n" for failure in failures[:_MOST]))
    print(json.dumps({**seen, "divergences": len(failures), "seconds": round(seconds, 1)}))  # noqa: T201
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
