"""What an archive declares: its manifest, its requirements and its model config (contract §6, §10)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeGuard

from msgspec import Struct

from marpack import finding_codes as codes
from marpack.archive.manifest import RUNTIMES, Manifest
from marpack.archive.protocol import MODEL_NAME
from marpack.archive.sagemaker import REQUIREMENTS
from marpack.errors import did_you_mean, nearest, shortened
from marpack.findings import Finding, Severity
from marpack.inspection.lint.source import Files
from marpack.inspection.requirements import MAX_REQUIREMENTS, Line, LineKind, beside, read_requirements
from marpack.torchserve.model_config import KEYS, find_program_option

if TYPE_CHECKING:
    from marpack.inspection.yaml_document import YamlDocument

_MANIFEST = "MAR-INF/MANIFEST.json"
_ENVELOPES = ("base", "body", "json", "kserve", "kservev2")
_FRONTEND_CHARACTERS = 3 << 20  # more, and the frontend reads none of it
_FRONTEND_DEPTH = 50
_FRONTEND_ALIASES = 50  # of lists and mappings
_MAX_INT = 2**31 - 1
_SHOWN_DUPLICATES = 20
WORKER_KEYS = frozenset(name for name, key in KEYS.items() if key.takes is object)
FRONTEND_KEYS = frozenset(name for name in KEYS if "." not in name) - WORKER_KEYS
_OTHER_DEVICES = ("neuron", "neuronx", "hpu", "xpu", "mps", "tpu")  # the frontend treats them as not set
_TYPES = {bool: "true or false", list: "a list of whole numbers", dict: "a mapping", str: "a string"}
# Backends of torch.compile that torch has dropped, and those that need a further package.
_GONE = frozenset({"nvfuser", "aot_nvfuser", "aot_cudagraphs", "ofi", "fx2trt", "torchxla_trace_once"})
_PACKAGES = {
    "onnxrt": "onnxscript, onnxruntime and an older torch",
    "ipex": "intel_extension_for_pytorch",
    "openvino": "openvino",
    "tensorrt": "torch_tensorrt",
    "hpu_backend": "habana_frameworks",
}
_OPTIONS = {"backend": str, "mode": str, "fullgraph": bool, "dynamic": bool, "options": dict, "disable": bool}
_NULLABLE = frozenset({"mode", "dynamic", "options"})
_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class ModelConfig(Struct, frozen=True, kw_only=True):
    """The model config's values, with the findings about its YAML."""

    member: str = ""
    values: dict[str, Any] = {}  # Any: the YAML's
    lines: dict[str, int] = {}  # dotted path of keys → line
    findings: tuple[Finding, ...] = ()

    def at(self, *path: object) -> str:
        """Return a key's place as file:line."""
        line = self.lines.get(".".join(map(str, path)))
        return f"{self.member}:{line}" if line else self.member

    @property
    def awaited(self) -> bool:
        """Whether the worker awaits the result of `handle`."""
        return self.values.get("asyncCommunication") is True

    @property
    def aot_compile(self) -> bool:
        """Whether the server loads .so weights."""
        pt2 = self.values.get("pt2")
        export = pt2.get("export") if isinstance(pt2, dict) else None
        return isinstance(export, dict) and bool(export.get("aot_compile") == True)  # noqa: E712 - as the server compares


def read_config(files: Files, manifest: Manifest) -> ModelConfig:
    """Read the model config that the manifest names."""
    name = manifest.model.config_file
    if name == "" or "configFile" in manifest.model.extra:
        return ModelConfig(findings=(codes.CONFIG_UNNAMED.at(f"{_MANIFEST}: model.configFile"),))
    if name is None:
        return ModelConfig()
    if name not in files:
        return ModelConfig(findings=(codes.CONFIG_MISSING.at(f"{_MANIFEST}: model.configFile", name=name),))
    from marpack.inspection.yaml_document import MAX_BYTES, read_yaml  # noqa: PLC0415 - most archives need no PyYAML

    data = files.read(name, MAX_BYTES)
    if data is None:
        return ModelConfig(member=name)
    if len(data) > MAX_BYTES:
        whole = files.read(name, 4 * _FRONTEND_CHARACTERS) or b""
        is_ignored = len(whole.decode("utf-8", "replace")) > _FRONTEND_CHARACTERS
        code = codes.CONFIG_TOO_LARGE if is_ignored else codes.CONFIG_UNCHECKED
        return ModelConfig(member=name, findings=(code.at(name, limit=MAX_BYTES >> 10),))
    try:
        read = read_yaml(data.decode("utf-8"), as_server=True)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        return ModelConfig(member=name, findings=(codes.CONFIG_ENCODING.at(f"{name}:{line}"),))
    values = read.value if isinstance(read.value, dict) else {}
    return ModelConfig(
        member=name,
        values={key: value for key, value in values.items() if isinstance(key, str)},
        lines=read.lines,
        findings=tuple(_check_document(name, read)),
    )


