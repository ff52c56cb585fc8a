"""torch.export's programs and torch.package's archives: texts in them become code when they are loaded."""

import copy
import gzip
import io
import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from inspection.containers import zipped
from inspection.file_payloads import torched
from inspection.import_payloads import DAMAGE, HIDDEN
from inspection.loaders import Found, Payload, load_export, load_package, load_torch, torch_bytes, unzipped
from inspection.opcodes import CODE, EVIL, MKDIR, MODULE, push, ref

SYMBOL = "Symbol('s77', positive=True, integer=True)"
SIZE = {"as_expr": {"expr_str": SYMBOL, "hint": {"as_int": 6}}}


def tensor() -> dict[str, Any]:
    """Return the description of a float32 tensor with the first of its sizes unknown."""
    return {
        "dtype": 7, "sizes": [SIZE, {"as_int": 4}], "strides": [{"as_int": 4}, {"as_int": 1}], "layout": 7,
        "requires_grad": False, "device": {"type": "cpu", "index": None}, "storage_offset": {"as_int": 0},
    }  # fmt: skip


def node(name: str, target: str, output: dict[str, object], **inputs: object) -> dict[str, Any]:
    args = [{"name": key, "arg": value, "kind": 1} for key, value in inputs.items()]
    return {"name": name, "target": target, "inputs": args, "outputs": [output], "metadata": {}}


X, RELU, ROWS = {"as_tensor": {"name": "x"}}, {"as_tensor": {"name": "relu"}}, {"as_sym_int": {"as_name": "rows"}}
LEAF = {"type": None, "context": None, "children_spec": []}


def pair(first: object, second: object) -> dict[str, object]:
    """Return the description of a tuple, as torch's pytree writes it."""
    return {"type": "builtins.tuple", "context": "null", "children_spec": [first, second]}


ARGUMENTS = {**pair(LEAF, LEAF), "children_spec": [LEAF]}
KEYWORDS = {"type": "builtins.dict", "context": "[]", "children_spec": []}
PROGRAM: dict[str, Any] = {  # of `return relu(x), x.shape[0]`, as torch 2.13 writes it, without what it need not have
    "graph_module": {
        "graph": {
            "inputs": [X],
            "outputs": [RELU, ROWS],
            "nodes": [
                node("rows", "torch.ops.aten.sym_size.int", ROWS, self=X, dim={"as_int": 0}),
                node("relu", "torch.ops.aten.relu.default", RELU, self=X),
            ],
            "tensor_values": {"x": tensor(), "relu": tensor()},
            "sym_int_values": {"rows": SIZE},
            "sym_bool_values": {},
            "sym_float_values": {},
        },
        "signature": {
            "input_specs": [{"user_input": {"arg": X}}],
            "output_specs": [{"user_output": {"arg": RELU}}, {"user_output": {"arg": ROWS}}],
        },
        "module_call_graph": [
            {
                "fqn": "",
                "signature": {
                    "inputs": [], "outputs": [], "in_spec": json.dumps([1, pair(ARGUMENTS, KEYWORDS)]),
                    "out_spec": json.dumps([1, pair(LEAF, LEAF)]),
                    "forward_arg_names": ["x"],
                },
            }
        ],
    },
    "opset_version": {"aten": 10},
    "range_constraints": {"s77": {"min_val": 2, "max_val": 100}},
    "schema_version": {"major": 8, "minor": 0},
    "guards_code": [],
}  # fmt: skip
SAMPLE = torch_bytes(((torch.ones(6, 4),), {}))
NOTHING = json.dumps({"config": {}}).encode()
Change = Callable[[dict[str, Any]], None]


def exported(change: Change | None = None, members: Mapping[str, bytes] = {}) -> bytes:
    """Return a program with its description changed, and members added to its data."""
    found = {
        "m/archive_format": b"pt2", "m/archive_version": b"0", "m/byteorder": b"little", "m/.data/version": b"3\n",
        "m/models/model.json": json.dumps(changed(change)).encode(),
        "m/data/weights/model_weights_config.json": NOTHING,
        "m/data/constants/model_constants_config.json": NOTHING,
        "m/data/sample_inputs/model.pt": SAMPLE,
    }  # fmt: skip
    return zipped({**found, **{f"m/{name}": content for name, content in members.items()}})


def load_module(path: Path) -> object:
    """Load a program and make its module, as marpack's own loader does."""
    return torch.export.load(path).module()


def run_module(path: Path) -> object:
    return torch.export.load(path).module()(torch.ones(6, 4))


