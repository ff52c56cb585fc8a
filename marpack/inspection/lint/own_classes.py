"""A module's own classes: how many, and whether they need arguments.

The server takes every name of the module that stands for a class whose `__module__` is the module: a dataclass, an
enum or an exception beside the handler counts, an alias counts again, an imported class does not.
"""

import ast
from collections.abc import Iterator

from msgspec import Struct

from marpack.findings import Finding
from marpack.inspection.lint.classes import Library, LocalClass, PlainClass, ServerClass, UnknownClass
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.files import Module
from marpack.inspection.lint.scope import Expression, Names, Own, Value
from marpack.inspection.syntax import decorator_name, dotted_name, refusal, walk

# Decorators that return the class they are given, or one in its place.
_KEEPING = frozenset(
    {"dataclass", "total_ordering", "runtime_checkable", "final", "unique", "define", "frozen", "s", "attrs", "mutable"}
)
# Calls that make a class which belongs to the module that calls: name → arguments needed to make one.
_MAKERS = {
    "namedtuple": 2,
    "NamedTuple": 1,
    "TypedDict": 1,
    "Enum": 2,
    "IntEnum": 2,
    "StrEnum": 2,
    "Flag": 2,
    "IntFlag": 2,
    "type": 3,
}
ARGUMENTS = Code(
    "Handler",
    "class-needs-arguments",
    "The server constructs the handler's class, and the model's, without arguments; this one cannot do without.",
    "Give every parameter of `__init__` a default, or read it from the model config in `initialize`.",
)
ABSTRACT = Code(
    "Handler",
    "class-abstract",
    "The class leaves abstract methods open, so Python refuses to construct it.",
    "Define the methods, or drop @abstractmethod.",
)


class Count(Struct, frozen=True):
    """How many classes there are at least and at most, and which ones have a definition that can be read."""

    low: int
    high: int
    certain: tuple[tuple[str, ast.ClassDef], ...]  # name, definition; bound for certain
    names: tuple[str, ...]  # of everything that is, or may be, a class

    @property
    def the_one(self) -> ast.ClassDef | None:
        """The class that the server takes, if there is exactly one for certain."""
        return self.certain[0][1] if self.low == self.high == len(self.certain) == 1 else None


def count(module: Module) -> Count:
    """Count a module's own classes."""
    names = module.scope.names
    counter = _Counter(names)
    low, high = 0, 0
    certain, listed = [], []
    for name in sorted(names):
        minimum, maximum = counter.range_of(name)
        low, high = low + minimum, high + maximum
        if maximum:
            listed.append(name)
        only = names[name].only
        if minimum and isinstance(only, Own) and isinstance(only.node, ast.ClassDef):
            certain.append((name, only.node))
    return Count(low, high + (1 if module.scope.dynamic else 0), tuple(certain), tuple(listed))


def odd_line(module: Module, counted: Count, method: str) -> int:
    """Return the line of the first class that should stand elsewhere: one without the right one's method."""
    right = {name for name, node in counted.certain if any(getattr(item, "name", "") == method for item in node.body)}
    lines = {name: module.scope.names[name].line for name in counted.names}
    odd = sorted(line for name, line in lines.items() if name not in right)
    return odd[0] if odd else sorted(lines.values())[1]


class _Counter:
    """Counts, for each name, how many classes of the module's own it stands for at least and at most."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._makers: dict[Own, bool] = {}

    def range_of(self, name: str) -> tuple[int, int]:
        binding = self._names[name]
        ranges = [self._value(name, value) for value in binding.values] or [(0, 0)]
        low = min(minimum for minimum, _ in ranges) if binding.sure else 0
        return low, max(maximum for _, maximum in ranges)

    def _value(self, name: str, value: Value) -> tuple[int, int]:
        if isinstance(value, Own):
            return _definition_range(value.node) if isinstance(value.node, ast.ClassDef) else (0, 0)
        node = value.node if isinstance(value, Expression) else None
        looks_like_class = name[:1].isupper() and not name.isupper()
        if isinstance(node, ast.Call):
            return self._call(node, looks_like_class=looks_like_class)
        if isinstance(node, ast.Subscript):
            return (0, 1) if looks_like_class and self._is_lookup(node) else (0, 0)
        if isinstance(node, ast.IfExp | ast.BoolOp | ast.NamedExpr):
            return (0, 1) if self._mentions_class(node) else (0, 0)
        return 0, 0

    def _call(self, node: ast.Call, *, looks_like_class: bool) -> tuple[int, int]:
        dotted = dotted_name(node.func) or ""
        name = dotted.rpartition(".")[2]
        if name in _MAKERS:
            return (1, 1) if len(node.args) + len(node.keywords) >= _MAKERS[name] else (0, 1)
        if name in {"NewType", "TypeVar", "ParamSpec", "TypeVarTuple"}:
            return 0, 0
        only = self._names[dotted].only if dotted in self._names else None
        if isinstance(only, Own) and not (looks_like_class and self._mentions_class(node)):
            return (0, 1) if self._makes_classes(only) else (0, 0)
        return (0, 1) if looks_like_class else (0, 0)

    def _makes_classes(self, value: Own) -> bool:
        """Say whether calling this may give a class of the module: a function with one inside, a metaclass."""
        if value not in self._makers:
            node = value.node
            metaclass = isinstance(node, ast.ClassDef) and any(dotted_name(base) == "type" for base in node.bases)
            inner = () if isinstance(node, ast.ClassDef) else walk(node)
            self._makers[value] = metaclass or any(_makes_class(item) for item in inner)
        return self._makers[value]

    def _is_lookup(self, node: ast.Subscript) -> bool:
        """Tell `Net = CLASSES[name]`, which may be a class, from `Vector = list[float]`, which is none."""
        binding = self._names.get(dotted_name(node.value) or "")
        return binding is not None and any(isinstance(value, Expression) for value in binding.values)

    def _mentions_class(self, node: ast.expr) -> bool:
        """Say whether a class of the module's own takes part in an expression, other than being called."""
        called = {id(item.func) for item in walk(node) if isinstance(item, ast.Call)}
        names = (item.id for item in walk(node) if isinstance(item, ast.Name) and id(item) not in called)
        bindings = (self._names[name] for name in names if name in self._names)
        return any(_is_class(value) for binding in bindings for value in binding.values)


