"""Count the verdicts on the test suite's payloads and honest files: the figures in docs/explanation/security.md.

    python -m benchmarks.trust_corpus

Every payload runs code when its loader opens it (`tests/inspection/test_payloads.py` proves that), so none may be safe.
Exits 1 if a payload is safe, or an honest file is dangerous, is not read to its end, or needs trust without cause.
"""

import io
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from marpack.inspection.nested_files import NestedScan
from marpack.inspection.pickles import PickleScan, PickleVerdict, scan_of
from marpack.weights.contents import recognize

ROOT = Path(__file__).parents[1]
SHOWN = 20  # names of failures


def main() -> int:
    sys.path.insert(0, str(ROOT / "tests"))
    from inspection.honest_files import NEED_TRUST, QUICK, SLOW, listed
    from inspection.payloads import payloads

    made = ((name, item.member, item.make(), [*item.files]) for name, item in payloads().items())
    hostile = dict(describe_all(made))
    print_counts("payloads", hostile.values())
    honest = dict(describe_all((name, item.member, item.make(), []) for name, item in listed(*QUICK, *SLOW).items()))
    print_counts("honest files", honest.values())
    trusted = dict(describe_all((name, item.member, item.make(), []) for name, item in listed(*NEED_TRUST).items()))
    print_counts("honest files of classes, which may need trust", trusted.values())
    failed = [name for name, verdict in hostile.items() if verdict in ("safe", "data")]
    failed += [name for name, verdict in honest.items() if verdict not in ("safe", "data")]
    failed += [name for name, verdict in trusted.items() if verdict not in ("safe", "data", "needs trust")]
    print("\n".join(failed[:SHOWN]))
    return 1 if failed else 0


def describe_all(files: Iterable[tuple[str, str, bytes, list[str]]]) -> Iterator[tuple[str, str]]:
    """Yield each file's name with its verdict in a word or two."""
    for name, member, content, beside in files:
        try:
            yield name, describe(scan(member, content, beside))
        except Exception as error:  # noqa: BLE001 - one file's failure is its result
            yield name, f"failed: {error!r}"


def scan(member: str, content: bytes, beside: list[str]) -> PickleScan:
    """Inspect a file as a member of an archive that has further members."""
    file, walk = io.BytesIO(content), NestedScan(members=[member, *beside])
    return scan_of(list(walk.file(member, file, recognize(file, walk.budget))))


def describe(found: PickleScan) -> str:
    if found.unscanned and found.verdict is not PickleVerdict.DANGEROUS:
        return "not read to its end"
    return "data" if found.verdict is PickleVerdict.SAFE and not found.pickles else str(found.verdict)


def print_counts(title: str, verdicts: Iterable[str]) -> None:
    counts = Counter(verdicts)
    parts = (f"{count:,} {verdict}" for verdict, count in counts.most_common())
    print(f"{counts.total():,} {title}: {', '.join(parts)}")


if __name__ == "__main__":
    sys.exit(main())
