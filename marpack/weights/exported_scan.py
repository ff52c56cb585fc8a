"""What loading a torch.export program would run: text that torch turns into code, and members that it unpickles."""

import re
from collections.abc import Iterator
from itertools import islice
from typing import TypeVar

import msgspec
from msgspec import Struct

from marpack.weights.expressions import OperatorKind, guard_problem, is_plain_text, operator_kind, symbolic_problem
from marpack.weights.pickle_machine import OpcodeBudget
from marpack.weights.pickle_stream import PickledCall, PickledDict
from marpack.weights.program_schema import (
    Argument,
    ConstantInput,
    ExportedProgram,
    Graph,
    ModuleCallSignature,
    PayloadConfig,
    Strict,
    TreeSpec,
)
from marpack.weights.torch_zip import TorchZip
from marpack.weights.zip_entries import NotZipError, ZipEntry

T = TypeVar("T")
JSON_LIMIT = 64 * 1024 * 1024  # bytes of one description
_MAX_PROBLEMS = 20  # of one member
_MAX_SHOWN = 80  # characters of a text in a message
_MAX_VALUES = 1_000_000  # of the example inputs
# torch looks members up without regard to case, under the folder of the first one.
_PROGRAM = re.compile(r"(?:[^/]*/models/.+|serialized_exported_program\.json)")
_CONFIG = re.compile(r"[^/]*/data/(weights|constants)/[^/]*_config\.json")
_EXAMPLES = re.compile(r"(?:[^/]*/data/sample_inputs/.+|serialized_example_inputs\.(?:pt|json))")
_PICKLED = re.compile(
    r"(?:[^/]*/data/(?:weights|constants|sample_inputs)/.+"
    r"|serialized_(?:state_dict|constants|example_inputs)\.(?:pt|json))"
)
_RAW = {"weights": re.compile(r"weight_\d+"), "constants": re.compile(r"tensor_\d+")}
# Containers that torch rebuilds from a description without importing anything.
_CONTAINERS = frozenset(
    "builtins.tuple builtins.list builtins.dict collections.OrderedDict collections.deque".split()  # noqa: SIM905
)


class Problem(Struct, frozen=True):
    """One place in a member that keeps the program from being safe."""

    member: str
    reason: str
    is_dangerous: bool  # otherwise, it is only not recognised


class ExportedScan(Struct, frozen=True):
    """What the members of a torch.export program are to torch."""

    problems: tuple[Problem, ...] = ()
    numbers: frozenset[ZipEntry] = frozenset()  # raw tensors
    pickles: frozenset[ZipEntry] = frozenset()  # torch unpickles them


def scan_exported(archive: TorchZip, budget: OpcodeBudget) -> ExportedScan:
    """Read every description in a torch.export program.

    Args:
        archive: A zip that torch.export.load takes for one.
        budget: Of the opcodes of its example inputs.
    """
    problems: list[Problem] = []
    raw: dict[str, bool] = {}  # lower-case name → whether every config calls it raw
    for entry in archive.entries:
        name = entry.name.lower()
        if _PROGRAM.fullmatch(name):
            problems += islice(_program(archive, entry), _MAX_PROBLEMS)
        elif match := _CONFIG.fullmatch(name):
            problems += islice(_config(archive, entry, match[1], raw), _MAX_PROBLEMS)
        elif _EXAMPLES.fullmatch(name) and entry.size:
            problems += _examples(archive, entry, budget)
    pickled = [entry for entry in archive.entries if _PICKLED.fullmatch(entry.name.lower())]
    numbers = frozenset(entry for entry in pickled if raw.get(entry.name.lower()))
    configs = frozenset(entry for entry in pickled if _CONFIG.fullmatch(entry.name.lower()))
    return ExportedScan(tuple(problems), numbers, frozenset(pickled) - numbers - configs)


def _decode(archive: TorchZip, entry: ZipEntry, kind: type[T]) -> T:
    """Read a description. Raises ValueError, NotZipError."""
    if entry.size > JSON_LIMIT:
        raise ValueError(f"it has over {JSON_LIMIT >> 20} MiB")
    if entry.encrypted:
        raise ValueError("it is encrypted")
    with archive.open_entry(entry) as member:
        data = member.read()  # to the size that the directory states
    return msgspec.json.decode(data, type=kind)


