"""Find the text of a torch.export program that torch turns into code, and the members that it unpickles.

torch gives `expr_str` to `sympy.sympify`, which evaluates it as Python, and pastes guards, names and some strings into
Python source that it executes. So every key of the JSON must be known (torch also refuses others), and every text must
have the form that its key requires: a program with any other text is not recognized, or dangerous.
"""

import ast
import re
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import islice
from typing import BinaryIO

import msgspec
from msgspec import Struct

from marpack.archive.zip_format import STORED, NotZipError, ZipEntry, open_entry
from marpack.weights.contents import TorchZip
from marpack.weights.pickle import OpcodeBudget, PickledCall, PickledDict

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

# The keys of torch/_export/serde/schema.py, by their values; those of texts are in `_text_problems`.
_NUMBERS = frozenset(
    """
    as_bool as_bools as_int as_ints as_int_lists as_layout as_memory_format as_none as_scalar_type dtype index
    is_hop_single_tensor_return is_param is_single_tensor_return kind layout major max_val min_val minor persistent
    requires_grad use_pickle
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
_FLOATS = frozenset({"as_float", "as_floats", "as_float_lists", "real", "imag"})
_NUMERIC = _NUMBERS | _FLOATS
_OBJECTS = frozenset(
    """
    arg as_complex as_custom_obj as_device as_expr as_graph as_nested_tensors as_optional_tensor as_optional_tensors
    as_sym_bool as_sym_bools as_sym_float as_sym_floats as_sym_int as_sym_ints as_tensor as_tensors buffer
    buffer_mutation constant_input custom_obj device gradient_to_parameter gradient_to_user_input graph graph_module
    hint input_specs inputs loss_output module_call_graph nodes output_specs outputs parameter parameter_mutation
    schema_version signature sizes storage_offset strides tensor_constant tensor_meta token user_input
    user_input_mutation user_output value
    """.split()  # noqa: SIM905 - as above
)
_MAPS = {  # objects with any names as keys, and a key whose values theirs are like
    **dict.fromkeys(("sym_bool_values", "sym_float_values", "sym_int_values", "tensor_values"), "arg"),
    **dict.fromkeys(("as_string_to_argument", "custom_obj_values", "treespec_namedtuple_fields"), "arg"),
    **dict.fromkeys(("config", "range_constraints"), "arg"),
    "metadata": "torch_version",
    "opset_version": "major",
}
# Containers that torch rebuilds from a description without importing anything.
_CONTAINERS = frozenset(
    "builtins.tuple builtins.list builtins.dict collections.OrderedDict collections.deque".split()  # noqa: SIM905
)

# The grammars of symbolic sizes and guards.
_MAX_LENGTH = 20_000  # characters
_MAX_DEPTH = 100  # brackets within brackets
_MAX_NODES = 20_000  # of the syntax tree
_MAX_INTEGER = 1 << 64
_MAX_EXPONENT = 64
_MAX_POWERS = 3  # powers within the bases of powers
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_BARE_SYMBOL = re.compile(r"[a-z]{1,8}[0-9]{1,9}")  # s0, u1, zuf0: no name of Python's or sympy's that can run code
_FLOAT = re.compile(r"-?[0-9]{1,400}(\.[0-9]{0,400})?(e[+-]?[0-9]{1,3})?")
_CONSTANTS = frozenset({"True", "False", "true", "false", "oo", "int_oo", "nan", "inf"})
_ASSUMPTIONS = frozenset(
    "integer positive negative nonnegative nonpositive nonzero zero real finite commutative".split()  # noqa: SIM905
)
_PRECISION = frozenset({"precision", "dps"})
_POWERS = frozenset({"Pow", "PowByNatural", "FloatPow", "LShift"})
_FUNCTIONS = _POWERS | frozenset(
    """
    Add Mul Max Min Abs Mod PythonMod FloorDiv CeilDiv CleanDiv IntTrueDiv FloatTrueDiv ModularIndexing RShift
    floor ceiling sqrt FloorToInt CeilToInt TruncToInt TruncToFloat RoundToInt RoundDecimal ToFloat Identity Where
    IsNonOverlappingAndDenseIndicator Eq Ne Gt Ge Lt Le Equality Unequality GreaterThan LessThan StrictGreaterThan
    StrictLessThan And Or Not Xor ITE Piecewise ExprCondPair BitwiseFn_bitwise_and BitwiseFn_bitwise_or
    BitwiseFn_bitwise_xor OpaqueUnaryFn_sqrt OpaqueUnaryFn_cos OpaqueUnaryFn_cosh OpaqueUnaryFn_sin OpaqueUnaryFn_sinh
    OpaqueUnaryFn_tan OpaqueUnaryFn_tanh OpaqueUnaryFn_asin OpaqueUnaryFn_acos OpaqueUnaryFn_atan OpaqueUnaryFn_exp
    OpaqueUnaryFn_log OpaqueUnaryFn_asinh OpaqueUnaryFn_log2
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
# What Python's own names mean in a guard, which is executed as Python.
_GUARD_FUNCTIONS = _FUNCTIONS | {"max", "min", "abs", "round", "int", "float"}
_MODULES = {
    "math": frozenset("inf nan ceil floor trunc sqrt isnan pow exp log log2 sin cos tan tanh".split()),  # noqa: SIM905
    "torch": frozenset("sym_float sym_int sym_max sym_min sym_not sym_ite sym_sum _sym_sqrt".split()),  # noqa: SIM905
}
_METHODS = frozenset({"size", "stride", "storage_offset", "dim", "numel"})
_ARITHMETIC = (
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.LShift, ast.RShift),
    *(ast.BitAnd, ast.BitOr),
)
_UNARY = (ast.UAdd, ast.USub, ast.Not, ast.Invert)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_BREAKING = re.compile(r"""["'\\]""")  # characters that end a string in source text, or escape its end

