"""Bounds of inspecting hostile archives, and verdicts on attacks and honest files: docs/explanation/security.md.

    python -m benchmarks.security [--only NAME] [--corpus 0]

The first part inspects archives that are made to take long or much memory, each as a whole process: at most 5 seconds
and 300 MB, on two cores. The second scans the test suite's payloads, which run code when their loader opens them
(`tests/inspection/test_payloads.py` proves that), and its honest files. Exit code 1: an archive takes more, a payload
is safe, or an honest file is dangerous, is not read to its end, or needs trust without cause.
"""

import gzip
import io
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from benchmarks.timing import MARPACK, ROOT, parse

SECONDS, BYTES = 5.0, 300 * 1000 * 1000
MANIFEST = {"createdOn": "", "runtime": "python", "model": {"modelName": "m", "modelVersion": "1", "handler": "h.py"}}
MILLION = 1_000_000
Members = dict[str, bytes]


def pickle_of(code: bytes) -> Members:
    return {"model.pt": b"\x80\x02" + code}


def numbered(count: int, make: Callable[[int], bytes], suffix: str = "") -> Members:
    return {f"{number}{suffix}": make(number) for number in range(count)}


def zipped(members: Members) -> Members:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return {"files.zip": file.getvalue()}


def safetensors(metadata: dict[str, str]) -> Members:
    header = json.dumps({"__metadata__": metadata}).encode()
    return {"model.safetensors": len(header).to_bytes(8, "little") + header}


CASES: dict[str, Callable[[], Members]] = {
    **{f"9.9 MB of {code.decode()}": lambda code=code: pickle_of(code * 9_900_000) for code in (b"}", b"(", b"]")},
    **{f"9.9 MB of {code.decode()}": lambda code=code: pickle_of(code * 9_900_000) for code in (b"N", b")")},
    "3 million PUTs": lambda: pickle_of(b"N" + b"".join(b"r" + n.to_bytes(4, "little") for n in range(3 * MILLION))),
    "a million GLOBALs": lambda: pickle_of(b"".join(b"cm\n%d\n" % number for number in range(MILLION))),
    "3.3 million REDUCEs": lambda: pickle_of(b"cm\nf\n" + b")R" * 3_300_000),
    "3.3 million APPENDs to a call": lambda: pickle_of(b"cm\nf\n)R" + b"Na" * 3_300_000),
    "tuples in tuples": lambda: pickle_of(b"N" + b"\x85" * 3_300_000),
    "long texts": lambda: pickle_of((b"X\0\x10\0\0" + b"a" * 4096) * 60_000),
    "long lines": lambda: pickle_of((b"V" + b"a" * MILLION + b"\n") * 250),
    "30 gzips of }": lambda: numbered(30, lambda _: gzip.compress(b"}" * 9_000_000), ".gz"),
    "5,000 small gzips": lambda: numbered(5000, lambda _: gzip.compress(b"N" * 20_000), ".gz"),
    "10 gzips of zeros": lambda: numbered(10, lambda _: gzip.compress(bytes(63 << 20)), ".gz"),
    "metadata of two million keys": lambda: safetensors({f"k{number}": "" for number in range(2 * MILLION)}),
    "60,000 files": lambda: numbered(60_000, lambda _: b"captum\nnumpy\n"),
    "a zip of 60,000 files": lambda: zipped(numbered(60_000, lambda _: b"captum\nnumpy\n")),
    "a zip of 210,000 empty files": lambda: zipped(numbered(210_000, lambda _: b"")),
    "a million pickles in rows": lambda: numbered(1000, lambda _: b"\x80\x02N." * 1000, ".pkl"),
    "300 MB of padding": lambda: pickle_of(b"N." + bytes(300 * MILLION)),
}


