"""Archives of any form, read by tools that are not ours."""

import tarfile
import zipfile
from pathlib import Path


def contents(path: Path) -> dict[str, bytes]:
    if path.is_dir():
        return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}
    if path.suffix == ".mar":
        with zipfile.ZipFile(path) as zipped:
            assert zipped.testzip() is None
            assert len(zipped.namelist()) == len(set(zipped.namelist()))
            return {name: zipped.read(name) for name in zipped.namelist()}
    with tarfile.open(path) as tar:
        root = tar.getnames()[0].partition("/")[0] + "/"
        assert all(each.isfile() and each.name.startswith(root) for each in tar)
        return {each.name.removeprefix(root): tar.extractfile(each).read() for each in tar}