# Operators of the graph: those of torch's own dispatcher that compute, and functions that its verifier allows.
_OPERATOR = re.compile(r"torch\.ops\.(\w+)\.(\w+)(?:\.(\w+))?", re.ASCII)
_NAMESPACES = frozenset({"aten", "prims", "quantized", "_quantized", "quantized_decomposed"})
_FILE_OPERATORS = frozenset({"save", "from_file"})  # they write and map files
_HIGHER_ORDER = frozenset(
    """
    cond while_loop while_loop_stack_output map_impl scan associative_scan wrap_with_set_grad_enabled
    wrap_with_autocast strict_mode hints_wrapper out_dtype flex_attention auto_functionalized auto_functionalized_v2
    invoke_subgraph with_effects run_const_graph wrap
    """.split()  # noqa: SIM905 - as above
)
_LOCAL = {
    "_operator": frozenset(
        """
        getitem add mul sub truediv ge le gt lt eq ne floordiv mod and_ or_ not_ pow neg pos abs lshift rshift
        """.split()  # noqa: SIM905 - as above
    ),
    "math": frozenset("ceil floor trunc".split()),  # noqa: SIM905 - as above
    "torch": frozenset(
        """
        sym_int sym_float sym_ite sym_max sym_min sym_not sym_sqrt _sym_sqrt sym_sum _C._set_grad_enabled
        autograd.grad_mode.set_grad_enabled amp.autocast_mode._enter_autocast amp.autocast_mode._exit_autocast
        fx.experimental.symbolic_shapes.cast_symbool_to_symint_guardless
        _functorch.predispatch._add_batch_dim _functorch.predispatch._remove_batch_dim
        _functorch.predispatch._vmap_increment_nesting _functorch.predispatch._vmap_decrement_nesting
        _functorch.predispatch.lazy_load_decompositions _functorch.predispatch._make_dual
        _functorch.predispatch._unpack_dual _functorch.predispatch._jvp_increment_nesting
        _functorch.predispatch._jvp_decrement_nesting _functorch.predispatch._unwrap_for_grad
        _functorch.predispatch._enter_dual_level _functorch.predispatch._exit_dual_level
        """.split()  # noqa: SIM905 - as above
    ),
}


class OperatorKind(Enum):
    """The effect of naming an operator in a graph."""

    COMPUTES = "it computes"
    FOREIGN = "another library registers it"
    DANGEROUS = "it is not an operator of a graph"


class _GrammarError(Exception):
    """The text is outside the grammar; the message names the first such part."""


class Problem(Struct, frozen=True):
    """One place in a member that keeps the program from being safe."""

    member: str
    reason: str
    is_dangerous: bool  # otherwise, it is only not recognized


