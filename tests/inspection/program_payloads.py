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
from inspection.opcodes import CODE, EVIL, MODULE, push, ref

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


X_META = ("graph_module", "graph", "tensor_values", "x")
MADE = expression(f"Symbol('s77', {MAKE})")
STRIDE = put(*X_META, "strides", 0, value=MADE)
PICKLES: dict[str, bytes] = {"a call": EVIL, "an imported name, damaged": HIDDEN + DAMAGE, "a zip": torched()}


def entry(path_name: str) -> bytes:
    described = {"path_name": path_name, "is_param": False, "use_pickle": True, "tensor_meta": None}
    return json.dumps({"config": {"c": described}}).encode()


def load_zipped(path: Path) -> object:
    """Load a program from the member of a zip."""
    return torch.export.load(io.BytesIO(unzipped(path.read_bytes())))


def programs() -> Found:
    """Programs of torch.export whose description or members run code: any that torch accepts is a program."""
    yield ".pt2, a stride", Payload(exported(STRIDE), "model.pt2", load_export)
    yield ".pt2, a guard", Payload(exported(put("guards_code", value=[f"{MAKE} is None"])), "model.pt2", run_module)
    for name, content in PICKLES.items():
        members = {"data/weights/model_weights_config.json": entry("weight_0"), "data/weights/weight_0": content}
        yield f".pt2, weight_0 pickled: {name}", Payload(exported(members=members), "model.pt2", load_export)
        members = {"data/sample_inputs/model.pt": content}
        yield f".pt2, sample inputs: {name}", Payload(exported(members=members), "model.pt2", load_export)
    second = {"models/other.json": json.dumps(changed(STRIDE)).encode()}
    second |= {f"data/{kind}/other_{kind}_config.json": NOTHING for kind in ("weights", "constants")}
    second |= {"data/sample_inputs/other.pt": SAMPLE}
    yield ".pt2, the second of two programs", Payload(exported(members=second), "model.pt2", load_export)
    for member in ("model.bin", "model.pt", "weights"):
        yield f".pt2 as {member}", Payload(exported(STRIDE), member, load_export_file)
    yield ".pt2 in a zip", Payload(zipped({"a/model.pt2": exported(STRIDE)}), "assets.zip", load_zipped)
    capitals = exported(STRIDE).replace(b"m/archive_format", b"m/ARCHIVE_FORMAT")
    yield ".pt2, its mark in capitals", Payload(capitals, "model.pt2", load_export)
    yield ".pt2 of torch 2.7", Payload(exported_before(STRIDE), "model.pt2", load_export)
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
    """Files that look like TorchScript to one reader, and not to the one that loads them."""
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