def _program(archive: TorchZip, entry: ZipEntry) -> Iterator[Problem]:
    try:
        program = _decode(archive, entry, ExportedProgram)
        yield from _Walk(entry.name).object(program, "")
    except (ValueError, NotZipError, RecursionError) as error:
        yield Problem(entry.name, f"marpack does not know this description of a program: {error}", False)


def _config(archive: TorchZip, entry: ZipEntry, folder: str, raw: dict[str, bool]) -> Iterator[Problem]:
    try:
        config = _decode(archive, entry, PayloadConfig).config
        yield from _Walk(entry.name).object(PayloadConfig(config), "")
    except (ValueError, NotZipError, RecursionError) as error:
        yield Problem(entry.name, f"marpack does not know this description of tensors: {error}", False)
        return
    base = entry.name.lower().rpartition("/")[0]
    for key, payload in config.items():
        path = payload.path_name
        is_raw = _RAW[folder].fullmatch(path) is not None and not payload.use_pickle
        raw[f"{base}/{path.lower()}"] = is_raw and raw.get(f"{base}/{path.lower()}", True)
        if re.fullmatch(r"[\w.-]+", path, re.ASCII) is None:
            yield Problem(entry.name, f"{key[:_MAX_SHOWN]!r} is outside its folder: {path[:_MAX_SHOWN]!r}", True)


def _examples(archive: TorchZip, entry: ZipEntry, budget: OpcodeBudget) -> list[Problem]:
    """Return what is wrong with the keys in example inputs: torch pastes them into the source of a guard."""
    try:
        with archive.open_entry(entry) as member:
            stream = TorchZip.read(member, budget).pickle("data.pkl")
            if stream.problem is None:
                return list(islice(_bad_keys(entry.name, stream.root), 1))
            reason = stream.problem
    except (NotZipError, KeyError) as error:
        reason = str(error)
    return [Problem(entry.name, f"its example inputs cannot be read: {reason}", False)]


def _bad_keys(member: str, root: object) -> Iterator[Problem]:
    """Yield each key that would end a string of source code, or that is more than a short text or a number."""
    seen: set[int] = set()
    waiting: list[object] = [root]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if len(seen) > _MAX_VALUES:
            yield Problem(member, f"it has over {_MAX_VALUES:,} example inputs", False)
            return
        if isinstance(value, PickledDict | PickledCall):
            for key, item in value.items:
                if not _is_plain_key(key):
                    yield Problem(member, f"a key of its example inputs is {str(key)[:_MAX_SHOWN]!r}", True)
                waiting.append(item)
        if isinstance(value, PickledCall):
            waiting += [value.args, value.state, *value.values]
        elif isinstance(value, list | tuple):
            waiting += value


def _is_plain_key(key: object) -> bool:
    return is_plain_text(key) if isinstance(key, str) else key is None or isinstance(key, int | float)


