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
from pathlib import Path

from benchmarks.run import DIGITS, MARPACK
from marpack.gate.costs import interval


def seconds_of(*flags: str) -> float:
    """Return how long one run takes; raises CalledProcessError if it fails."""
    command = [*MARPACK, str(DIGITS), "--input", str(DIGITS / "samples"), "--json", *flags]
    started = time.perf_counter()
    subprocess.run(command, capture_output=True, check=True)
    return time.perf_counter() - started


def main() -> None:
    """Run, and print the ratio."""
    parser = argparse.ArgumentParser(description=Path(__file__).stem)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    seconds_of("--trace")  # builds the archive, and extracts it
    pairs = [(seconds_of(), seconds_of("--trace")) for _ in range(rounds)]
    ratios = [traced / plain for plain, traced in pairs]
    low, high = interval(ratios, 0.05) or (min(ratios), max(ratios))
    plain = statistics.median(seconds for seconds, _ in pairs)
    sys.stdout.write(f"{statistics.median(ratios):.3f} [{low:.3f}, {high:.3f}] of {plain:.2f} s, {rounds} rounds\n")


if __name__ == "__main__":
    main()
