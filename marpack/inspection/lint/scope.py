"""What running a body of Python would leave bound to which name, told from its syntax tree alone."""

import ast
from functools import reduce, singledispatchmethod

from msgspec import Struct

from marpack.errors import LimitExceededError
from marpack.inspection.syntax import walk

_MAX_WORK = 1_000_000  # names carried into branches; what hands have written stays far below


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
    """Return the names that a module's or a class's body leaves bound.

    Raises LimitExceededError or RecursionError for bodies that no hand has written.
    """
    runner = _Runner()
    runner.run(tree.body)
    names = dict(runner.names)
    far, dynamic = _far_reaching(tree)
    for name in far:
        known = names.get(name, Binding((), sure=False))
        names[name] = Binding((*known.values, Expression()), sure=known.sure, line=known.line)
    return Scope(names=names, stars=tuple(runner.stars), dynamic=dynamic or "__getattr__" in names)


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


def ends(statement: ast.stmt) -> bool:
    """Say whether nothing after this statement runs in its body."""
    if isinstance(statement, ast.Raise | ast.Return):
        return True
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="exit") | ast.Name(id="exit" | "quit"))):
            return True
    return False


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


def merge(one: Names, other: Names) -> Names:
    """Return the names after a fork: bound for certain only where both ways bind them."""
    merged = {}
    for name in one | other:
        first, second = one.get(name), other.get(name)
        known = first or second
        if known is None or first is second:  # the fork did not touch it
            merged[name] = one[name]
            continue
        values = [value for binding in (first, second) if binding for value in binding.values]
        sure = first is not None and second is not None and first.sure and second.sure
        merged[name] = Binding(tuple(dict.fromkeys(values)), sure=sure, line=known.line)
    return merged


class _Runner:
    """Runs statements in their order; branches that may or may not be taken leave their names unsure."""

    def __init__(self, names: Names | None = None) -> None:
        self.names: Names = dict(names or {})
        self.stars: list[Imported] = []
        self.work = [0]  # one count for all branches
        self.ended = False

    def run(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self._walrus(statement)
            self.step(statement)
            if ends(statement):
                self.ended = True
            if self.ended:
                return

    @singledispatchmethod
    def step(self, statement: ast.stmt) -> None:
        """Bind what one statement binds; most bind nothing."""

    @step.register
    def _(self, statement: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._bind(statement.name, Own(statement), statement.lineno)

    @step.register
    def _(self, statement: ast.Import) -> None:
        for alias in statement.names:
            top = alias.name.partition(".")[0]
            module = alias.name if alias.asname else top
            self._bind(alias.asname or top, Imported(module, line=statement.lineno), statement.lineno)

    @step.register
    def _(self, statement: ast.ImportFrom) -> None:
        for alias in statement.names:
            value = Imported(statement.module or "", alias.name, statement.level, statement.lineno)
            if alias.name == "*":
                self.stars.append(value)
            else:
                self._bind(alias.asname or alias.name, value, statement.lineno)

    @step.register
    def _(self, statement: ast.Assign) -> None:
        for target in statement.targets:
            self._assign(target, statement.value)

    @step.register
    def _(self, statement: ast.AnnAssign) -> None:
        if statement.value is not None:
            self._assign(statement.target, statement.value)

    @step.register
    def _(self, statement: ast.AugAssign) -> None:
        self._assign(statement.target, None)

    @step.register
    def _(self, statement: ast.Delete) -> None:
        for target in statement.targets:
            if isinstance(target, ast.Name):
                self.names.pop(target.id, None)

    @step.register
    def _(self, statement: ast.If) -> None:
        outcome = truth(statement.test)
        ways = [] if outcome is False else [self._branch(statement.body)]
        if outcome is not True:
            ways.append(self._branch(statement.orelse))
        self._join(ways)

    @step.register
    def _(self, statement: ast.For | ast.AsyncFor) -> None:
        self._assign(statement.target, None, sure=False)
        self._loop(statement)

    @step.register
    def _(self, statement: ast.While) -> None:
        self._loop(statement)

    @step.register
    def _(self, statement: ast.With | ast.AsyncWith) -> None:
        for item in statement.items:
            if item.optional_vars is not None:
                self._assign(item.optional_vars, None)
        self._join([self._branch(statement.body)])

    @step.register
    def _(self, statement: ast.Match) -> None:
        self._join([self._branch([]), *(self._branch(case.body) for case in statement.cases)])

    @step.register
    def _(self, statement: ast.Try | ast.TryStar) -> None:
        before = self.names
        body = self._branch(statement.body)
        midway = merge(before, body.names)
        if not body.ended:
            body = self._branch(statement.orelse, body.names)
        self._join([body, *(self._branch(handler.body, midway) for handler in statement.handlers)])
        if not self.ended:
            self._join([self._branch(statement.finalbody)])

    def _loop(self, statement: ast.For | ast.AsyncFor | ast.While) -> None:
        self._join([self._branch([]), self._branch(statement.body)])
        self._join([self._branch(statement.orelse)])

    def _branch(self, body: list[ast.stmt], start: Names | None = None) -> "_Runner":
        inner = _Runner(self.names if start is None else start)
        inner.stars, inner.work = self.stars, self.work
        self.work[0] += len(inner.names)
        if self.work[0] > _MAX_WORK:
            raise LimitExceededError("there are too many names in too many branches")
        inner.run(body)
        return inner

    def _join(self, branches: list["_Runner"]) -> None:
        """Go on with whatever the branches that reach their end leave."""
        open_ones = [branch.names for branch in branches if not branch.ended]
        if open_ones:
            self.names = reduce(merge, open_ones)
        else:
            self.ended = True

    def _bind(self, name: str, value: Value, line: int) -> None:
        self.names[name] = Binding((value,), line=line)

    def _assign(self, target: ast.expr, value: ast.expr | None, *, sure: bool = True) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = self._value(value, target.lineno, sure=sure)
            return
        for inner in walk(target):  # unpacking
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                self.names[inner.id] = Binding((Expression(),), sure=sure, line=inner.lineno)

    def _value(self, node: ast.expr | None, line: int, *, sure: bool) -> Binding:
        if isinstance(node, ast.Name) and node.id in self.names:
            known = self.names[node.id]
            return Binding(known.values, sure=known.sure and sure, line=line)
        return Binding((Own(node) if isinstance(node, ast.Lambda) else Expression(node),), sure=sure, line=line)

    def _walrus(self, statement: ast.stmt) -> None:
        part = getattr(statement, "test", None) or getattr(statement, "value", None)
        for node in walk(part) if isinstance(part, ast.expr) else ():
            if isinstance(node, ast.NamedExpr):
                self._assign(node.target, node.value)
