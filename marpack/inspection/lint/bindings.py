"""What running a body of Python would leave bound to which name, and how many classes of its own among these.

Decided from the syntax tree alone. What is bound in a branch (`if`, `try`, `with`, a loop, `match`) is unsure.
"""

import ast
from collections.abc import Iterable, Iterator

from msgspec import Struct

from marpack.inspection.lint.source import decorator_name, dotted_name, walk

# Decorators that return the class they are given, or one in its place.
_KEEPING = frozenset(
    {"dataclass", "total_ordering", "runtime_checkable", "final", "unique", "define", "frozen", "s", "attrs", "mutable"}
)
# Calls that make a class which belongs to the module that calls: name → arguments needed to make one.
_MAKERS = {
    "namedtuple": 2, "NamedTuple": 1, "TypedDict": 1, "Enum": 2, "IntEnum": 2, "StrEnum": 2, "Flag": 2, "IntFlag": 2,
    "type": 3,
}  # fmt: skip
_MAX_COPIED = 50  # values of a name; no hand has written more, and copying takes their square
_NO_CLASSES = frozenset({"NewType", "TypeVar", "ParamSpec", "TypeVarTuple"})


class Own(Struct, frozen=True):
    """A class or function that the body defines; equal only to itself."""

    node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

    def __hash__(self) -> int:
        return id(self.node)


class Imported(Struct, frozen=True):
    """What an import statement binds: a module (`name` is None), or a name of a module."""

    module: str
    name: str | None = None
    level: int = 0
    line: int = 0


class Expression(Struct, frozen=True):
    """The value of an expression that only running it would tell."""

    node: ast.expr | None = None

    def __hash__(self) -> int:
        return id(self.node)


Value = Own | Imported | Expression


class Binding(Struct, frozen=True):
    """Everything a name may stand for in the end, and whether it is bound for certain."""

    values: tuple[Value, ...]
    sure: bool = True
    line: int = 0

    @property
    def only(self) -> Value | None:
        """The one thing that the name stands for, if that is certain."""
        return self.values[0] if self.sure and len(self.values) == 1 else None


Names = dict[str, Binding]


class Scope(Struct, frozen=True, kw_only=True):
    """The names of a module or a class after its body has run."""

    names: Names
    stars: tuple[Imported, ...] = ()  # `from x import *`
    dynamic: bool = False  # names may come and go in ways that no tree shows


def scope_of(tree: ast.Module | ast.ClassDef) -> Scope:
    """Return the names that a module's or a class's body leaves bound; RecursionError if it is nested too deeply."""
    binder = _Binder()
    binder.run(tree.body, sure=True)
    far, dynamic = _far_reaching(tree)
    for name in far:
        binder.bind(name, (Expression(),), 0, sure=False)
    names = {
        name: Binding(tuple(values), binder.sure[name], binder.lines[name]) for name, values in binder.values.items()
    }
    return Scope(names=names, stars=tuple(binder.stars), dynamic=dynamic or "__getattr__" in names)


def truth(test: ast.expr) -> bool | None:
    """Tell how a condition turns out when a server imports the module; None if only running it would tell."""
    match test:
        case ast.Constant(value=value):
            return bool(value)
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return False
        case ast.Compare(left=ast.Name(id="__name__"), ops=[ast.Eq()], comparators=[ast.Constant(value="__main__")]):
            return False
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            inside = truth(inner)
            return None if inside is None else not inside
    return None


def branches(statement: ast.stmt) -> Iterator[tuple[list[ast.stmt], bool]]:
    """Yield the bodies inside a statement that may run, each with whether it certainly does."""
    outcome = truth(statement.test) if isinstance(statement, ast.If) else None
    if isinstance(statement, ast.If) and outcome is not None:
        yield (statement.body if outcome else statement.orelse), True
        return
    parts = [statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())]
    for part in parts:
        yield from ((getattr(part, field, []), False) for field in ("body", "orelse", "finalbody"))


