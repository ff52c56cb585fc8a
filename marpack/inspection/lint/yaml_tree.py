"""YAML bytes → plain values with the lines of their keys, however hostile; no object is ever made of a tag."""

from typing import Any

from msgspec import Struct

MAX_YAML = 64 << 10  # bytes; the parser is Python's own, and slow: a second for these
_MAX_VALUES = 100_000  # after aliases are written out
_MAX_MERGED = 100_000  # keys carried by `<<`

_Loader = Any  # a SafeLoader, which is imported only where needed
_Node = Any  # a node of PyYAML's, whose stubs do not tell the kinds apart
_Value = Any  # whatever the YAML says
_Key = tuple[_Value, ...]  # the keys that lead to a value


class YamlProblem(Struct, frozen=True):
    """Why YAML cannot be read."""

    reason: str
    line: int | None = None
    tag: bool = False  # an object's tag, which a safe loader refuses
    bomb: bool = False  # small to write, endless to expand


class YamlTree(Struct, frozen=True, kw_only=True):
    """What YAML says."""

    value: _Value
    lines: dict[_Key, int] = {}  # path of keys → line
    duplicates: tuple[tuple[str, int], ...] = ()  # keys given more than once, and where
    depth: int = 0
    aliases: int = 0  # of lists and mappings


def read_yaml(text: str) -> YamlTree | YamlProblem:
    """Parse one YAML document as Python's safe loader would; never raises."""
    import yaml  # noqa: PLC0415 - archives without a config need not wait for it

    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        return YamlTree(value=None) if node is None else _Reader(loader).read(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = " ".join(filter(None, (error.context, error.problem)))
        is_tag = isinstance(error, yaml.constructor.ConstructorError) and "tag" in reason
        return YamlProblem(reason[:200], mark.line + 1 if mark else None, tag=is_tag)
    except yaml.YAMLError as error:
        return YamlProblem(str(error).splitlines()[0][:200])
    except RecursionError:
        return YamlProblem("it is nested too deeply")
    except (ValueError, OverflowError, TypeError) as error:  # an impossible date, an endless number, an unhashable key
        return YamlProblem(str(error).splitlines()[0][:200] or type(error).__name__)


class _Reader:
    """Makes plain values of nodes, each node once, however often it is referred to."""

    def __init__(self, loader: _Loader) -> None:
        self._loader = loader
        self._made: dict[int, _Value] = {}
        self._sizes: dict[int, int] = {}
        self._merged = 0
        self._aliases = 0
        self._depth = 0
        self._lines: dict[_Key, int] = {}
        self._twice: list[tuple[str, int]] = []

    def read(self, node: _Node) -> YamlTree | YamlProblem:
        value = self._make(node, (), 1)
        if self._sizes[id(node)] > _MAX_VALUES or self._merged > _MAX_MERGED:
            return YamlProblem(f"its aliases expand to more than {_MAX_VALUES} values", bomb=True)
        return YamlTree(
            value=value, lines=self._lines, duplicates=tuple(self._twice), depth=self._depth, aliases=self._aliases
        )

    def _make(self, node: _Node, path: _Key, depth: int) -> _Value:
        known = id(node) in self._made
        self._depth = max(self._depth, depth)
        if known or id(node) in self._sizes:  # made already, or being made: it holds itself
            self._aliases += node.id != "scalar"
            return self._made.get(id(node))
        self._sizes[id(node)] = 1
        value = self._scalar(node) if node.id == "scalar" else self._collection(node, path, depth)
        self._made[id(node)] = value
        return value

    def _scalar(self, node: _Node) -> _Value:
        return self._loader.construct_object(node)

    def _collection(self, node: _Node, path: _Key, depth: int) -> _Value:
        if node.tag not in self._loader.yaml_constructors:
            self._loader.construct_undefined(node)  # raises, as it does on the server
        if node.id == "mapping":
            return self._mapping(node, path, depth)
        values = [self._make(item, path, depth + 1) for item in node.value]
        self._grow(node, node.value)
        return values

    def _mapping(self, node: _Node, path: _Key, depth: int) -> dict[_Value, _Value]:
        own: dict[_Value, _Value] = {}
        merged: dict[_Value, _Value] = {}
        for key_node, value_node in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                self._merge(merged, self._make(value_node, path, depth + 1))
                continue
            key = self._key(key_node)
            if key in own:
                self._twice.append((str(key)[:60], key_node.start_mark.line + 1))
            self._lines[(*path, key)] = key_node.start_mark.line + 1
            own[key] = self._make(value_node, (*path, key) if depth < 4 else path, depth + 1)
        self._grow(node, [value for _, value in node.value])
        return {**merged, **own}

    def _key(self, node: _Node) -> _Value:
        if node.id != "scalar":
            raise ValueError("a list or a mapping stands as a key")
        return self._loader.construct_object(node)

    def _merge(self, into: dict[_Value, _Value], value: _Value) -> None:
        for part in value if isinstance(value, list) else [value]:
            if not isinstance(part, dict):
                raise TypeError("'<<' merges something that is no mapping")
            self._merged += len(part)
            if self._merged <= _MAX_MERGED:
                into.update({key: item for key, item in part.items() if key not in into})

    def _grow(self, node: _Node, inner: list[_Node]) -> None:
        """Count what a node would be with its aliases written out: numbers, however astronomical."""
        self._sizes[id(node)] = 1 + sum(self._sizes[id(item)] for item in inner)