def main() -> int:
    options = parse(__doc__, only="", corpus=1, case="", make="", file=None)
    if options.make:
        members = {"MAR-INF/MANIFEST.json": json.dumps(MANIFEST).encode(), "h.py": b"", **CASES[options.make]()}
        options.file.write_bytes(zipped(members)["files.zip"])
        return 0
    if options.case:
        return inspect(options.case)
    # The system adds the memory of a parent to its child's, so each process has a small parent.
    again = [sys.executable, "-m", "benchmarks.security", "--case"]
    codes = [subprocess.run([*again, name], check=False).returncode for name in CASES if options.only in name]
    return max([*codes, count_verdicts() if options.corpus else 0])


def inspect(name: str) -> int:
    """Make and inspect one archive; return 1 if it takes too long or too much memory."""
    with tempfile.TemporaryDirectory(prefix="marpack-benchmark-") as folder:
        archive = Path(folder) / "m.mar"
        make = [sys.executable, "-m", "benchmarks.security", "--make", name, "--file", str(archive)]
        subprocess.run(make, check=True)
        command = [*MARPACK, "inspect", str(archive), "--json", "--max-members", "1000000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            output = process.stdout.read() if process.stdout else b""
            _, _, usage = os.wait4(process.pid, 0)
    try:
        verdict = json.loads(output)["pickles"]["verdict"]
    except (ValueError, KeyError):
        verdict = output.decode(errors="replace").strip()[-80:]
    seconds, memory = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
    over = "OVER" if seconds > SECONDS or memory > BYTES else ""
    print(f"{name:32} {seconds:6.2f} s {memory / MILLION:6.0f} MB  {verdict:12} {over}", flush=True)
    return 1 if over else 0


def count_verdicts() -> int:
    """Print the verdicts on payloads and honest files; return 1 if one is wrong."""
    sys.path.insert(0, str(ROOT / "tests"))
    from inspection.honest_files import NEED_TRUST, QUICK, SLOW, listed
    from inspection.payloads import payloads

    made = ((name, item.member, item.make(), [*item.files]) for name, item in payloads().items())
    hostile = dict(describe(made))
    honest = dict(describe((name, item.member, item.make(), []) for name, item in listed(*QUICK, *SLOW).items()))
    classes = dict(describe((name, item.member, item.make(), []) for name, item in listed(*NEED_TRUST).items()))
    groups = (("payloads", hostile), ("honest files", honest), ("honest files of classes", classes))
    for title, verdicts in groups:
        counts = Counter(verdicts.values())
        parts = (f"{count:,} {verdict}" for verdict, count in counts.most_common())
        print(f"{counts.total():,} {title}: {', '.join(parts)}")
    wrong = [name for name, verdict in hostile.items() if verdict in ("safe", "data")]
    wrong += [name for name, verdict in honest.items() if verdict not in ("safe", "data")]
    wrong += [name for name, verdict in classes.items() if verdict not in ("safe", "data", "needs trust")]
    print("\n".join(wrong[:20]))
    return 1 if wrong else 0


def describe(files: Iterable[tuple[str, str, bytes, list[str]]]) -> Iterator[tuple[str, str]]:
    """Yield each file's name with its verdict, as a member of an archive that has further members."""
    from marpack.inspection.nested_files import NestedScan
    from marpack.inspection.pickles import PickleVerdict, scan_of
    from marpack.weights.contents import recognize

    for name, member, content, beside in files:
        file, walk = io.BytesIO(content), NestedScan(members=[member, *beside])
        try:
            found = scan_of(list(walk.file(member, file, recognize(file, walk.budget))))
        except Exception as error:  # noqa: BLE001 - one file's failure is its result
            yield name, f"failed: {error!r}"
            continue
        if found.unscanned and found.verdict is not PickleVerdict.DANGEROUS:
            yield name, "not read to its end"
        else:
            yield name, "data" if found.verdict is PickleVerdict.SAFE and not found.pickles else str(found.verdict)


if __name__ == "__main__":
    sys.exit(main())