MAKE = "__import__('os').mkdir('canary')"
EXPRESSIONS: dict[str, str] = {
    "import": MAKE,
    "within a Symbol": f"Symbol('s77', {MAKE})",
    "within Max": f"Max(1, {MAKE} or 1)",
    "behind a symbol": f"s77 + ({MAKE} or 1)",
    "open": "open('canary', 'w')",
    "exec": "exec(\"open('canary', 'w')\")",
    "eval in hex": r"eval('\x6fpen(\x27canary\x27, \x27w\x27)')",
    "a lambda": f"(lambda: {MAKE})()",
    "a condition": f"s77 if {MAKE} else 1",
    "subscripts": f"(1, {MAKE})[0]",
    "an f-string": f"f'{{{MAKE}}}'".replace("'os'", '"os"').replace("'canary'", '"canary"'),
    "a text for a number": "Integer(S(\"open('canary', 'w')\"))",
    "sympify of a text": f'sympify("{MAKE}")',
    "a function of a text": f'Max("{MAKE}", 1)',
    "spaces": f"   Symbol('s77')  +  ({MAKE}  or  1)",
    "two lines": f"(1 +\n({MAKE} or 1))",
    "a comment": f"{MAKE} # Symbol('s77')",
}


def put(*path: str | int, value: object) -> Change:
    """Return a change of one place of the description."""

    def change(program: dict[str, Any]) -> None:
        place: Any = program  # dicts and lists in turn
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return change


def expression(text: str, hint: object = {"as_int": 6}) -> dict[str, object]:
    return {"as_expr": {"expr_str": text, "hint": hint}}


GRAPH = ("graph_module", "graph")
X_META, RELU_META = (*GRAPH, "tensor_values", "x"), (*GRAPH, "tensor_values", "relu")
MADE = expression(f"Symbol('s77', {MAKE})")
PLACES: dict[str, Change] = {
    "size of an input": put(*X_META, "sizes", 0, value=MADE),
    "second size": put(*X_META, "sizes", 1, value=expression(MAKE, None)),
    "stride": put(*X_META, "strides", 0, value=MADE),
    "size of a result": put(*RELU_META, "sizes", 0, value=MADE),
    "stride of a result": put(*RELU_META, "strides", 0, value=MADE),
    "number": put(*GRAPH, "sym_int_values", "rows", value=MADE),
    "number without a hint": put(*GRAPH, "sym_int_values", "rows", value=expression(MAKE, None)),
}
NAME = f"x={MAKE}"
# The name is written twice, as a parameter and as a value: the second one ends a text that the first one begins.
ARGUMENT = f'x={MAKE}):\n    """#'
GUARD = f"{MAKE} is None"


def renamed(program: dict[str, Any]) -> None:
    """Change the input's name everywhere: it becomes a parameter in Python code, and this one has a default value."""
    text = json.dumps(program).replace('"x"', json.dumps(NAME))
    program.update(json.loads(text))


OTHERS: dict[str, tuple[Change, Callable[[Path], object]]] = {
    "an input's name": (renamed, load_export),
    "a guard": (put("guards_code", value=[GUARD]), run_module),
    "a guard that ends the call": (put("guards_code", value=[f"({MAKE}) is None, ''"]), run_module),
    "an argument's name": (
        put("graph_module", "module_call_graph", 0, "signature", "forward_arg_names", value=[ARGUMENT]), load_module,
    ),
}  # fmt: skip
PICKLES: dict[str, bytes] = {
    "a call": EVIL,
    "an imported name": HIDDEN + b".",
    "an imported name, damaged": HIDDEN + DAMAGE,
    "a call, damaged": MKDIR + DAMAGE,
    "a zip": torched(),
}


def entry(path_name: str) -> bytes:
    described = {"path_name": path_name, "is_param": False, "use_pickle": True, "tensor_meta": None}
    return json.dumps({"config": {"c": described}}).encode()


def programs() -> Found:
    """Programs of torch.export whose description or members run code."""
    for name, text in EXPRESSIONS.items():
        change = put(*X_META, "sizes", 0, value=expression(text))
        yield f".pt2, expression: {name}", Payload(exported(change), "model.pt2", load_export)
    for name, change in PLACES.items():
        yield f".pt2, place: {name}", Payload(exported(change), "model.pt2", load_export)
    escaped = json.dumps(changed(PLACES["stride"])).replace("__import__", r"\u005f_import__")
    members = {"models/model.json": escaped.encode()}
    yield ".pt2, escaped in JSON", Payload(exported(members=members), "model.pt2", load_export)
    for name, (change, load) in OTHERS.items():
        yield f".pt2, {name}", Payload(exported(change), "model.pt2", load)
    for name, content in PICKLES.items():
        for folder, member in (("weights", "weight_0"), ("constants", "tensor_0"), ("constants", "opaque_obj_0")):
            if member.startswith("opaque") and name == "a zip":
                continue
            members = {f"data/{folder}/model_{folder}_config.json": entry(member), f"data/{folder}/{member}": content}
            title = f".pt2, {member} pickled: {name}"
            yield title, Payload(exported(members=members), "model.pt2", load_export)
        members = {"data/weights/model.pt": content}
        yield f".pt2, weights of old: {name}", Payload(exported(members=members), "model.pt2", load_export)
        members = {"data/sample_inputs/model.pt": content}
        yield f".pt2, sample inputs: {name}", Payload(exported(members=members), "model.pt2", load_export)
    second = {"models/other.json": json.dumps(changed(PLACES["stride"])).encode()}
    rest = {f"data/{folder}/other_{folder}_config.json": NOTHING for folder in ("weights", "constants")}
    second |= rest | {"data/sample_inputs/other.pt": SAMPLE}
    yield ".pt2, the second of two programs", Payload(exported(members=second), "model.pt2", load_export)
    for member in ("model.bin", "model.pt", "weights"):
        yield f".pt2 as {member}", Payload(exported(PLACES["stride"]), member, load_export_file)
    yield ".pt2 of torch 2.7", Payload(exported_before(PLACES["stride"]), "model.pt2", load_export)
    old = exported_before(None, serialized_state_dict=HIDDEN + b".")
    yield ".pt2 of torch 2.7, state_dict pickled", Payload(old, "model.pt2", load_export)


