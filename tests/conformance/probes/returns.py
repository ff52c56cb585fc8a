"""Returns → bodies: every type of an answer and of the whole return (contract §5)."""

from __future__ import annotations

from conformance.probe import Call, Probe, handler

_ELEMENTS = {
    "bytes": "b'\\x00\\xff'",
    "bytearray": "bytearray(b'a')",
    "str": "'caf\\u00e9\\n'",
    "str-empty": "''",
    "bytes-empty": "b''",
    "str-subclass": "type('S', (str,), {})('sub')",
    "bytes-subclass": "type('B', (bytes,), {})(b'sub')",
    "dict": "{'b': (1, 2), 'a': None, 'caf\\u00e9': True}",
    "dict-keys": "{1: 2, None: 3, True: 4, 1.5: 5}",
    "dict-tuple-key": "{(1, 2): 3}",
    "dict-empty": "{}",
    "list": "[[1, [2]], [], 'x']",
    "list-empty": "[]",
    "tuple": "(1, 'a')",
    "none": "None",
    "true": "True",
    "int": "10 ** 400",
    "float": "[0.1, 1e-7, 1e16, 1e22, -0.0, 3.0]",
    "nan": "float('nan')",
    "infinities": "[float('inf'), -float('inf')]",
    "set": "{1}",
    "bytes-inside": "[b'a']",
    "generator": "(i for i in range(3))",
    "range": "range(3)",
    "function": "len",
    "memoryview": "memoryview(b'abc')",
    "exception": "ValueError('x')",
    "surrogate-inside": "['\\ud800']",
    "ordered-dict": "__import__('collections').OrderedDict(b=1, a=2)",
    "default-dict": "__import__('collections').defaultdict(int, a=2)",
    "named-tuple": "__import__('collections').namedtuple('P', 'x y')(1, 2)",
    "deque": "__import__('collections').deque([1])",
    "datetime": "__import__('datetime').datetime(2025, 1, 1)",
    "decimal": "__import__('decimal').Decimal(1)",
    "path": "__import__('pathlib').Path('a')",
    "uuid": "__import__('uuid').UUID(int=0)",
    "enum": "__import__('enum').Enum('E', 'A').A",
    "int-enum": "__import__('enum').IntEnum('E', 'A').A",
    "str-enum": "__import__('enum').StrEnum('E', 'A').A",
    "numpy-array": "__import__('numpy').array([1])",
    "numpy-float64": "__import__('numpy').float64(1.5)",
    "numpy-float32": "__import__('numpy').float32(1.5)",
    "numpy-int64": "__import__('numpy').int64(1)",
    "numpy-bool": "__import__('numpy').bool_(True)",
    "numpy-str": "__import__('numpy').str_('s')",
    "numpy-inside": "[__import__('numpy').float64(0.1)]",
    "picture": "__import__('PIL.Image').Image.new('L', (1, 1))",
    "tensor": "__import__('torch').tensor([[1.5, 2.0]])",
    "tensor-int": "__import__('torch').tensor(7)",
    "tensor-view": "__import__('torch').arange(6.0).reshape(2, 3).T",
    "parameter": "__import__('torch').nn.Parameter(__import__('torch').zeros(2))",
    "tensor-inside": "[__import__('torch').tensor(1)]",
}

_WHOLES = {
    "none": "None",
    "str": "'a'",
    "dict": "{0: 'a'}",
    "tuple": "('a',)",
    "generator": "(i for i in 'a')",
    "empty": "[]",
    "too-many": "['a', 'b']",
    "list-subclass": "type('L', (list,), {})(['a'])",
    "user-list": "__import__('collections').UserList(['a'])",
    "tensor": "__import__('torch').zeros(1)",
    "array": "__import__('numpy').zeros(1)",
}

RETURNS = Probe(
    name="returns",
    files={"handler.py": handler("evaluate")},
    steps=(
        *(Call(f"element-{name}", f"answer = {source}") for name, source in _ELEMENTS.items()),
        *(Call(f"whole-{name}", f"answers = {source}") for name, source in _WHOLES.items()),
    ),
)

PROBES = (RETURNS,)
