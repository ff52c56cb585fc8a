"""What `marpack run --trace` costs: a run with it against one without, in turn, and the ratio with its interval.

    python -m benchmarks.trace [--rounds N]

Both answer the digits' samples. The ratio is the median of the rounds' own; the interval holds the true median with a
confidence of 95 %, from the ratios' order alone.
"""

import argparse
import statistics
import subprocess
import sys
import time
from math import comb
from pathlib import Path

from benchmarks.run import DIGITS, MARPACK


def seconds_of(*flags: str) -> float:
    """Return how long one run takes; raises CalledProcessError if it fails."""
    command = [*MARPACK, str(DIGITS), "--input", str(DIGITS / "samples"), "--json", *flags]
    started = time.perf_counter()
    subprocess.run(command, capture_output=True, check=True)
    return time.perf_counter() - started


def interval(ordered: list[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return the narrowest pair of equally distant ranks that holds the median as often as asked, or the widest."""
    count, low = len(ordered), 0
    while low + 1 < count / 2 and 1 - 2 * sum(comb(count, rank) for rank in range(low + 2)) / 2**count >= confidence:
        low += 1
    return ordered[low], ordered[count - 1 - low]


def main() -> None:
    """Run, and print the ratio."""
    parser = argparse.ArgumentParser(description=Path(__file__).stem)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    seconds_of("--trace")  # builds the archive, and extracts it
    pairs = [(seconds_of(), seconds_of("--trace")) for _ in range(rounds)]
    ratios = sorted(traced / plain for plain, traced in pairs)
    low, high = interval(ratios)
    plain = statistics.median(seconds for seconds, _ in pairs)
    sys.stdout.write(f"{statistics.median(ratios):.3f} [{low:.3f}, {high:.3f}] of {plain:.2f} s, {rounds} rounds\n")


if __name__ == "__main__":
    main()
