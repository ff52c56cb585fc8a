"""The text that torch.export.load turns into code: symbolic sizes, guards and operators, by strict grammars.

torch gives `expr_str` to `sympy.sympify`, which evaluates it as Python; it pastes guards, names and some strings into
Python source that it executes. A text that these grammars do not accept is never given to torch.
"""

import ast
import re
from collections.abc import Callable
from enum import Enum

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


def symbolic_problem(text: str) -> str | None:
    """Return why a symbolic size is outside the grammar, or None if sympy can only compute with it."""
    if not text.isascii() or "#" in text or "\\" in text:
        return "it has a character that no number or symbol has"
    return _problem(text, _symbolic)


def guard_problem(text: str) -> str | None:
    """Return why a guard is outside the grammar, or None if running it can only compare sizes and numbers."""
    if '"' in text or "\\" in text or "#" in text:
        return "it has a character that ends the source text around it"
    return _problem(text, _guard)


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


def _problem(text: str, check: Callable[[ast.expr, int], None]) -> str | None:
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
                raise _GrammarError(f"it has {_shown(node)}")


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
            raise _GrammarError(f"it has {_shown(node)}")


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
        raise _GrammarError(f"it has {_shown(node)} in place of a number")
    if isinstance(value.value, int) and value.value > _MAX_INTEGER:
        raise _GrammarError("it has a number beyond 64 bits")


def _is_option(keyword: ast.keyword, kind: type[bool] | type[int], names: frozenset[str]) -> bool:
    """Return whether a keyword is one of the names, with a constant of the type, an int of at most 1024."""
    value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
    return keyword.arg in names and type(value) is kind and value <= 1024


def _shown(node: ast.expr) -> str:
    """Return the part of an expression that the grammar does not have, for messages."""
    text = ast.unparse(node)
    return text if len(text) <= 60 else f"{text[:60]}…"
