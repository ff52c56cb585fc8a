"""What pip would install, as it says itself; nothing is built or installed."""

import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from marpack.errors import shortened

_TIME_LIMIT = 300  # seconds, for all of it
_REPLY = 15  # seconds, for an index to say anything
# Of wheels alone: to look at a source distribution, pip runs what is in it.
_COMMAND = (
    *("install", "--dry-run", "--ignore-installed", "--only-binary", ":all:", "--quiet", "--no-input"),
    *("--timeout", str(_REPLY), "--retries", "1"),
)
# pip knows an option for another Python's wheels, and none for its markers.
_ELSEWHERE = """
import json, sys
from pip._vendor.packaging import markers
here = markers.default_environment
markers.default_environment = lambda: {**here(), **json.loads(sys.argv[1])}
from pip._internal.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


class UnresolvedError(Exception):
    """There is no report: pip is not there, reaches no index, or finds no set of versions that go together.

    Whoever asks for one turns it into what they raise.
    """


def pip_report(
    lines: Iterable[str],
    options: Sequence[str] = (),
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Any:  # Any: JSON of pip's
    """Return pip's report on the lines of a requirements file, wheels alone; raises UnresolvedError.

    It runs in a folder, with options of its command line, as if the markers' environment were the given one.
    """
    with TemporaryDirectory() as place:
        listing, report = Path(place, "requirements.txt"), Path(place, "report.json")
        listing.write_text("\n".join(lines))
        pip = ["-m", "pip"] if environment is None else ["-c", _ELSEWHERE, msgspec.json.encode(environment).decode()]
        command = [sys.executable, *pip, *_COMMAND, "--report", str(report), "--requirement", str(listing), *options]
        try:
            subprocess.run(  # noqa: S603 - our own words, and files
                command, capture_output=True, text=True, errors="replace", timeout=_TIME_LIMIT, check=True, cwd=folder
            )
        except subprocess.TimeoutExpired:
            raise UnresolvedError(f"pip has not answered within {_TIME_LIMIT} s") from None
        except subprocess.CalledProcessError as error:
            said = [
                line for line in error.stderr.splitlines() if line.startswith("ERROR") and "for help" not in line
            ] or [error.stderr]
            raise UnresolvedError(f"pip says: {shortened(said[-1].removeprefix('ERROR: '), 120)}") from None
        return msgspec.json.decode(report.read_bytes())


def sha256_of(item: Any) -> str:  # Any: as above
    """Return the SHA-256 of what a report says is to be installed; raises UnresolvedError where no index tells it."""
    digest: str | None = item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
    if digest is None:
        raise UnresolvedError(f"the index tells no hash of {item['metadata']['name']}")
    return digest
