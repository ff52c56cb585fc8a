"""The child: `python -m marpack.runner.pip_sizes RESULT LIMIT ARGUMENT…` is a dry run of `pip install ARGUMENT…`.

It writes the downloads that pip would make, with their sizes, as JSON to the file RESULT. It downloads metadata only,
and at most LIMIT bytes of wheels from indexes without separate metadata. Older versions of pip also download every
wheel in a dry run; therefore this module changes pip's `RequirementPreparer`. The sizes are requested through pip's own
session, so that pip's configuration applies: indexes, proxies, certificates and credentials.
"""

import json
import sys
from pathlib import Path
from typing import Any  # of pip's internals, which have no stable types

import msgspec
from msgspec import Struct


class Download(Struct, frozen=True):
    """What pip would install."""

    files: tuple[str, ...]  # wheels; empty where all requirements are met
    size: int | None  # bytes to download; None: unknown
    reason: str = ""  # why it is unknown


class _Preparer:
    """Replaces the methods with which pip downloads and builds."""

    def __init__(self, limit: int) -> None:
        self.download: Download | None = None
        self.session: Any = None
        self._left = limit

    def install(self) -> None:
        """Change pip; raises AttributeError for a version that has other methods."""
        from pip._internal.operations.prepare import RequirementPreparer  # noqa: PLC0415 - in the environment's Python

        kind: Any = RequirementPreparer
        begin, prepare = kind.__init__, kind._prepare_linked_requirement  # noqa: SLF001 - there is no other way in
        _ = kind.prepare_linked_requirements_more, kind.prepare_editable_requirement

        def begin_with_session(preparer: Any, *args: Any, **options: Any) -> None:
            begin(preparer, *args, **options)
            self.session = preparer._session  # noqa: SLF001

        def prepare_one(preparer: Any, req: Any, *args: Any, **options: Any) -> Any:
            """Stop pip if it needs a large download, or a build, to read a requirement's metadata."""
            name = req.link.filename
            if not req.link.is_wheel:
                self._stop(f"{name} is not a wheel: pip has to build it to read its requirements")
            size = self._size(req.link.url_without_fragment)
            self._left -= size or 0
            if size is None or self._left < 0:
                known = "" if size is None else f", {size / 1e6:,.1f} MB,"
                self._stop(f"pip has to download {name}{known} to read its requirements")
            return prepare(preparer, req, *args, **options)

        def prepare_editable(_: Any, req: Any, *_args: Any, **_options: Any) -> None:
            self._stop(f"{req} has to be built first")

        def prepare_all(_: Any, reqs: Any, *_args: Any, **_options: Any) -> None:
            self.measure([req.link.url_without_fragment for req in reqs if req.link])
            self._stop("")

        kind.__init__, kind._prepare_linked_requirement = begin_with_session, prepare_one  # noqa: SLF001
        kind.prepare_linked_requirements_more, kind.prepare_editable_requirement = prepare_all, prepare_editable

    def measure(self, urls: list[str]) -> None:
        """Store the files at some addresses, with their total size, as the download."""
        files, sizes = tuple(url.rpartition("/")[2] for url in urls), [self._size(url) for url in urls]
        unknown = next((name for name, size in zip(files, sizes, strict=True) if size is None), None)
        reason = "" if unknown is None else f"the index does not state the size of {unknown}"
        self.download = Download(files, sum(filter(None, sizes)) if unknown is None else None, reason)

    def _size(self, url: str) -> int | None:
        """Return how many bytes a download has; 0 of a local file."""
        if url.startswith("file:"):
            return 0
        try:
            found = self.session.head(url, headers={"Accept-Encoding": "identity"}, allow_redirects=True)
        except OSError:  # among them all that `requests` raises
            return None
        length: str = found.headers.get("Content-Length", "")
        return int(length) if found.status_code == 200 and length.isdecimal() else None

    def _stop(self, reason: str) -> None:
        from pip._internal.exceptions import InstallationError  # noqa: PLC0415 - as above

        self.download = self.download or Download((), None, reason)
        raise InstallationError(reason)


def main(result: Path, limit: int, arguments: list[str]) -> int:
    """Run pip, write the result, and return pip's exit code, for callers that find no result."""
    from pip._internal.cli.main import main as run_pip  # noqa: PLC0415 - as above

    report = result.with_suffix(".pip")
    preparer = _Preparer(limit)
    try:
        preparer.install()
    except AttributeError as error:
        result.write_bytes(msgspec.json.encode(Download((), None, f"this version of pip is not known: {error}")))
        return 1
    code: int = run_pip(["install", "--dry-run", "--report", str(report), *arguments])
    if not code and preparer.download is None:
        urls = [item["download_info"] for item in json.loads(report.read_bytes())["install"]]
        preparer.measure([each["url"] for each in urls])
    if preparer.download is not None:
        result.write_bytes(msgspec.json.encode(preparer.download))
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