class ExportedScan(Struct, frozen=True):
    """How torch reads the members of a torch.export program."""

    expanded: int  # bytes that came out of compressed members
    problems: tuple[Problem, ...] = ()
    numbers: frozenset[ZipEntry] = frozenset()  # raw tensors
    pickles: frozenset[ZipEntry] = frozenset()  # torch unpickles them


def scan_exported(archive: TorchZip, budget: OpcodeBudget, limit: int = JSON_LIMIT) -> ExportedScan:
    """Read every description in a torch.export program; compressed members may expand to `limit` bytes."""
    members = _Members(archive, limit)
    problems: list[Problem] = []
    raw: dict[str, bool] = {}  # lower-case name → whether every config calls it raw
    for entry in archive.entries:
        name = entry.name.lower()
        if _PROGRAM.fullmatch(name):
            problems += members.check_json(entry, "graph_module")[1]
        elif match := _CONFIG.fullmatch(name):
            described, found = members.check_json(entry, "config")
            problems += found
            config = described.get("config")
            for payload in config.values() if isinstance(config, dict) else ():
                path = payload.get("path_name") if isinstance(payload, dict) else None
                if isinstance(path, str):
                    is_raw = _RAW[match[1]].fullmatch(path) is not None and payload.get("use_pickle") is False
                    place = f"{name.rpartition('/')[0]}/{path.lower()}"
                    raw[place] = is_raw and raw.get(place, True)
        elif _EXAMPLES.fullmatch(name) and entry.size:
            problems += members.check_examples(entry, budget)
    pickled = [entry for entry in archive.entries if _PICKLED.fullmatch(entry.name.lower())]
    numbers = frozenset(entry for entry in pickled if raw.get(entry.name.lower()))
    configs = frozenset(entry for entry in pickled if _CONFIG.fullmatch(entry.name.lower()))
    return ExportedScan(limit - members.left, tuple(problems), numbers, frozenset(pickled) - numbers - configs)


class _Members:
    """The members of one zip, read within a limit on the bytes that compressed ones expand to."""

    def __init__(self, archive: TorchZip, limit: int) -> None:
        self._archive = archive
        self.left = limit

    def check_json(self, entry: ZipEntry, needed: str) -> tuple[dict[str, object], list[Problem]]:
        """Return a description and its problems; `needed` is a key that every such description has."""
        found: dict[bool, dict[str, None]] = {True: {}, False: {}}  # unknown parts do not hide dangerous ones
        try:
            if entry.size > JSON_LIMIT:
                raise ValueError(f"it has over {JSON_LIMIT:,} bytes")
            with self._open(entry) as member:
                described = msgspec.json.decode(member.read(), type=dict[str, object])
            if needed not in described:
                raise ValueError(f"it has no {needed}")
            for reason, is_dangerous in _problems("arg", described, "", set()):
                if len(found[is_dangerous]) < _MAX_PROBLEMS:
                    found[is_dangerous][reason] = None
        except (ValueError, NotZipError, RecursionError) as error:
            found[False][f"marpack does not know this description: {error}"] = None
            described = {}
        return described, [Problem(entry.name, reason, kind) for kind, reasons in found.items() for reason in reasons]

    def check_examples(self, entry: ZipEntry, budget: OpcodeBudget) -> list[Problem]:
        """Return the problem of the keys in example inputs, if any: torch pastes them into the source of a guard."""
        try:
            with self._open(entry) as member:
                stream = TorchZip(member, budget).pickle("data.pkl")
                if stream.problem is None:
                    return list(islice(_key_problems(entry.name, stream.root), 1))
                reason = stream.problem
        except (NotZipError, KeyError) as error:
            reason = str(error)
        return [Problem(entry.name, f"its example inputs cannot be read: {reason}", False)]

    def _open(self, entry: ZipEntry) -> BinaryIO:
        if entry.encrypted:
            raise NotZipError("it is encrypted")
        if entry.method != STORED:
            if entry.size > self.left:
                raise NotZipError(f"it expands to {entry.size:,} bytes")
            self.left -= entry.size
        return open_entry(self._archive.file, entry)


def _key_problems(member: str, root: object) -> Iterator[Problem]:
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
                if not (is_plain_text(key) if isinstance(key, str) else key is None or isinstance(key, int | float)):
                    yield Problem(member, f"a key of its example inputs is {str(key)[:_MAX_SHOWN]!r}", True)
                waiting.append(item)
        if isinstance(value, PickledCall):
            waiting += [value.args, value.state, *value.values]
        elif isinstance(value, list | tuple):
            waiting += value