def _is_class(value: Value) -> bool:
    return isinstance(value, Own) and isinstance(value.node, ast.ClassDef)


def _makes_class(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "type" and len(node.args) == 3
    return isinstance(node, ast.ClassDef)


def _definition_range(node: ast.ClassDef) -> tuple[int, int]:
    targets = [target for inner in node.body if isinstance(inner, ast.Assign) for target in inner.targets]
    if any(isinstance(target, ast.Name) and target.id == "__module__" for target in targets):
        return 0, 1
    last = [(decorator_name(item) or "?").rpartition(".")[2] for item in node.decorator_list]
    return (1, 1) if all(name in _KEEPING for name in last) else (0, 1)


def check_constructing(library: Library, cls: LocalClass, role: str) -> Iterator[Finding]:
    """Yield why a class cannot be constructed without arguments.

    Args:
        library: Resolves the bases.
        cls: The class.
        role: What the class is for, for the message: "handler" or "model".
    """
    if cls.node.keywords:
        return  # a metaclass may do what it likes
    yield from _needs_arguments(library, cls, role)
    yield from _abstract(library, cls)


def _needs_arguments(library: Library, cls: LocalClass, role: str) -> Iterator[Finding]:
    place = cls.module.at(cls.node)
    needed = _fields(cls.node)
    if needed:
        listed = ", ".join(repr(name) for name in needed)
        yield ARGUMENTS.error(f"the {role} class {cls.node.name} cannot be made without its fields {listed}", place)
        return
    for name in ("__new__", "__init__"):
        found = library.find(cls, name)
        if found is None or found.function is None or not isinstance(found.owner, LocalClass):
            continue
        why = refusal(found.function, 0, method=True)
        if why:
            where = found.owner.module.at(found.function)
            yield ARGUMENTS.error(
                f"the {role} class {cls.node.name} is made without arguments, but {name} {why}", where
            )


def _fields(node: ast.ClassDef) -> list[str]:
    """Return the fields without defaults of a dataclass whose `__init__` Python writes."""
    decorators = [item for item in node.decorator_list if _last(item) == "dataclass"]
    own_init = any(isinstance(item, ast.FunctionDef) and item.name == "__init__" for item in node.body)
    if not decorators or own_init or any(isinstance(item, ast.Call) and item.keywords for item in decorators):
        return []
    return [
        item.target.id
        for item in node.body
        if isinstance(item, ast.AnnAssign)
        and isinstance(item.target, ast.Name)
        and item.value is None
        and not any(word in ast.unparse(item.annotation) for word in ("ClassVar", "KW_ONLY"))
    ]


def _abstract(library: Library, cls: LocalClass) -> Iterator[Finding]:
    order = library.order(cls)
    if any(isinstance(base, UnknownClass) for base in order) or not any(_is_abc(base) for base in order):
        return
    for base in order:
        for name, function in _abstract_methods(base):
            found = library.find(cls, name)
            if found is not None and found.owner == base and isinstance(base, LocalClass):
                message = f"{cls.node.name} leaves the abstract method {name} open, so it cannot be constructed"
                yield ABSTRACT.error(message, base.module.at(function))


def _is_abc(base: object) -> bool:
    return isinstance(base, ServerClass) or (isinstance(base, PlainClass) and base.dotted == "abc.ABC")


def _abstract_methods(base: object) -> Iterator[tuple[str, ast.AST]]:
    if not isinstance(base, LocalClass):
        return
    for name, binding in base.scope.names.items():
        only = binding.only
        if isinstance(only, Own) and any(_last(item) == "abstractmethod" for item in _decorators(only.node)):
            yield name, only.node


def _decorators(node: ast.AST) -> list[ast.expr]:
    found: list[ast.expr] = getattr(node, "decorator_list", [])
    return found


def _last(decorator: ast.expr) -> str:
    return (decorator_name(decorator) or "").rpartition(".")[2]
