"""What the server asks of an archive as a whole: suffix, root folder, a manifest that points at files (contract §1)."""

from collections.abc import Iterable

from marpack.archive.manifest import MAX_BYTES, Manifest
from marpack.archive.names import check_member_name, quoted
from marpack.archive.protocol import MANIFEST_NAME, Archive
from marpack.errors import ManifestError, UnsafeArchiveError
from marpack.findings import Finding, Severity
from marpack.torchserve.stock import HandlerName

_REPACK = "marpack unpack it, and build it again: marpack build"
_REBUILD = "build the archive again: marpack build"
_REFUSED = {
    "mar-root-folder": "everything lies under the folder {}; in a .mar the server looks for MAR-INF/MANIFEST.json "
    "at the top",
    "tgz-no-root-folder": "the members lie at the top; in a .tar.gz the server drops the first folder of each name: "
    "it finds no manifest",
    "archive-suffix": "this is {} by its content; the server reads a file named .mar as a zip, and any other as a "
    ".tar.gz",
    "zip64-streamed": "the sizes of {} stand behind the data in zip64 form: the server refuses it",
}


def common_root(names: Iterable[str]) -> str:
    """Return the one folder, with its slash, that everything lies under, if the manifest does so too; else ""."""
    all_names = list(names)
    root, slash, _ = min(all_names, default="").partition("/")
    found = root + slash
    if MANIFEST_NAME in all_names or not slash or found + MANIFEST_NAME not in all_names:
        return ""
    return found if all(name.startswith(found) for name in all_names) else ""


def refused(code: str, source: str, detail: str = "") -> Finding:
    """Tell what the server refuses in an archive's form; the detail is what its sentence leaves open."""
    hint = "rename it" if code == "archive-suffix" else _REPACK
    return Finding(code=code, severity=Severity.ERROR, message=_REFUSED[code].format(detail), where=source, hint=hint)


def read_manifest(archive: Archive) -> Manifest:
    """Read an archive's manifest.

    Raises ManifestError if it is missing, malformed, or points outside the archive.
    """
    where = f"{archive.source}!{MANIFEST_NAME}"
    entry = archive.entries.get(MANIFEST_NAME)
    if entry is None:
        raise ManifestError(f"the archive has no {MANIFEST_NAME}", where=archive.source, hint=_REBUILD)
    if entry.size > MAX_BYTES:
        raise ManifestError(f"the manifest has {entry.size} bytes; {MAX_BYTES} is the most", where=where)
    with archive.open(MANIFEST_NAME) as file:
        manifest = Manifest.from_json(file.read(MAX_BYTES + 1), where=where)
    for key, name in pointers(manifest).items():
        _check_inside(key, name, where)
    return manifest


def require_files(archive: Archive, manifest: Manifest) -> None:
    """Raise ManifestError if the manifest names a file that is not in the archive.

    The server loads such an archive all the same, if its handler never opens the file: so running one does not ask.
    """
    where = f"{archive.source}!{MANIFEST_NAME}"
    for key, name in pointers(manifest).items():
        if name not in archive.entries:
            message = f"model.{key} points at {quoted(name)}, which is not in the archive"
            raise ManifestError(message, where=f"{where}: model.{key}", hint=_REBUILD)


def pointers(manifest: Manifest) -> dict[str, str]:
    """Return the files a manifest points at, by their keys; a handler that is no `.py` file is not one of them.

    Of a handler's path the server imports the base name, wherever it says the file is (contract §2).
    """
    model = manifest.model
    handler = HandlerName.parse(model.handler)
    named = {
        "serializedFile": model.serialized_file,
        "modelFile": model.model_file,
        "handler": handler.base if handler.path.endswith(".py") else None,
        "requirementsFile": model.requirements_file,
        "configFile": model.config_file,
    }
    return {key: name for key, name in named.items() if name}


def _check_inside(key: str, name: str, where: str) -> None:
    try:
        check_member_name(name)
    except UnsafeArchiveError:
        raise ManifestError(
            f"model.{key} points outside the archive: {quoted(name)}", where=f"{where}: model.{key}", hint=_REBUILD
        ) from None