_Reason = tuple[str, bool]  # the problem, and whether it is dangerous


def _problems(key: str, value: object, owner: str, checked: set[tuple[str, str, str]]) -> Iterator[_Reason]:
    """Yield the unknown keys in a value, and the texts that do not have the form of their keys.

    `owner` is the key of the object around it; `checked` texts are skipped, as most are repeated many times.
    """
    match value:
        case list():
            for item in value:
                yield from _problems(key, item, owner, checked)
        case dict() if key in _MAPS:
            for item in value.values():
                yield from _problems(_MAPS[key], item, key, checked)
        case dict() if key in _OBJECTS:
            for name, item in value.items():
                yield from _problems(name, item, key, checked)
        case str() if (owner, key, value) not in checked:
            checked.add((owner, key, value))
            yield from _tree_problems(key, value) if key in _TREES else _text_problems(key, value, owner)
        case dict() | int() | float() if key not in _NUMERIC or isinstance(value, dict):
            yield f"marpack does not know the key {_shorten(key)}, or its value", False


def _text_problems(key: str, text: str, owner: str = "") -> Iterator[_Reason]:
    """Yield why a text does not have the form that its key requires."""
    if key in ("target", "as_operator"):
        kind = operator_kind(text)
        if kind is not OperatorKind.COMPUTES:
            yield f"{key} is {_shorten(text)}: {kind.value}", kind is OperatorKind.DANGEROUS
    elif key in _CHECKS:
        reason = _CHECKS[key](text)
        if reason:
            yield f"{key} is {_shorten(text)}: {reason}", True
    elif key in ("as_string", "as_strings"):
        if owner in ("inputs", "value") and not is_plain_text(text):  # an input, which is pasted into its guard
            yield f"{key} is {_shorten(text)}: {_NOT_PLAIN}", True
    elif key != "torch_version" and not (key in _FLOATS and text in ("Infinity", "-Infinity", "NaN")):
        yield f"{_shorten(key)} is {_shorten(text)}: marpack does not know this text", False


def symbolic_problem(text: str) -> str | None:
    """Return why a symbolic size is outside the grammar, or None if sympy can only compute with it."""
    if not text.isascii() or "#" in text or "\\" in text:
        return "it has a character that no number or symbol has"
    return _grammar_problem(text, _symbolic)


def guard_problem(text: str) -> str | None:
    """Return why a guard is outside the grammar, or None if running it can only compare sizes and numbers."""
    if '"' in text or "\\" in text or "#" in text:
        return "it has a character that ends the source text around it"
    return _grammar_problem(text, _guard)


def is_plain_text(text: str) -> bool:
    """Return whether a text can be pasted into a quoted string of source code without leaving it."""
    return text.isprintable() and not _BREAKING.search(text)


def operator_kind(text: str) -> OperatorKind:
    """Return what a graph's operator is, by the name that torch looks it up under."""
    if match := _OPERATOR.fullmatch(text):
        namespace, name, overload = match.groups()
        if namespace == "higher_order":
            return OperatorKind.COMPUTES if name in _HIGHER_ORDER and not overload else OperatorKind.FOREIGN
        if namespace == "aten" and name in _FILE_OPERATORS:
            return OperatorKind.DANGEROUS
        if overload is None:  # a packet, or an attribute of torch.ops itself, such as load_library
            return OperatorKind.DANGEROUS
        return OperatorKind.COMPUTES if namespace in _NAMESPACES else OperatorKind.FOREIGN
    module, _, name = text.partition(".")
    return OperatorKind.COMPUTES if name in _LOCAL.get(module, ()) else OperatorKind.DANGEROUS


def _grammar_problem(text: str, check: Callable[[ast.expr, int], None]) -> str | None:
    if not text.isprintable():
        return "it has control characters"
    depth = deepest = 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        deepest = max(deepest, depth)
    if len(text) > _MAX_LENGTH or deepest > _MAX_DEPTH:
        return f"it is longer than {_MAX_LENGTH:,} characters, or nested deeper than {_MAX_DEPTH} brackets"
    try:
        tree = ast.parse(text, mode="eval")
        if sum(1 for _ in ast.walk(tree)) > _MAX_NODES:
            return f"it has over {_MAX_NODES:,} parts"
        check(tree.body, 0)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "it is not an expression"
    except _GrammarError as error:
        return str(error)
    return None


