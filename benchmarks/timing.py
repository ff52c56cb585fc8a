"""Shared parts of the benchmarks: options, contenders that run in turn, figures with bounds, and busy processes.

Each figure is printed with the load average of the last minute.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "examples" / "digits"
MARPACK = [sys.executable, "-m", "marpack"]
NO_OP = "def handle(data, context):\n    return [b'ok'] * len(data) if data else None\n"
Command = list[str | Path]


def parse(description: str | None, **defaults: Any) -> argparse.Namespace:
    """Parse the options of a benchmark, each with its default; None stands for a path, False for a flag."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        if default is False:
            parser.add_argument(f"--{name}", action="store_true")
            continue
        kind = Path if default is None else type(default)
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=default, help=f"[{default}]")
    return parser.parse_args()


def run(command: Command, environment: Mapping[str, str] | None = None, stdin: str = "") -> str:
    """Run a command as an installed program, whose bytecode is compiled, and return its output."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env |= environment or {}
    done = subprocess.run(command, env=env, input=stdin, capture_output=True, check=False, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def seconds(action: Callable[[], object]) -> float:
    """Return the duration of a call."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


class Race:
    """Contenders that run in turn, round after round, after one warm-up each: a busy machine slows all of them."""

    def __init__(self, repeat: int, contenders: Mapping[str, Callable[[], float]]) -> None:
        rounds = [{name: contender() for name, contender in contenders.items()} for _ in range(repeat + 1)]
        self.rounds = rounds[1:]

    def median(self, name: str) -> float:
        """Return the median figure of a contender."""
        return statistics.median(figures[name] for figures in self.rounds)

    def ratio(self, name: str, *others: str) -> float:
        """Return the median of the rounds' own ratios to another contender, or to the mean of several."""
        ratios = [figures[name] / statistics.mean(figures[other] for other in others) for figures in self.rounds]
        return statistics.median(ratios)

    def show(self, name: str, one: str, other: str, unit: str, *, scale: float = 1.0, **bounds: float | None) -> bool:
        """Print the ratio of two contenders with its bound; return whether the bound is met."""
        ours, theirs = (f"{self.median(each) * scale:,.3g} {unit}" for each in (one, other))
        return show(name, ours, theirs, self.ratio(one, other), **bounds)


def show(
    name: str, ours: str, theirs: str, ratio: float, *, most: float | None = None, least: float | None = None
) -> bool:
    """Print a figure with its bound; return whether the bound is met."""
    met = (most is None or ratio <= most) and (least is None or ratio >= least)
    bound = f"at most {most:.3g}" if most is not None else f"at least {least:.3g}" if least is not None else ""
    verdict = "" if not bound else "ok" if met else "MISSED"
    load = f"load {os.getloadavg()[0]:.1f}"
    print(f"{name:<44} {ours:>12} {theirs:>12} {ratio:>8.3f}  {bound:<14} {verdict:<6} {load}", flush=True)
    return met


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep cores busy with other processes."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def build_digits(folder: Path) -> Path:
    """Build the archive of examples/digits."""
    run([*MARPACK, "build", DIGITS, "-o", folder / "digits.mar"])
    return folder / "digits.mar"


def write_no_op(folder: Path, handler: str = NO_OP) -> Path:
    """Write a model folder of the folder's name, whose handler does nothing."""
    (folder / "MAR-INF").mkdir(parents=True)
    (folder / "handler.py").write_text(handler)
    manifest = {"runtime": "python", "model": {"modelName": folder.name, "handler": "handler.py"}}
    (folder / "MAR-INF" / "MANIFEST.json").write_text(json.dumps(manifest))
    return folder
