"""What loading a torch.export program would run: text that torch turns into code, and members that it unpickles."""

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import BinaryIO, TypeVar

import msgspec
from msgspec import Struct

from marpack.archive.zip_format import STORED
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
from marpack.weights.torch_files import TorchZip
from marpack.weights.zip_entries import NotZipError, ZipEntry

T = TypeVar("T")
JSON_LIMIT = 64 * 1024 * 1024  # bytes of one description
_MAX_PROBLEMS = 10  # of one member and kind
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

    expanded: int  # bytes that came out of compressed members
    problems: tuple[Problem, ...] = ()
    numbers: frozenset[ZipEntry] = frozenset()  # raw tensors
    pickles: frozenset[ZipEntry] = frozenset()  # torch unpickles them


def scan_exported(archive: TorchZip, budget: OpcodeBudget, limit: int = JSON_LIMIT) -> ExportedScan:
    """Read every description in a torch.export program.

    Args:
        archive: A zip that torch.export.load takes for one.
        budget: Of the opcodes of its example inputs.
        limit: Bytes that compressed members may expand to.
    """
    members = _Members(archive, limit)
    problems: list[Problem] = []
    raw: dict[str, bool] = {}  # lower-case name → whether every config calls it raw
    for entry in archive.entries:
        name = entry.name.lower()
        if _PROGRAM.fullmatch(name):
            problems += _program(members, entry)
        elif match := _CONFIG.fullmatch(name):
            problems += _config(members, entry, match[1], raw)
        elif _EXAMPLES.fullmatch(name) and entry.size:
            problems += _examples(members, entry, budget)
    pickled = [entry for entry in archive.entries if _PICKLED.fullmatch(entry.name.lower())]
    numbers = frozenset(entry for entry in pickled if raw.get(entry.name.lower()))
    configs = frozenset(entry for entry in pickled if _CONFIG.fullmatch(entry.name.lower()))
    return ExportedScan(limit - members.left, tuple(problems), numbers, frozenset(pickled) - numbers - configs)


class _Members:
    """The members of one zip, opened within a bound on what compressed ones expand to."""

    def __init__(self, archive: TorchZip, limit: int) -> None:
        self._archive = archive
        self.left = limit

    def open(self, entry: ZipEntry) -> BinaryIO:
        """Open a member. Raises NotZipError."""
        if entry.encrypted:
            raise NotZipError("it is encrypted")
        if entry.method != STORED:
            if entry.size > self.left:
                raise NotZipError(f"it expands to {entry.size:,} bytes")
            self.left -= entry.size
        return self._archive.open_entry(entry)

    def decode(self, entry: ZipEntry, kind: type[T]) -> T:
        """Read a description. Raises ValueError, NotZipError."""
        if entry.size > JSON_LIMIT:
            raise ValueError(f"it has over {JSON_LIMIT:,} bytes")
        with self.open(entry) as member:
            data = member.read()  # to the size that the directory states
        return msgspec.json.decode(data, type=kind)


def _program(members: _Members, entry: ZipEntry) -> list[Problem]:
    walk = _Walk(entry.name)
    try:
        walk.visit(members.decode(entry, ExportedProgram), None)
    except (ValueError, NotZipError, RecursionError) as error:
        return [Problem(entry.name, f"marpack does not know this description of a program: {error}", False)]
    return walk.problems


def _config(members: _Members, entry: ZipEntry, folder: str, raw: dict[str, bool]) -> list[Problem]:
    walk = _Walk(entry.name)
    try:
        described = members.decode(entry, PayloadConfig)
    except (ValueError, NotZipError, RecursionError) as error:
        return [Problem(entry.name, f"marpack does not know this description of tensors: {error}", False)]
    walk.visit(described, None)
    base = entry.name.lower().rpartition("/")[0]
    for key, payload in described.config.items():
        path = payload.path_name
        is_raw = _RAW[folder].fullmatch(path) is not None and not payload.use_pickle
        raw[f"{base}/{path.lower()}"] = is_raw and raw.get(f"{base}/{path.lower()}", True)
        if re.fullmatch(r"[\w.-]+", path, re.ASCII) is None:
            walk.report(((None, "config"), key), path, "it is outside its folder", is_dangerous=True)
    return walk.problems


def _examples(members: _Members, entry: ZipEntry, budget: OpcodeBudget) -> list[Problem]:
    """Return the problems of the keys in example inputs: torch pastes them into the source of a guard."""
    try:
        with members.open(entry) as member:
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


_Place = tuple["_Place | None", str | int] | None  # a field of a field; spelt out only in messages


