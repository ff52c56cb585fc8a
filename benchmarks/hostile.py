"""What looking costs at most: archives made to take long, or much memory, each inspected as a whole process.

    python -m benchmarks.hostile [--only NAME]

The bounds are counts (opcodes, values, bytes), so that a verdict never depends on how busy a machine is; here is what
they come to: 5 seconds and 300 MB for any archive, on two cores.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

SECONDS, BYTES = 5.0, 300 * 1000 * 1000
MANIFEST = {"createdOn": "", "runtime": "python", "model": {"modelName": "m", "modelVersion": "1", "handler": "h.py"}}
AGAIN = [sys.executable, "-m", "benchmarks.hostile"]
MILLION = 1_000_000
Members = dict[str, bytes]


def flood(code: bytes) -> Members:
    return {"model.pt": b"\x80\x02" + code * 9_900_000}


def puts() -> Members:
    return {"model.pt": b"\x80\x02N" + b"".join(b"r" + number.to_bytes(4, "little") for number in range(3 * MILLION))}


def imports() -> Members:
    return {"model.pt": b"\x80\x02" + b"".join(b"cm\n%d\n" % number for number in range(MILLION))}


def many_gzips() -> Members:
    return {f"{number}.gz": gzip.compress(b"}" * 9_000_000) for number in range(30)}


def small_gzips() -> Members:
    return {f"{number}.gz": gzip.compress(b"N" * 20_000) for number in range(5000)}


def bombs() -> Members:
    return {f"{number}.gz": gzip.compress(bytes(63 << 20)) for number in range(10)}


def metadata() -> Members:
    header = json.dumps({"__metadata__": {f"k{number}": "" for number in range(2 * MILLION)}}).encode()
    return {"model.safetensors": len(header).to_bytes(8, "little") + header}


def many_files() -> Members:
    return {f"{number}": b"captum\nnumpy\n" for number in range(60_000)}


def zip_of_files() -> Members:
    return {"files.zip": zipped(many_files())}


def wide_zip() -> Members:
    return {"files.zip": zipped({f"{number}": b"" for number in range(210_000)})}


def pickles_in_a_row() -> Members:
    return {f"{number}.pkl": b"\x80\x02N." * 1000 for number in range(1000)}


def texts() -> Members:
    row = b"X\0\x10\0\0" + b"a" * 4096
    return {"model.pt": b"\x80\x02" + row * 60_000}


def lines() -> Members:
    return {"model.pt": b"\x80\x02" + (b"V" + b"a" * 1_000_000 + b"\n") * 250}


CASES: dict[str, Callable[[], Members]] = {
    **{f"9.9 MB of {code.decode()}": lambda code=code: flood(code) for code in (b"}", b"(", b"]", b"N", b")")},
    "3 million PUTs": puts,
    "a million GLOBALs": imports,
    "3.3 million REDUCEs": lambda: {"model.pt": b"\x80\x02cm\nf\n" + b")R" * 3_300_000},
    "3.3 million APPENDs to a call": lambda: {"model.pt": b"\x80\x02cm\nf\n)R" + b"Na" * 3_300_000},
    "tuples in tuples": lambda: {"model.pt": b"\x80\x02N" + b"\x85" * 3_300_000},
    "long texts": texts,
    "long lines": lines,
    "30 gzips of }": many_gzips,
    "5,000 small gzips": small_gzips,
    "10 gzips of zeros": bombs,
    "metadata of two million keys": metadata,
    "60,000 files": many_files,
    "a zip of 60,000 files": zip_of_files,
    "a zip of 210,000 empty files": wide_zip,
    "a million pickles in rows": pickles_in_a_row,
    "300 MB of padding": lambda: {"model.pt": b"\x80\x02N." + bytes(300 * MILLION)},
}


def zipped(members: Members) -> bytes:
    with tempfile.TemporaryFile() as file:
        write(file, members)
        file.seek(0)
        return file.read()


def write(file: object, members: Members) -> None:
    with zipfile.ZipFile(file, "w") as archive:  # type: ignore[call-overload]  # a path or a file
        for name, content in members.items():
            archive.writestr(name, content)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", metavar="NAME", help="cases whose name holds this")
    parser.add_argument("--case", metavar="NAME", help="this one, in this process")
    parser.add_argument("--make", nargs=2, metavar=("NAME", "FILE"), help="only make a case's archive")
    options = parser.parse_args()
    if options.make:
        name, file = options.make
        write(file, {"MAR-INF/MANIFEST.json": json.dumps(MANIFEST).encode(), "h.py": b"", **CASES[name]()})
        return 0
    if options.case:
        return 0 if show(options.case) else 1
    # The memory of a process that starts another counts as that one's, too: each has a small parent of its own.
    names = [name for name in CASES if options.only in name]
    return max(subprocess.run([*AGAIN, "--case", name], check=False).returncode for name in names)


def show(name: str) -> bool:
    with tempfile.TemporaryDirectory(prefix="marpack-benchmark-") as folder:
        archive = Path(folder) / "m.mar"
        subprocess.run([*AGAIN, "--make", name, str(archive)], check=True)
        seconds, memory, verdict = inspect(archive)
    is_within = seconds <= SECONDS and memory <= BYTES
    print(
        f"{name:32} {seconds:6.2f} s {memory / MILLION:6.0f} MB  {verdict:12} {'' if is_within else 'OVER'}", flush=True
    )
    return is_within


def inspect(archive: Path) -> tuple[float, int, str]:
    """Return how many seconds of a processor it took, the most memory it had, and what was said of the pickles."""
    command = [sys.executable, "-m", "marpack", "inspect", str(archive), "--json", "--max-members", "1000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        output = process.stdout.read() if process.stdout else b""
        _, _, usage = os.wait4(process.pid, 0)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, "; ".join(verdicts(output))


def verdicts(output: bytes) -> Iterator[str]:
    try:
        yield json.loads(output)["pickles"]["verdict"]
    except (ValueError, KeyError):
        yield output.decode(errors="replace").strip()[-80:]


if __name__ == "__main__":
    sys.exit(main())
