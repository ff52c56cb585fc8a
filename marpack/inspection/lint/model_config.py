"""The model config: read once, as the server's two readers would, and then judged key by key."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from marpack.archive.manifest import Manifest
from marpack.findings import Finding
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.files import Files
from marpack.inspection.lint.yaml_tree import MAX_YAML, Tree, Wrong, read_yaml

MANIFEST = "MAR-INF/MANIFEST.json: model.configFile"
_FRONTEND_CHARACTERS = 3 << 20  # more, and the frontend reads none of it
_FRONTEND_DEPTH = 50
_FRONTEND_ALIASES = 50  # of lists and mappings

MISSING = Code(
    "Model config",
    "config-missing",
    "The manifest's model config is not in the archive; every worker dies looking for it.",
    "Pack the file at the archive's root, or leave configFile out.",
)
ENCODING = Code(
    "Model config",
    "config-encoding",
    "The model config is not UTF-8, and the worker cannot decode it.",
    "Save the file as UTF-8.",
)
SYNTAX = Code(
    "Model config",
    "config-syntax",
    "The model config is not valid YAML; the frontend ignores it, and the worker dies.",
    "Mend the line; indent with spaces, never with tabs.",
)
TAG = Code(
    "Model config",
    "config-tag",
    "The model config holds a tag that makes an object; both of the server's readers refuse it, as they should.",
    "Write plain values, without '!' tags.",
)
BOMB = Code(
    "Model config",
    "config-bomb",
    "The model config is small to write and endless to expand (aliases of aliases); it can stall a worker.",
    "Write the values out.",
)
ROOT = Code(
    "Model config",
    "config-root",
    "The model config is empty, or no mapping of names to values; the server refuses to register the model.",
    "Write `key: value` lines, or leave configFile out.",
)
KEY = Code(
    "Model config",
    "config-key",
    "A key of the model config is not a string; the server refuses to register the model.",
    "Put the key in quotes.",
)
TWICE = Code(
    "Model config",
    "config-duplicate-key",
    "A key stands twice in the model config; the last one counts.",
    "Keep one of the two.",
)
TOO_MUCH = Code(
    "Model config",
    "config-beyond-frontend",
    "The model config is larger, deeper or fuller of aliases than the frontend reads; it ignores all of it silently.",
    "Shorten the config: at most 3 MiB, 50 levels, 50 aliases.",
)
NOT_LOOKED_INTO = Code(
    "Model config",
    "config-unchecked",
    "The model config is larger than any hand has written, and was not looked into.",
    "Move what is not the server's into a file of its own.",
)


class ModelConfig(Struct, frozen=True, kw_only=True):
    """What the model config says, and what was noticed in reading it."""

    member: str = ""
    values: dict[str, Any] = {}  # Any: whatever the YAML says
    lines: dict[tuple[Any, ...], int] = {}  # Any: keys of the YAML
    findings: tuple[Finding, ...] = ()

    def at(self, *path: str) -> str:
        """Return where a key stands: file:line."""
        line = self.lines.get(path)
        return f"{self.member}:{line}" if line else self.member

    @property
    def awaited(self) -> bool:
        """Whether the worker awaits what `handle` returns."""
        return self.values.get("asyncCommunication") is True

    @property
    def aot_compile(self) -> bool:
        """Whether the server loads .so weights."""
        pt2 = self.values.get("pt2")
        export = pt2.get("export") if isinstance(pt2, dict) else None
        return isinstance(export, dict) and bool(export.get("aot_compile") == True)  # noqa: E712 - as the server asks


def read_config(files: Files, manifest: Manifest) -> ModelConfig:
    """Read the model config that the manifest names."""
    name = manifest.model.config_file
    if name == "" or "configFile" in manifest.model.extra:
        message = "the manifest has a configFile without a name, and every worker looks for it all the same"
        return ModelConfig(findings=(MISSING.error(message, MANIFEST, "leave configFile out of the manifest"),))
    if name is None:
        return ModelConfig()
    if name not in files:
        return ModelConfig(findings=(MISSING.error(f"the model config '{name}' is not in the archive", MANIFEST),))
    data = files.read(name, MAX_YAML)
    if data is None:
        return ModelConfig(member=name)
    if len(data) > MAX_YAML:
        return ModelConfig(member=name, findings=(_too_large(files, name),))
    try:
        read = read_yaml(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        return ModelConfig(member=name, findings=(ENCODING.error("it is not UTF-8", f"{name}:{line}"),))
    return _judge(name, read)


def _too_large(files: Files, name: str) -> Finding:
    data = files.read(name, 4 * _FRONTEND_CHARACTERS) or b""
    if len(data.decode("utf-8", "replace")) > _FRONTEND_CHARACTERS:
        return TOO_MUCH.warning("it is larger than the frontend reads, which ignores it", name)
    return NOT_LOOKED_INTO.note(f"it is larger than {MAX_YAML >> 10} KiB, and was not looked into", name)


def _judge(name: str, read: Tree | Wrong) -> ModelConfig:
    if isinstance(read, Wrong):
        where = f"{name}:{read.line}" if read.line else name
        code = BOMB if read.bomb else TAG if read.tag else SYNTAX
        return ModelConfig(member=name, findings=(code.error(read.reason, where),))
    if not isinstance(read.value, dict):
        what = "empty" if read.value is None else f"a {type(read.value).__name__}, not a mapping"
        return ModelConfig(member=name, findings=(ROOT.error(f"it is {what}", name),))
    values = {key: value for key, value in read.value.items() if isinstance(key, str)}
    return ModelConfig(member=name, values=values, lines=read.lines, findings=tuple(_findings(name, read)))


def _findings(name: str, read: Tree) -> Iterator[Finding]:
    for key in read.value:
        if not isinstance(key, str):
            where = f"{name}:{read.lines.get((key,), 1)}"
            yield KEY.error(f"the key {str(key)[:40]!r} is a {type(key).__name__}, not a string", where)
    for key, line in read.twice[:20]:
        yield TWICE.warning(f"'{key}' is there twice, and only the last one counts", f"{name}:{line}")
    if read.depth > _FRONTEND_DEPTH or read.aliases > _FRONTEND_ALIASES:
        yield TOO_MUCH.warning("it is deeper, or fuller of aliases, than the frontend reads, which ignores it", name)