class _Walk:
    """All the texts of one description, each checked by what torch makes of its field."""

    def __init__(self, member: str) -> None:
        self._member = member

    def object(self, value: object, path: str) -> Iterator[Problem]:
        if isinstance(value, Strict):
            yield from self._fields(value, path)
        elif isinstance(value, list):
            for number, item in enumerate(value):
                yield from self.object(item, f"{path}[{number}]")
        elif isinstance(value, dict):
            for key, item in value.items():
                yield from self.object(item, f"{path}.{key[:_MAX_SHOWN]}")

    def _fields(self, value: Strict, path: str) -> Iterator[Problem]:
        if isinstance(value, Graph):
            for number, each in enumerate(value.inputs):
                yield from self._input(each, f"{path}.inputs[{number}]")
        elif isinstance(value, ConstantInput):
            yield from self._input(value.value, f"{path}.value")
        elif isinstance(value, ModuleCallSignature):
            yield from self._tree(value.in_spec, f"{path}.in_spec", is_input=True)
            yield from self._tree(value.out_spec, f"{path}.out_spec", is_input=False)
        for name in value.__struct_fields__:
            item, place = getattr(value, name), f"{path}.{name}".removeprefix(".")
            if item is None:
                continue
            if check := _TEXTS.get(name):
                texts = item if isinstance(item, list) else [item]
                yield from (found for each in texts for found in check(self, each, place))
            else:
                yield from self.object(item, place)

    def _dangerous(self, text: str, place: str, reason: str) -> Problem:
        shown = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
        return Problem(self._member, f"{place} is {shown!r}: {reason}", True)

    def _symbolic(self, text: str, place: str) -> Iterator[Problem]:
        if reason := symbolic_problem(text):
            yield self._dangerous(text, place, reason)

    def _guard(self, text: str, place: str) -> Iterator[Problem]:
        if reason := guard_problem(text):
            yield self._dangerous(text, place, reason)

    def _identifier(self, text: str, place: str) -> Iterator[Problem]:
        if text and not text.isidentifier():
            yield self._dangerous(text, place, "it is not an identifier")

    def _plain(self, text: str, place: str) -> Iterator[Problem]:
        if not is_plain_text(text):
            yield self._dangerous(text, place, "it has quotes, backslashes or control characters")

    def _operator(self, text: str, place: str) -> Iterator[Problem]:
        kind = operator_kind(text)
        if kind is OperatorKind.DANGEROUS:
            yield self._dangerous(text, place, kind.value)
        elif kind is OperatorKind.FOREIGN:
            yield Problem(
                self._member, f"{place} is {text[:_MAX_SHOWN]!r}, an operator that marpack does not know", False
            )

    def _input(self, value: Argument, place: str) -> Iterator[Problem]:
        """Check a text that is itself an input, which torch pastes into the guard that compares it."""
        for text in (value.as_string, *(value.as_strings or ())):
            if text is not None:
                yield from self._plain(text, place)

    def _tree(self, text: str, place: str, *, is_input: bool) -> Iterator[Problem]:
        try:
            version, root = msgspec.json.decode(text, type=tuple[int, TreeSpec])
        except ValueError as error:
            yield Problem(self._member, f"{place} is not a description of containers: {error}", False)
            return
        if is_input and len(root.children_spec) == 2:
            for name in _context(root.children_spec[1]) or ():
                yield from self._identifier(str(name), place)
        waiting = [root]
        while waiting:
            node = waiting.pop()
            waiting += node.children_spec
            if node.type is None:
                continue
            if node.type not in _CONTAINERS or version != 1:
                yield Problem(self._member, f"{place} has a container {node.type[:_MAX_SHOWN]!r}", False)
            names = _context(node)
            if names is None:
                shown = str(node.context)
                yield self._dangerous(shown, place, "it is more than keys, and torch may import what it names")
            for name in names or ():
                if isinstance(name, str):
                    yield from self._plain(name, place)


def _context(node: TreeSpec) -> list[object] | None:
    """Return a container's keys; None for a context that is more than a list of plain values."""
    if node.context is None or not isinstance(node.context, str):
        return [] if node.context is None else None
    try:
        found = msgspec.json.decode(node.context, type=int | list[str | int | float | bool | None] | None)
    except ValueError:
        return None
    return found if isinstance(found, list) else []


_TEXTS = {
    "expr_str": _Walk._symbolic,  # noqa: SLF001 - of this module
    "guards_code": _Walk._guard,  # noqa: SLF001
    "target": _Walk._operator,  # noqa: SLF001
    "as_operator": _Walk._operator,  # noqa: SLF001
    # torch writes these into the source of `forward`.
    **dict.fromkeys(("name", "as_name", "forward_arg_names", "field_names"), _Walk._identifier),  # noqa: SLF001
    **dict.fromkeys(
        (
            *("parameter_name", "buffer_name", "tensor_constant_name", "custom_obj_name", "user_input_name"),
            *("class_fqn", "fqn", "type", "dialect", "verifiers"),
        ),
        _Walk._plain,  # noqa: SLF001
    ),
}
