"""What the benchmarks that time whole runs say in the end: each ratio of medians, and whether it is what was wanted."""

import statistics
from collections.abc import Iterable, Mapping, Sequence


def show_targets(times: Mapping[str, Sequence[float]], targets: Iterable[tuple[str, str, float]]) -> bool:
    """Print each target's ratio; say whether all of those that were measured are met.

    Args:
        times: Seconds by contender.
        targets: Ours, theirs, and at most how many times theirs ours may take.
    """
    met = True
    print()
    for ours, theirs, most in targets:
        if theirs in times:
            ratio = statistics.median(times[ours]) / statistics.median(times[theirs])
            met &= ratio <= most
            print(f"{ours} / {theirs:<22} {ratio:>6.3f}  at most {most:.3f}  {'ok' if ratio <= most else 'MISSED'}")
    return met
