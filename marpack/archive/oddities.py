"""What the server refuses although marpack can open it, as findings: such an archive is not fine (contract §1)."""

from collections.abc import Iterable

from marpack.archive.names import shown
from marpack.archive.protocol import MANIFEST_NAME
from marpack.findings import Finding, Severity

_REPACK = "marpack unpack it, and build it again: marpack build"


def common_root(names: Iterable[str]) -> str:
    """Return the one folder, with its slash, that everything lies under, if the manifest does so too; else ""."""
    all_names = list(names)
    root, slash, _ = min(all_names, default="").partition("/")
    found = root + slash
    if MANIFEST_NAME in all_names or not slash or found + MANIFEST_NAME not in all_names:
        return ""
    return found if all(name.startswith(found) for name in all_names) else ""


def rooted_mar(source: str, root: str) -> Finding:
    """Tell that a .mar's members lie under one folder."""
    return _refused(
        "mar-root-folder",
        f"everything lies under the folder {shown(root)}; in a .mar the server looks for {MANIFEST_NAME} at the top",
        source,
    )


def flat_tar(source: str) -> Finding:
    """Tell that a .tar.gz's members do not lie under one folder."""
    return _refused(
        "tgz-no-root-folder",
        "the members lie at the top; in a .tar.gz the server drops the first folder of each name: it finds no manifest",
        source,
    )


def wrong_suffix(source: str, found: str) -> Finding:
    """Tell that a file's name makes the server read it as what it is not."""
    return _refused(
        "archive-suffix",
        f"this is {found} by its content; the server reads a file named .mar as a zip, and any other as a .tar.gz",
        source,
        hint="rename it",
    )


def streamed_zip64(source: str, names: tuple[str, ...]) -> Finding:
    """Tell that sizes stand in zip64 records behind the data."""
    return _refused(
        "zip64-streamed",
        f"the sizes of {', '.join(map(shown, names[:3]))} stand behind the data in zip64 form: the server refuses it",
        source,
    )


def _refused(code: str, message: str, source: str, hint: str = _REPACK) -> Finding:
    return Finding(code=code, severity=Severity.ERROR, message=message, where=source, hint=hint)