def _check_document(name: str, read: "YamlDocument") -> Iterator[Finding]:
    if problem := read.problem:
        is_tag, is_bomb = "constructor for the tag" in problem.reason, problem.fault == "excess"
        code = codes.CONFIG_BOMB if is_bomb else codes.CONFIG_TAG if is_tag else codes.CONFIG_SYNTAX
        where = f"{name}:{problem.line}" if problem.line and not is_bomb else name
        yield code.at(where, hint=problem.hint, reason=f"{problem.context} {problem.reason}".strip())
        return
    if not isinstance(read.value, dict):
        kind = "empty" if read.value is None else f"a {type(read.value).__name__}, not a mapping"
        yield codes.CONFIG_ROOT.at(name, kind=kind)
        return
    for key in read.value:
        if not isinstance(key, str):
            where = f"{name}:{read.lines.get(str(key), 1)}"
            yield codes.CONFIG_KEY.at(where, key=repr(str(key)[:40]), kind=type(key).__name__)
    for repeated in read.duplicates[:_SHOWN_DUPLICATES]:
        yield codes.CONFIG_DUPLICATE_KEY.at(f"{name}:{repeated.line}", key=repeated.name[:60])
    if read.depth > _FRONTEND_DEPTH or read.aliases > _FRONTEND_ALIASES:
        yield codes.CONFIG_TOO_DEEP.at(name)


# Keys


def check_keys(config: ModelConfig) -> Iterator[Finding]:
    """Yield the values that the server does not accept, and the misspelled keys."""
    values = config.values
    known = {_normalize(name): name for name in KEYS if "." not in name}
    for key, value in values.items():
        if key in KEYS:
            yield from _check_value(key, config.at(key), value)
        elif meant := known.get(_normalize(key)) or known.get(nearest(_normalize(key), known, 0.7) or ""):
            yield codes.CONFIG_UNKNOWN_KEY.at(config.at(key), hint=f"Did you mean {meant}?", key=key)
    minimum, maximum = values.get("minWorkers"), values.get("maxWorkers")
    if isinstance(minimum, int) and isinstance(maximum, int) and 0 < maximum < minimum:
        yield codes.CONFIG_WORKERS.at(config.at("minWorkers"), minimum=minimum, maximum=maximum)
    idle = values.get("sequenceMaxIdleMSec")
    if values.get("sequenceBatching") is True and (idle is None or not _is_whole(idle) or idle <= 0):
        yield codes.SEQUENCE_IDLE_TIME.at(config.at("sequenceBatching"))
    torchrun = values.get("torchrun")
    for key, value in torchrun.items() if isinstance(torchrun, dict) else ():
        name, where = f"torchrun.{key}", config.at("torchrun", key)
        if not isinstance(key, str):
            yield codes.CONFIG_TORCHRUN_KEY_TYPE.at(where, key=_describe(key))
        elif name in KEYS:
            yield from _check_value(name, where, value)
        else:
            meant = next((each for each in KEYS if _normalize(each) == _normalize(name)), "")
            hint = f"Did you mean {meant.removeprefix('torchrun.')}?" if meant else None
            yield codes.CONFIG_TORCHRUN_KEY.at(where, hint=hint, key=name)


def _check_value(name: str, where: str, value: object) -> Iterator[Finding]:
    wanted, shown = KEYS[name].takes, _describe(value)
    if isinstance(wanted, int):
        if not _is_whole(value) or value > _MAX_INT:
            yield codes.CONFIG_TYPE.at(where, key=name, value=shown, kind="a whole number")
        elif value < wanted:
            yield codes.CONFIG_MINIMUM.at(where, key=name, value=value, minimum=wanted)
    elif isinstance(wanted, tuple):
        words = ", ".join(wanted)
        if not isinstance(value, str):
            yield codes.CONFIG_TYPE.at(where, key=name, value=shown, kind=f"one of {words}")
        elif name == "deviceType" and value.lower() in _OTHER_DEVICES:
            yield codes.CONFIG_DEVICE.at(where, key=name, value=value, words=words)
        elif value.lower() not in wanted:
            hint = did_you_mean(value.lower(), wanted, 0.7)
            yield codes.CONFIG_RANGE.at(where, hint=hint, key=name, value=shown, words=words)
    elif not isinstance(value, wanted) or (
        wanted is list and isinstance(value, list) and not all(_is_whole(item) for item in value)
    ):
        yield codes.CONFIG_TYPE.at(where, key=name, value=shown, kind=_TYPES[wanted])


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _normalize(key: str) -> str:
    return key.replace("_", "").replace("-", "").lower()