def _symbolic(node: ast.expr, powers: int) -> None:
    """Accept sums of symbols and numbers. Raises _GrammarError."""
    match node:
        case ast.Name(id=name) if name in _CONSTANTS or _BARE_SYMBOL.fullmatch(name):
            return
        case ast.Call(func=ast.Name(id="Symbol" | "Dummy"), args=[ast.Constant(value=str(name))], keywords=keywords):
            if not _SYMBOL.fullmatch(name) or not all(_is_option(each, bool, _ASSUMPTIONS) for each in keywords):
                raise _GrammarError(f"it names a symbol {name[:40]!r}")
        case ast.Call(func=ast.Name(id="Float"), args=[ast.Constant(value=str(digits))], keywords=keywords):
            if not _FLOAT.fullmatch(digits) or not all(_is_option(each, int, _PRECISION) for each in keywords):
                raise _GrammarError(f"it makes a number of {digits[:40]!r}")
        case ast.Call(func=ast.Name(id="Integer" | "Rational" | "Float"), args=args, keywords=[]):
            for each in args:
                _number(each)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            _called(name, args, powers, _symbolic)
        case _:
            _operation(node, powers, _symbolic)


def _guard(node: ast.expr, powers: int) -> None:
    """Accept comparisons of the sizes of inputs. Raises _GrammarError."""
    match node:
        case ast.Name(id=name) if name in _CONSTANTS:
            return
        case ast.Constant(value=str(word)) if is_plain_text(word):
            return
        case ast.Attribute(value=ast.Name(id=module), attr=name) if name in _MODULES.get(module, ()):
            return
        case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name), args=args, keywords=[]) if (
            name in _MODULES.get(module, ())
        ):
            _called(name, args, powers, _guard)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _GUARD_FUNCTIONS:
            _called(name, args, powers, _guard)
        case ast.Subscript() | ast.Attribute() | ast.Call():
            _input(node)
        case ast.BoolOp() | ast.IfExp():
            for each in ast.iter_child_nodes(node):
                if isinstance(each, ast.expr):
                    _guard(each, powers)
        case _:
            _operation(node, powers, _guard)


def _input(node: ast.expr) -> None:
    """Accept `L['x']['key'][0].name.size()[1]`: an input, or one of its sizes. Raises _GrammarError."""
    while True:
        match node:
            case ast.Name(id="L"):
                return
            case ast.Subscript(value=value, slice=ast.Constant(value=str(key))) if is_plain_text(key):
                node = value
            case ast.Subscript(value=value, slice=ast.Constant(value=index)) if type(index) is int:
                node = value
            case ast.Call(func=ast.Attribute(value=value, attr=method), args=[], keywords=[]) if method in _METHODS:
                node = value
            case ast.Attribute(value=value, attr=name) if not name.startswith("_"):
                node = value
            case _:
                raise _GrammarError(f"it has {_shorten(ast.unparse(node))}")


def _operation(node: ast.expr, powers: int, inner: Callable[[ast.expr, int], None]) -> None:
    """Accept numbers, arithmetic and comparisons. Raises _GrammarError."""
    match node:
        case ast.Constant():
            _number(node)
        case ast.UnaryOp(op=op, operand=operand) if isinstance(op, _UNARY):
            inner(operand, powers)
        case ast.BinOp(left=left, op=ast.Pow() | ast.LShift(), right=right):
            _called("Pow", [left, right], powers, inner)
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _ARITHMETIC):
            inner(left, powers)
            inner(right, powers)
        case ast.Compare(left=left, ops=ops, comparators=others) if all(isinstance(op, _COMPARISONS) for op in ops):
            for each in (left, *others):
                inner(each, powers)
        case _:
            raise _GrammarError(f"it has {_shorten(ast.unparse(node))}")