TYPED = "torch.jit._pickle"  # whose names the pickles of TorchScript import
SCRIPTS: dict[str, bytes] = {
    "a packed __torch__": ref("__torch__.Net") + b".",
    "a packed __torch__, in a package": ref("__torch__.net.Net") + b".",
    "builtins of its functions": (
        b"\x80\x04" + push(TYPED) + push("build_intlist.__builtins__.get") + b"\x93" + push(("eval",)) + b"R"
        + push((CODE,)) + b"R."
    ),
}  # fmt: skip


def two_directories(first: Mapping[str, bytes], second: Mapping[str, bytes]) -> bytes:
    """Return a zip of two directories: torch's reader finds the first members only, Python's zipfile finds all."""
    content = zipped({**first, **second})
    start, end = content.index(b"PK\1\2"), content.rfind(b"PK\5\6")
    every = [b"PK\1\2" + rest for rest in content[start:end].split(b"PK\1\2")[1:]]
    few = every[: len(first)]
    place = start + len(b"".join(few))
    content = content[:start] + b"".join(few) + end_record(few, start)
    content += b"".join(every) + end_record(every, len(content))
    locator = b"PK\6\7" + struct.pack("<IQI", 0, place, 1)
    return content + locator + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)


def end_record(records: list[bytes], place: int) -> bytes:
    """Return the zip64 end record of a directory."""
    count, size = len(records), sum(map(len, records))
    return b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, count, count, size, place)


def disguises() -> Found:
    """Files that look like TorchScript or like an honest program to one reader, and not to the one that loads them."""
    files = {"__torch__.py": MODULE}
    folder = {"__torch__/net.py": MODULE}
    script = {"m/constants.pkl": b").", "m/code/__torch__.py": b"class Net(Module):\n"}
    for name, pickled in SCRIPTS.items():
        torched_members = {"m/data.pkl": pickled, "m/version": b"3\n", "m/byteorder": b"little"}
        beside = folder if "package" in name else files
        title = f"torch, two directories: {name}"
        yield title, Payload(two_directories(torched_members, script), "model.pt", load_torch, beside)
        for constants in ("CONSTANTS.PKL", "Constants.pkl", "./constants.pkl"):
            members = {**torched_members, f"m/{constants}": b")."}
            yield f"torch, {constants}: {name}", Payload(zipped(members), "model.pt", load_torch, beside)
    honest = json.dumps(changed(None))
    symbol = f'"expr_str": {json.dumps(SYMBOL)}'
    twice = honest.replace(symbol, f'{symbol}, "expr_str": {json.dumps(MAKE)}')
    members = {"models/model.json": twice.encode()}
    yield ".pt2, an expression twice", Payload(exported(members=members), "model.pt2", load_export)
    pickled = entry("weight_0").replace(b'"use_pickle": true', b'"use_pickle": false, "use_pickle": true')
    members = {"data/weights/model_weights_config.json": pickled, "data/weights/weight_0": HIDDEN + b"."}
    yield ".pt2, use_pickle twice", Payload(exported(members=members), "model.pt2", load_export)
    for name in ("other.yaml", "otherXjson", "other.JSON", "sub/other.json"):
        stem = name[: -len(".json")]
        second = {f"models/{name}": json.dumps(changed(PLACES["stride"])).encode()}
        second |= {f"data/{kind}/{stem}_{kind}_config.json": NOTHING for kind in ("weights", "constants")}
        second |= {f"data/sample_inputs/{stem}.pt": SAMPLE}
        yield f".pt2, a second program, models/{name}", Payload(exported(members=second), "model.pt2", load_export)