def _describe(value: object) -> str:
    text = "a list" if isinstance(value, list) else "a mapping" if isinstance(value, dict) else repr(value)
    return shortened(text, 41)


# The pt2 section


def check_pt2(config: ModelConfig, failing: Severity, uncompiled: Severity) -> Iterator[Finding]:
    """Yield why the pt2 section fails `initialize` (severity `failing`), or compiles nothing (`uncompiled`)."""
    section, where = config.values.get("pt2"), config.at("pt2")
    if isinstance(section, str):
        if "compile" in section:  # the server looks for the key in a string too
            yield codes.PT2_WORD.at(where, severity=failing, word=section[:40])
        elif "export" in section:
            yield codes.PT2_OFF_WORD.at(where, severity=uncompiled, word=section[:40])
        else:
            yield from _check_backend(section, where, uncompiled)
    elif not isinstance(section, dict):
        if "pt2" in config.values:
            yield codes.PT2_SHAPE.at(where, severity=failing, kind=_kind(section))
    elif "compile" in section:
        yield from _check_compile(config, section["compile"], failing, uncompiled)
    elif "export" not in section:
        yield from _check_options(config, section, ("pt2",), uncompiled)
    elif not config.aot_compile:
        yield codes.PT2_OFF_EXPORT.at(config.at("pt2", "export"), severity=uncompiled)


def _check_compile(config: ModelConfig, section: Any, failing: Severity, uncompiled: Severity) -> Iterator[Finding]:
    # `section` is Any: the YAML's
    where = config.at("pt2", "compile")
    if not isinstance(section, dict):
        yield codes.PT2_COMPILE_SHAPE.at(where, severity=failing, kind=_kind(section))
    elif "enable" not in section:
        yield codes.PT2_NO_ENABLE.at(where, severity=failing)
    elif section["enable"] != True:  # noqa: E712 - as the server compares
        severity = Severity.NOTE if section["enable"] is False else uncompiled
        yield codes.PT2_OFF.at(
            config.at("pt2", "compile", "enable"), severity=severity, value=f"{section['enable']!r:.40}"
        )
    else:
        options = {key: value for key, value in section.items() if key != "enable"}
        yield from _check_options(config, options, ("pt2", "compile"), uncompiled)


def _check_options(
    config: ModelConfig,
    options: dict[Any, Any],  # Any: the YAML's
    path: tuple[str, ...],
    severity: Severity,
) -> Iterator[Finding]:
    for key, value in options.items():
        where = config.at(*path, key)
        if key not in _OPTIONS:
            hint = did_you_mean(str(key), _OPTIONS, 0.7)
            yield codes.PT2_OPTION.at(where, severity=severity, hint=hint, key=str(key)[:40])
        elif not (isinstance(value, _OPTIONS[key]) or (value is None and key in _NULLABLE)):
            hint = f"Set it to {_TYPES[_OPTIONS[key]]}."
            yield codes.PT2_OPTION_TYPE.at(where, severity=severity, hint=hint, key=key, kind=_kind(value))
    if (name := find_program_option(options)) is not None:
        where, kind = config.at(*path, "options", name), "a text that a compiler receives"
        yield codes.PT2_OPTION_TYPE.at(where, severity=Severity.ERROR, key=name[:40], kind=kind)
    backend, mode = options.get("backend"), options.get("mode")
    if mode is not None and options.get("options") is not None:
        yield codes.PT2_MODE_AND_OPTIONS.at(config.at(*path, "options"), severity=severity)
    if isinstance(backend, str):
        yield from _check_backend(backend, config.at(*path, "backend"), severity)
    if isinstance(mode, str) and mode not in _MODES and backend in (None, "inductor"):
        hint = did_you_mean(mode, _MODES, 0.7)
        yield codes.PT2_MODE.at(config.at(*path, "mode"), severity=severity, hint=hint, mode=mode[:40])


def _check_backend(backend: str, where: str, severity: Severity) -> Iterator[Finding]:
    from marpack.torchserve.entry_point import PT2Backend  # noqa: PLC0415 - few configs compile, and it takes logging

    known = [member.value for member in PT2Backend]
    if backend not in known:
        hint = did_you_mean(backend, set(known) - _GONE, 0.7)
        yield codes.PT2_BACKEND.at(where, severity=severity, hint=hint, backend=backend[:40])
    elif backend in _GONE:
        yield codes.PT2_BACKEND_GONE.at(where, severity=severity, backend=backend)
    elif backend in _PACKAGES:
        yield codes.PT2_BACKEND_NEEDS.at(where, backend=backend, packages=_PACKAGES[backend])


