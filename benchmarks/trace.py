"""What `marpack run --trace` costs: a run with it against one without, in turn, and the ratio with its interval.

    python -m benchmarks.trace [--rounds N]

Both answer the digits' samples. The ratio is the median of the rounds' own; the interval holds the true median with a
confidence of 95 %, from the ratios' order alone.
"""

import argparse
import os
import statistics
import subprocess
import time
from pathlib import Path

from benchmarks.run import DIGITS, MARPACK
from marpack.gate.speed import interval


def seconds_of(*flags: str) -> tuple[float, float]:
    """Return how long one run takes, by the clock and of the CPU; raises CalledProcessError if it fails."""
    command = [*MARPACK, str(DIGITS), "--input", str(DIGITS / "samples"), "--json", *flags]
    started, before = time.perf_counter(), os.times()
    subprocess.run(command, capture_output=True, check=True)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - started, used


def main() -> None:
    """Run, and print the ratio."""
    parser = argparse.ArgumentParser(description=Path(__file__).stem)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    seconds_of("--trace")  # builds the archive, and extracts it
    pairs = [(seconds_of(), seconds_of("--trace")) for _ in range(rounds)]
    for name, which in (("by the clock", 0), ("of the CPU", 1)):
        ratios = [traced[which] / plain[which] for plain, traced in pairs]
        low, high = interval(ratios, 0.05) or (min(ratios), max(ratios))
        plain = statistics.median(plain[which] for plain, _ in pairs)
        print(f"{name:12} {statistics.median(ratios):.3f} [{low:.3f}, {high:.3f}] of {plain:.2f} s, {rounds} rounds")


if __name__ == "__main__":
    main()