def _far_reaching(tree: ast.Module | ast.ClassDef) -> tuple[set[str], bool]:
    """Return the names that functions bind in the module, and whether some are bound in ways that no tree shows."""
    if isinstance(tree, ast.ClassDef):
        return set(), False
    names: set[str] = set()
    dynamic = False
    for node in walk(tree):
        if isinstance(node, ast.Global):
            names.update(node.names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            dynamic = dynamic or _binds_unseen(node.func.id, node)
    return names, dynamic


def _binds_unseen(function: str, call: ast.Call) -> bool:
    """Tell `setattr(self, …)` and the like, which are everyday, from calls that may bind names of the module."""
    if function in {"setattr", "vars"}:
        return any(isinstance(node, ast.Name) and node.id == "sys" for node in walk(call))
    return function in {"globals", "exec"}


class _Binder:
    """Runs statements in their order; what a branch binds comes beside what the name stood for before."""

    def __init__(self) -> None:
        self.values: dict[str, dict[Value, None]] = {}
        self.sure: dict[str, bool] = {}
        self.lines: dict[str, int] = {}
        self.stars: list[Imported] = []

    def run(self, body: list[ast.stmt], *, sure: bool) -> None:
        for statement in body:
            self._step(statement, sure=sure)
            if _ends(statement):
                return

    def bind(self, name: str, values: Iterable[Value], line: int, *, sure: bool) -> None:
        """Bind a name, in the place of what it stood for or, unsure, beside it."""
        if sure or name not in self.values:
            self.values[name], self.lines[name] = {}, line
        self.values[name] |= dict.fromkeys(values)
        self.sure[name] = sure

    def _step(self, statement: ast.stmt, *, sure: bool) -> None:
        for target, value in _assignments(statement):
            self._assign(target, value, sure=sure and not isinstance(statement, ast.For | ast.AsyncFor))
        match statement:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                self.bind(statement.name, (Own(statement),), statement.lineno, sure=sure)
                return
            case ast.Import():
                for alias in statement.names:
                    top = alias.name.partition(".")[0]
                    module = Imported(alias.name if alias.asname else top, line=statement.lineno)
                    self.bind(alias.asname or top, (module,), statement.lineno, sure=sure)
            case ast.ImportFrom():
                self._import_from(statement, sure=sure)
            case ast.Delete(targets=targets):
                self._delete([target.id for target in targets if isinstance(target, ast.Name)], sure=sure)
        for body, certain in branches(statement):
            self.run(body, sure=sure and certain)

    def _import_from(self, statement: ast.ImportFrom, *, sure: bool) -> None:
        for alias in statement.names:
            value = Imported(statement.module or "", alias.name, statement.level, statement.lineno)
            if alias.name == "*":
                self.stars.append(value)
            else:
                self.bind(alias.asname or alias.name, (value,), statement.lineno, sure=sure)

    def _delete(self, names: list[str], *, sure: bool) -> None:
        for name in names:
            self.sure[name] = False
            if sure:
                self.values.pop(name, None)

    def _assign(self, target: ast.expr, value: ast.expr | None, *, sure: bool) -> None:
        if not isinstance(target, ast.Name):
            for inner in walk(target):  # unpacking
                if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                    self.bind(inner.id, (Expression(),), inner.lineno, sure=sure)
        elif isinstance(value, ast.Name) and 0 < len(self.values.get(value.id, ())) < _MAX_COPIED:
            self.bind(target.id, tuple(self.values[value.id]), target.lineno, sure=sure and self.sure[value.id])
        else:
            made = Own(value) if isinstance(value, ast.Lambda) else Expression(value)
            self.bind(target.id, (made,), target.lineno, sure=sure)


def _ends(statement: ast.stmt) -> bool:
    """Say whether nothing after this statement runs in its body."""
    match statement:
        case ast.Raise() | ast.Expr(value=ast.Call(func=ast.Attribute(attr="exit") | ast.Name(id="exit" | "quit"))):
            return True
    return False


def _assignments(statement: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Yield what one statement assigns to, and what: nothing, where only running it would tell."""
    match statement:
        case ast.Assign(targets=targets, value=value):
            yield from ((target, value) for target in targets)
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield target, value
        case ast.AugAssign(target=target) | ast.For(target=target) | ast.AsyncFor(target=target):
            yield target, None
        case ast.With(items=items) | ast.AsyncWith(items=items):
            yield from ((item.optional_vars, None) for item in items if item.optional_vars)
    part = getattr(statement, "test", None) or getattr(statement, "value", None)
    for node in walk(part) if isinstance(part, ast.expr) else ():
        if isinstance(node, ast.NamedExpr):
            yield node.target, node.value


class Count(Struct, frozen=True):
    """How many classes of its own a module has at least and at most, and which ones have a definition to be read.

    The server takes every name that stands for a class whose `__module__` is the module: a dataclass, an enum or an
    exception beside the handler counts, an alias counts again, an imported class does not.
    """

    low: int
    high: int
    certain: tuple[tuple[str, ast.ClassDef], ...]  # name, definition; bound for certain
    names: tuple[str, ...]  # of everything that is, or may be, a class

    @property
    def the_one(self) -> ast.ClassDef | None:
        """The class that the server takes, if there is exactly one for certain."""
        return self.certain[0][1] if self.low == self.high == len(self.certain) == 1 else None


def count(scope: Scope) -> Count:
    """Count a module's own classes."""
    makers = {name for name, one in scope.names.items() if isinstance(one.only, Own) and _makes_classes(one.only.node)}
    ranges = {name: _range(name, scope.names, makers) for name in sorted(scope.names)}
    sure = [(name, scope.names[name].only) for name, (low, _) in ranges.items() if low]
    return Count(
        sum(low for low, _ in ranges.values()),
        sum(high for _, high in ranges.values()) + scope.dynamic,
        tuple((name, one.node) for name, one in sure if isinstance(one, Own) and isinstance(one.node, ast.ClassDef)),
        tuple(name for name, (_, high) in ranges.items() if high),
    )


def odd_line(scope: Scope, counted: Count, method: str) -> int:
    """Return the line of the first class that should stand elsewhere: one without the right one's method."""
    right = {name for name, node in counted.certain if any(getattr(item, "name", "") == method for item in node.body)}
    lines = {name: scope.names[name].line for name in counted.names}
    odd = sorted(line for name, line in lines.items() if name not in right)
    return odd[0] if odd else sorted(lines.values())[1]


def _range(name: str, names: Names, makers: set[str]) -> tuple[int, int]:
    """Return how many classes of the module's own a name stands for at least and at most."""
    binding = names[name]
    ranges = [_classes(name, value, names, makers) for value in binding.values] or [(0, 0)]
    return min(low for low, _ in ranges) if binding.sure else 0, max(high for _, high in ranges)


def _classes(name: str, value: Value, names: Names, makers: set[str]) -> tuple[int, int]:
    looks_like_class = name[:1].isupper() and not name.isupper()
    match getattr(value, "node", None):
        case ast.ClassDef() as node:
            return _defined(node)
        case ast.Call() as node:
            return _called(node, names, makers, looks_like_class=looks_like_class)
        case ast.IfExp() | ast.BoolOp() | ast.NamedExpr():
            return 0, int(looks_like_class)
    return 0, 0


def _defined(node: ast.ClassDef) -> tuple[int, int]:
    targets = [target for inner in node.body if isinstance(inner, ast.Assign) for target in inner.targets]
    if any(isinstance(target, ast.Name) and target.id == "__module__" for target in targets):
        return 0, 1
    last = [(decorator_name(item) or "?").rpartition(".")[2] for item in node.decorator_list]
    return (1, 1) if all(name in _KEEPING for name in last) else (0, 1)


def _called(node: ast.Call, names: Names, makers: set[str], *, looks_like_class: bool) -> tuple[int, int]:
    dotted = dotted_name(node.func) or ""
    name = dotted.rpartition(".")[2]
    if name in _MAKERS:
        return int(len(node.args) + len(node.keywords) >= _MAKERS[name]), 1
    only = names[dotted].only if dotted in names else None
    instance = isinstance(only, Own) and isinstance(only.node, ast.ClassDef)
    return 0, int(dotted in makers or (looks_like_class and not instance and name not in _NO_CLASSES))


def _makes_classes(node: ast.AST) -> bool:
    """Say whether calling this may give a class of the module: a function with one inside, a metaclass."""
    if isinstance(node, ast.ClassDef):
        return any(dotted_name(base) == "type" for base in node.bases)
    return any(isinstance(item, ast.ClassDef) or _is_type_call(item) for item in walk(node))


def _is_type_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and dotted_name(node.func) == "type" and len(node.args) == 3
