"""The `pt2` section of the model config, in whichever of its spellings (contract §6)."""

from collections.abc import Iterator
from typing import Any

from marpack.findings import Finding, Severity
from marpack.inspection.lint.codes import Code, suggestion
from marpack.inspection.lint.model_loading import LintContext
from marpack.protocol.targets import TargetDifference

SHAPE = Code(
    "pt2-shape",
    "The pt2 section is in none of its spellings, and BaseHandler's `initialize` fails on it.",
    "Write `pt2: {compile: {enable: true, backend: inductor}}`.",
)
BACKEND = Code(
    "pt2-backend",
    "The pt2 section names a backend that the server does not know; it runs the model uncompiled, without a word.",
    "Name a backend that the server knows: inductor, eager, aot_eager, onnxrt, openvino, tensorrt, ipex, hpu_backend.",
)
GONE = Code(
    "pt2-backend-gone",
    "The server knows the backend, but torch has dropped it; compiling fails and the model runs uncompiled.",
    "Name a backend that torch still has, such as inductor.",
)
NEEDS = Code(
    "pt2-backend-needs",
    "The backend comes with a package that a stock server does not have; without it the model runs uncompiled.",
    "List the package in requirements.txt, or use a server image that has it.",
)
OPTION = Code(
    "pt2-option",
    "torch.compile does not take an option as it is; compiling fails and the model runs uncompiled.",
    "Use fullgraph, dynamic, backend, mode, options or disable; and mode or options, not both.",
)
OFF = Code(
    "pt2-off",
    "The pt2 section is there, and compiles nothing.",
    "Write `enable: true`, or leave the section out.",
)

_GONE = frozenset({"nvfuser", "aot_nvfuser", "aot_cudagraphs", "ofi", "fx2trt", "torchxla_trace_once"})
_PACKAGES = {
    "onnxrt": "onnxscript, onnxruntime and an older torch",
    "ipex": "intel_extension_for_pytorch",
    "openvino": "openvino",
    "tensorrt": "torch_tensorrt",
    "hpu_backend": "habana_frameworks",
}
_OPTIONS: dict[str, type | tuple[type, ...]] = {
    "backend": str,
    "mode": (str, type(None)),
    "fullgraph": bool,
    "dynamic": (bool, type(None)),
    "options": (dict, type(None)),
    "disable": bool,
}
_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class CompileCheck:
    """The pt2 section of one model config."""

    def __init__(self, context: LintContext) -> None:
        self._config, loader = context.config, context.loader
        self._fails = loader.severity  # how much a failing `initialize` weighs
        better = context.target.has(TargetDifference.PT2_ERRORS) and not loader.own_way
        self._skips = Severity.ERROR if better else loader.warning  # how much it weighs to run uncompiled

    def check(self) -> Iterator[Finding]:
        """Yield why the section fails, or compiles nothing."""
        if "pt2" not in self._config.values:
            return
        section = self._config.values["pt2"]
        if isinstance(section, str):
            yield from self._word(section)
        elif not isinstance(section, dict):
            yield self._wrong(f"'pt2' is {_kind(section)}, neither a backend's name nor a mapping")
        elif "compile" in section:
            yield from self._compile(section["compile"])
        elif "export" in section:
            yield from self._export(section["export"])
        else:
            yield from self._options(section, ("pt2",))

    def _wrong(self, message: str, *path: str) -> Finding:
        return SHAPE.weigh(self._fails, message, self._config.at("pt2", *path))

    def _word(self, word: str) -> Iterator[Finding]:
        if "compile" in word:  # the server looks for the key in whatever there is, a string too
            yield self._wrong(f"'pt2: {word[:40]}' is taken for a section with a compile key")
        elif "export" in word:
            yield OFF.weigh(self._skips, f"'pt2: {word[:40]}' compiles nothing", self._config.at("pt2"))
        else:
            yield from self._backend(word, ("pt2",))

    def _compile(self, section: Any) -> Iterator[Finding]:  # Any: YAML's
        if not isinstance(section, dict):
            yield self._wrong(f"'pt2.compile' is {_kind(section)}, not a mapping", "compile")
        elif "enable" not in section:
            yield self._wrong("'pt2.compile' has no 'enable', which the server asks for first", "compile")
        elif section["enable"] != True:  # noqa: E712 - as the server asks
            severity = Severity.NOTE if section["enable"] is False else self._skips
            message = f"'pt2.compile.enable' is {section['enable']!r:.40}, so nothing is compiled"
            yield OFF.weigh(severity, message, self._config.at("pt2", "compile", "enable"))
        else:
            options = {key: value for key, value in section.items() if key != "enable"}
            yield from self._options(options, ("pt2", "compile"))

    def _export(self, section: Any) -> Iterator[Finding]:  # Any: YAML's
        if not isinstance(section, dict) or section.get("aot_compile") != True:  # noqa: E712 - as the server asks
            message = "'pt2.export' does not set 'aot_compile: true', and so does nothing"
            yield OFF.weigh(self._skips, message, self._config.at("pt2", "export"))

    def _options(self, options: dict[Any, Any], path: tuple[str, ...]) -> Iterator[Finding]:  # Any: YAML's
        for key, value in options.items():
            where = self._config.at(*path, key)
            if key not in _OPTIONS:
                hint = suggestion(str(key), _OPTIONS)
                yield OPTION.weigh(self._skips, f"torch.compile takes no '{str(key)[:40]}'", where, hint)
            elif not isinstance(value, _OPTIONS[key]):
                yield OPTION.weigh(self._skips, f"torch.compile's '{key}' cannot be {_kind(value)}", where)
        if options.get("mode") is not None and options.get("options") is not None:
            message = "torch.compile takes 'mode' or 'options', not both"
            yield OPTION.weigh(self._skips, message, self._config.at(*path, "options"))
        yield from self._mode_and_backend(options, path)

    def _mode_and_backend(self, options: dict[Any, Any], path: tuple[str, ...]) -> Iterator[Finding]:  # Any: YAML's
        backend, mode = options.get("backend"), options.get("mode")
        if isinstance(backend, str):
            yield from self._backend(backend, (*path, "backend"))
        if isinstance(mode, str) and mode not in _MODES and backend in (None, "inductor"):
            hint = suggestion(mode, _MODES)
            message = f"torch.compile has no mode '{mode[:40]}'"
            yield OPTION.weigh(self._skips, message, self._config.at(*path, "mode"), hint)

    def _backend(self, backend: str, path: tuple[str, ...]) -> Iterator[Finding]:
        from marpack.torchserve.entry_point import PT2Backend  # noqa: PLC0415 - few configs compile, and it takes logging

        where = self._config.at(*path)
        known = [member.value for member in PT2Backend]
        if backend not in known:
            hint = suggestion(backend, set(known) - _GONE)
            message = f"the server does not know the backend '{backend[:40]}', and runs the model uncompiled"
            yield BACKEND.weigh(self._skips, message, where, hint)
        elif backend in _GONE:
            yield GONE.weigh(self._skips, f"torch has dropped the backend '{backend}'", where)
        elif backend in _PACKAGES:
            yield NEEDS.note(f"the backend '{backend}' needs {_PACKAGES[backend]}", where)


def _kind(value: Any) -> str:  # Any: YAML's
    if value is None:
        return "empty"
    return {"dict": "a mapping", "list": "a list", "str": "a string"}.get(type(value).__name__, f"{value!r:.40}")