def changed(change: Change | None) -> dict[str, Any]:
    program = copy.deepcopy(PROGRAM)
    if change:
        change(program)
    return program


def load_export_file(path: Path) -> object:
    with path.open("rb") as file:
        return torch.export.load(file)


def exported_before(change: Change | None, **parts: bytes) -> bytes:
    """Return a program as torch up to 2.7 wrote it."""
    kept = {"serialized_state_dict": torch_bytes({}), "serialized_constants": torch_bytes({}),
        "serialized_example_inputs": SAMPLE, **parts}  # fmt: skip
    members = {f"{name}.pt": content for name, content in kept.items()}
    return zipped({
        **members, "version": b"8.0", "serialized_exported_program.json": json.dumps(changed(change)).encode(),
    })  # fmt: skip


SHADOWED: dict[str, tuple[str, bytes]] = {  # the module packed, and what the pickle imports of it
    "collections": ("collections.py", ref("collections.OrderedDict") + b")R."),
    "collections, the import alone": ("collections.py", ref("collections.OrderedDict") + b"."),
    "torch._utils": ("torch/_utils.py", ref("torch._utils._rebuild_tensor_v2") + b"."),
    "torch": ("torch/__init__.py", ref("torch.Size") + b"."),
    "torch.storage": ("torch/storage.py", ref("torch.storage.UntypedStorage") + b"."),
    "builtins": ("builtins.py", ref("builtins.set") + b"."),
    "__builtin__ of Python 2": ("builtins.py", b"\x80\x02" + ref("__builtin__.set") + b"."),
    "datetime": ("datetime.py", ref("datetime.date") + b"."),
    "decimal": ("decimal/__init__.py", ref("decimal.Decimal") + b"."),
    "numpy": ("numpy/__init__.py", ref("numpy.dtype") + b"."),
    "copyreg": ("copyreg.py", ref("copyreg._reconstructor") + b"."),
    "_codecs": ("_codecs.py", ref("_codecs.encode") + b"."),
}
EXTERN = b"os\nposix\n"


def package(file: str, pickled: bytes, root: str = "net") -> dict[str, bytes]:
    """Return the members of a package that brings a module of its own."""
    return {
        f"{root}/.data/extern_modules": EXTERN, f"{root}/.data/version": b"6\n", f"{root}/{file}": MODULE,
        f"{root}/model/model.pkl": pickled,
    }  # fmt: skip


def load_packed(path: Path) -> object:
    """Load a package from the member of a zip."""
    return unpickled(unzipped(path.read_bytes()))


def load_gzipped(path: Path) -> object:
    return unpickled(gzip.decompress(path.read_bytes()))


def unpickled(data: bytes) -> object:
    return torch.package.PackageImporter(io.BytesIO(data)).load_pickle("model", "model.pkl")


def packages() -> Found:
    """Packages of torch.package: a pickle's safe names are found in the package first."""
    for name, (file, pickled) in SHADOWED.items():
        yield f"torch.package shadows {name}", Payload(zipped(package(file, pickled)), "model.pt", load_package)
    members = package(*SHADOWED["collections"])
    for member in ("model.zip", "model.pkg", "model.bin", "model", "model.pth", "model.pt2"):
        yield f"torch.package as {member}", Payload(zipped(members), member, load_package)
    for root in ("archive", "my model (1)", ".data", "x" * 60):
        renamed_root = package(*SHADOWED["collections"], root=root)
        yield f"torch.package in folder {root[:12]!r}", Payload(zipped(renamed_root), "model.pt", load_package)
    few = {name: content for name, content in members.items() if "version" not in name}
    script = {"net/data.pkl": b"N.", "net/constants.pkl": b").", "net/code/a.py": b""}
    for name, content in {
        "in capitals": {name.replace(".data", ".DATA"): content for name, content in members.items()},
        "version outside": {**few, "net/version": b"6\n"},
        "a state_dict beside": {**members, "net/data.pkl": b"}.", "net/byteorder": b"little"},
        "names of TorchScript beside": {**members, **script},
        "names of torch.export beside": {**members, "net/archive_format": b"pt2", "net/models/a.json": b"{}"},
    }.items():
        yield f"torch.package, {name}", Payload(zipped(content), "model.pt", load_package)
    yield "torch.package, deflated", Payload(zipped(members, 8), "model.pt", load_package)
    yield "torch.package in a zip", Payload(zipped({"a/model.pt": zipped(members)}), "assets.zip", load_packed)
    yield "torch.package in a gzip", Payload(gzip.compress(zipped(members)), "model.pt.gz", load_gzipped)
    yield "torch.package, bytes behind", Payload(zipped(members) + bytes(300), "model.pt", load_package)
    storage = {**members, "net/.data/0.storage": bytes(16)}
    yield "torch.package with a storage", Payload(zipped(storage), "model.pt", load_package)