def _kind(value: Any) -> str:  # Any: the YAML's
    kinds = {"NoneType": "empty", "dict": "a mapping", "list": "a list", "str": "a string"}
    return kinds.get(type(value).__name__, f"{value!r:.40}")


# The manifest and the requirements


def check_manifest(manifest: Manifest) -> Iterator[Finding]:
    """Yield the manifest's values that the server refuses or ignores."""
    model, runtime, envelope = manifest.model, manifest.runtime, manifest.model.envelope
    if not MODEL_NAME.fullmatch(model.name):
        code = codes.MODEL_NAME_UNREACHABLE if "/" in model.name else codes.MODEL_NAME
        yield code.at(f"{_MANIFEST}: model.modelName", name=model.name[:40])
    if runtime not in (*RUNTIMES, "PYTHON", "PYTHON3"):
        hint = did_you_mean(runtime, RUNTIMES, 0.7)
        yield codes.RUNTIME_UNKNOWN.at(f"{_MANIFEST}: runtime", hint=hint, name=runtime[:40])
    if runtime == "LSP":
        yield codes.RUNTIME_LSP.at(f"{_MANIFEST}: runtime")
    if envelope in _ENVELOPES:
        yield codes.ENVELOPE_IGNORED.at(f"{_MANIFEST}: model.envelope", name=envelope)
    elif envelope:
        hint = did_you_mean(envelope, _ENVELOPES, 0.7)
        yield codes.ENVELOPE_UNKNOWN.at(f"{_MANIFEST}: model.envelope", hint=hint, name=envelope[:40])


class Requirements(Struct, frozen=True, kw_only=True):
    """The archive's requirements, with the findings about them."""

    file: str | None = None  # the one that the manifest names, if it is packed
    names: frozenset[str] = frozenset()  # distributions, canonical
    unnamed: bool = False  # some line may provide anything
    findings: tuple[Finding, ...] = ()


def read_required(files: Files, manifest: Manifest) -> Requirements:
    """Read the archive's requirements, the files that they include too."""
    first = manifest.model.requirements_file
    if not first:
        return Requirements()
    if first not in files:
        where = f"{_MANIFEST}: model.requirementsFile"
        return Requirements(findings=(codes.REQUIREMENTS_MISSING.at(where, name=first),))
    findings = [] if first == REQUIREMENTS else [codes.REQUIREMENTS_NEED_SETTING.at(first)]  # AWS's images need none

    def read(member: str) -> bytes | None:
        data = files.read(member, MAX_REQUIREMENTS) if member in files else None
        if data is None or len(data) <= MAX_REQUIREMENTS:
            return data
        findings.append(codes.REQUIREMENTS_TOO_LARGE.at(member, limit=MAX_REQUIREMENTS >> 20))
        return None

    lines = list(read_requirements(first, read))
    findings += [finding for member, line in lines for finding in _check_line(files, member, line)]
    installed = [line for _, line in lines if line.sort in (LineKind.REQUIREMENT, LineKind.PATH)]
    return Requirements(
        file=first,
        names=frozenset(line.name for _, line in lines if line.name),
        unnamed=any(line.name is None for line in installed),
        findings=tuple(findings),
    )


def _check_line(files: Files, member: str, line: Line) -> Iterator[Finding]:
    where, text = f"{member}:{line.number}", line.text[:60]
    folder = member if line.sort in (LineKind.INCLUDE, LineKind.CONSTRAINT) else ""  # pip runs in the model folder
    inner = line.text.removeprefix("./").rstrip("/")
    is_elsewhere = "://" in line.text or "${" in line.text
    is_packed = is_elsewhere or beside(folder, line.text) in files or inner in {"", "."} or files.is_folder(f"{inner}/")
    if line.sort is LineKind.WRONG:
        yield codes.REQUIREMENTS_LINE.at(where, text=text, reason=line.reason[:100])
    elif line.sort in (LineKind.INCLUDE, LineKind.CONSTRAINT) and not is_packed:
        yield codes.REQUIREMENTS_INCLUDE_MISSING.at(where, text=text)
    elif line.sort is LineKind.PATH and not is_packed:
        yield codes.REQUIREMENTS_PATH.at(where, text=text)
    elif (line.sort is LineKind.REQUIREMENT and line.name is None) or (line.sort is LineKind.INCLUDE and is_elsewhere):
        yield codes.REQUIREMENTS_UNNAMED.at(where, text=text)