class _Walk:
    """All the texts of one description, each checked by what torch makes of its field."""

    def __init__(self, member: str) -> None:
        self._member = member
        self._accepted: set[tuple[str, str]] = set()  # fields and texts: most texts are repeated many times
        self._dangerous: list[Problem] = []
        self._unknown: list[Problem] = []

    @property
    def problems(self) -> list[Problem]:
        """The first of each kind; an unknown part does not hide a dangerous one."""
        return [*self._dangerous, *self._unknown]

    def report(self, place: _Place, text: str, reason: str, *, is_dangerous: bool) -> None:
        """Note a problem."""
        found = self._dangerous if is_dangerous else self._unknown
        if len(found) < _MAX_PROBLEMS:
            shown = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
            found.append(Problem(self._member, f"{_spelt(place)} is {shown!r}: {reason}", is_dangerous))

    def visit(self, value: object, place: _Place) -> None:
        """Check a value, and all that it holds."""
        if isinstance(value, Strict):
            self._visit_fields(value, place)
        elif isinstance(value, list):
            for number, item in enumerate(value):
                self.visit(item, (place, number))
        elif isinstance(value, dict):
            for key, item in value.items():
                self.visit(item, (place, key))

    def _visit_fields(self, value: Strict, place: _Place) -> None:
        if isinstance(value, Graph):
            for number, each in enumerate(value.inputs):
                self._check_input(each, ((place, "inputs"), number))
        elif isinstance(value, ConstantInput):
            self._check_input(value.value, (place, "value"))
        elif isinstance(value, ModuleCallSignature):
            self._check_tree(value.in_spec, (place, "in_spec"), is_input=True)
            self._check_tree(value.out_spec, (place, "out_spec"), is_input=False)
        for name in value.__struct_fields__:
            item = getattr(value, name)
            if item is None or isinstance(item, int | float):
                continue
            if name in _CHECKS or name in _OPERATORS:
                for text in item if isinstance(item, list) else (item,):
                    self._check(name, text, (place, name))
            elif not isinstance(item, str):
                self.visit(item, (place, name))

    def _check(self, name: str, text: str, place: _Place) -> None:
        """Check a text as one of a field."""
        if (name, text) in self._accepted:
            return
        if name in _OPERATORS:
            kind = operator_kind(text)
            reason = None if kind is OperatorKind.COMPUTES else str(kind.value)
            is_dangerous = kind is OperatorKind.DANGEROUS
        else:
            reason, is_dangerous = _CHECKS[name](text), True
        if reason is None:
            self._accepted.add((name, text))
        else:
            self.report(place, text, reason, is_dangerous=is_dangerous)

    def _check_input(self, value: Argument, place: _Place) -> None:
        """Check a text that is itself an input, which torch pastes into the guard that compares it."""
        for text in (value.as_string, *(value.as_strings or ())):
            if text is not None:
                self._check("fqn", text, place)

    def _check_tree(self, text: str, place: _Place, *, is_input: bool) -> None:
        try:
            version, root = msgspec.json.decode(text, type=tuple[int, TreeSpec])
        except ValueError as error:
            self.report(place, text, f"it is not a description of containers: {error}", is_dangerous=False)
            return
        if is_input and len(root.children_spec) == 2:  # positional arguments, then those by name
            for name in _context(root.children_spec[1]) or ():
                self._check("name", str(name), place)
        waiting = [root]
        while waiting:
            node = waiting.pop()
            waiting += node.children_spec
            if node.type is None:
                continue
            if node.type not in _CONTAINERS or version != 1:
                self.report(place, node.type, "marpack does not know this container", is_dangerous=False)
            names = _context(node)
            if names is None:
                self.report(
                    place, str(node.context), "it is more than keys, and torch may import them", is_dangerous=True
                )
            for name in names or ():
                if isinstance(name, str):
                    self._check("fqn", name, place)


def _spelt(place: _Place) -> str:
    """Return a place as a path: graph.nodes[3].target."""
    parts: list[str] = []
    while place is not None:
        place, name = place
        parts.append(f"[{name}]" if isinstance(name, int) else f".{name[:_MAX_SHOWN]}")
    return "".join(reversed(parts)).removeprefix(".")


def _context(node: TreeSpec) -> list[object] | None:
    """Return a container's keys; None for a context that is more than a list of plain values."""
    if node.context is None or not isinstance(node.context, str):
        return [] if node.context is None else None
    try:
        found = msgspec.json.decode(node.context, type=int | list[str | int | float | bool | None] | None)
    except ValueError:
        return None
    return found if isinstance(found, list) else []


def _identifier_problem(text: str) -> str | None:
    return None if not text or text.isidentifier() else "it is not an identifier"


def _plain_problem(text: str) -> str | None:
    return None if is_plain_text(text) else "it has quotes, backslashes or control characters"


_OPERATORS = ("target", "as_operator")
_CHECKS: dict[str, Callable[[str], str | None]] = {
    "expr_str": symbolic_problem,
    "guards_code": guard_problem,
    # torch writes these into the source of `forward`.
    **dict.fromkeys(("name", "as_name", "forward_arg_names", "field_names"), _identifier_problem),
    **dict.fromkeys(
        (
            *("parameter_name", "buffer_name", "tensor_constant_name", "custom_obj_name", "user_input_name"),
            *("class_fqn", "fqn", "type", "dialect", "verifiers"),
        ),
        _plain_problem,
    ),
}