def _called(name: str, args: list[ast.expr], powers: int, inner: Callable[[ast.expr, int], None]) -> None:
    """Accept a call's arguments; a power's exponent is small or a symbol, as numbers are multiplied out at once."""
    if name not in _POWERS:
        for each in args:
            inner(each, powers)
        return
    if len(args) != 2 or powers >= _MAX_POWERS:
        raise _GrammarError("it has a power of powers")
    base, exponent = args
    inner(base, powers + 1)
    inner(exponent, powers + 1)
    for part in ast.walk(exponent):
        match part:
            case ast.BinOp() | ast.Compare() | ast.BoolOp():
                raise _GrammarError("it has an exponent that is computed")
            case ast.Call(func=ast.Name(id=function)) if function in _FUNCTIONS - {"ToFloat", "Identity"}:
                raise _GrammarError("it has an exponent that is computed")
            case ast.Constant(value=int() | float() as number) if abs(number) > _MAX_EXPONENT:
                raise _GrammarError(f"it has an exponent beyond {_MAX_EXPONENT}")
            case ast.Constant(value=str(digits)) if _FLOAT.fullmatch(digits) and abs(float(digits)) > _MAX_EXPONENT:
                raise _GrammarError(f"it has an exponent beyond {_MAX_EXPONENT}")


def _number(node: ast.expr) -> None:
    value = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
    if not isinstance(value, ast.Constant) or not isinstance(value.value, int | float):  # bool is an int
        raise _GrammarError(f"it has {_shorten(ast.unparse(node))} in place of a number")
    if isinstance(value.value, int) and value.value > _MAX_INTEGER:
        raise _GrammarError("it has a number beyond 64 bits")


def _is_option(keyword: ast.keyword, kind: type[bool] | type[int], names: frozenset[str]) -> bool:
    """Return whether a keyword is one of the names, with a constant of the type, an int of at most 1024."""
    value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
    return keyword.arg in names and type(value) is kind and value <= 1024


_TREES = frozenset({"in_spec", "out_spec"})
_NOT_PLAIN = "it has quotes, backslashes or control characters"
_CHECKS: dict[str, Callable[[str], str | None]] = {
    "expr_str": symbolic_problem,
    "guards_code": guard_problem,
    "path_name": lambda text: None if re.fullmatch(r"[\w.-]+", text, re.ASCII) else "it is outside its folder",
    # torch writes these into the source of `forward`.
    **dict.fromkeys(
        ("name", "as_name", "forward_arg_names", "field_names"),
        lambda text: None if not text or text.isidentifier() else "it is not an identifier",
    ),
    **dict.fromkeys(
        (
            *("parameter_name", "buffer_name", "tensor_constant_name", "custom_obj_name", "user_input_name"),
            *("class_fqn", "fqn", "type", "dialect", "verifiers"),
        ),
        lambda text: None if is_plain_text(text) else _NOT_PLAIN,
    ),
}


class _Tree(Struct, forbid_unknown_fields=True):
    """A node of `in_spec` and `out_spec`, which are JSON within the JSON."""

    type: str | None
    context: str | dict[str, object] | None
    children_spec: list["_Tree"]

    @property
    def keys(self) -> list[object] | None:
        """A container's keys; None for a context that is more than a list of plain values."""
        if self.context is None or not isinstance(self.context, str):
            return [] if self.context is None else None
        try:
            found = msgspec.json.decode(self.context, type=int | list[str | int | float | bool | None] | None)
        except ValueError:
            return None
        return found if isinstance(found, list) else []


def _tree_problems(key: str, text: str) -> Iterator[_Reason]:
    """Yield the containers that are not known, and keys that torch would import, or paste into source code."""
    try:
        version, root = msgspec.json.decode(text, type=tuple[int, _Tree])
    except (ValueError, RecursionError) as error:
        yield f"{key} is {_shorten(text)}: it is not a description of containers: {error}", False
        return
    if key == "in_spec" and len(root.children_spec) == 2:  # positional arguments, then those by name
        for name in root.children_spec[1].keys or ():
            yield from _text_problems("name", str(name))
    waiting = [root]
    while waiting:
        node = waiting.pop()
        waiting += node.children_spec
        if node.type is None:
            continue
        if node.type not in _CONTAINERS or version != 1:
            yield f"{key} has {_shorten(node.type)}: marpack does not know this container", False
        if node.keys is None:
            yield f"{key} has {_shorten(node.context)}: it is more than keys, and torch may import them", True
        for name in node.keys or ():
            if isinstance(name, str):
                yield from _text_problems("fqn", name)


def _shorten(value: object) -> str:
    text = str(value)
    return repr(text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…")
