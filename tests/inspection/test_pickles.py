"""Verdicts on real files: what torch and pickle write, and what attackers do."""

import builtins
import bz2
import collections
import gzip
import importlib
import io
import lzma
import os
import pickle
import runpy
import struct
import subprocess
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import picklescan.scanner
import pytest
import torch
from inspection.containers import tarred, written, zipped
from inspection.opcodes import Ops, call, push, ref, short
from torch import nn

from marpack.inspection.pickles import PickleScan, PickleVerdict

Scan = Callable[..., PickleScan]
SYSTEM = b"cposix\nsystem\n(S'id'\ntR."  # protocol 0


class Call:
    """Pickles to a call of whatever it is given."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> Any:
        return self.call


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def checkpoint() -> dict[str, Any]:
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.zeros(2, 4)).sum().backward()
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    return {
        "model": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": {key: value for key, value in scheduler.state_dict().items() if not callable(value)},
        "epoch": 3,
        "loss": 0.25,
        "rng": torch.get_rng_state(),
        "dtype": torch.bfloat16,
        "device": torch.device("cpu"),
        "shape": torch.Size([1, 2]),
        "best": None,
        "history": [0.5, 0.25],
    }


def exotic_tensors() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "parameter": nn.Parameter(torch.zeros(2, 2, dtype=torch.bfloat16)),
            "quantized": torch.quantize_per_tensor(torch.zeros(3), 0.1, 0, torch.qint8),
            "channels": torch.quantize_per_channel(torch.zeros(2, 2), torch.ones(2), torch.zeros(2), 0, torch.quint8),
            "sparse": torch.eye(3).to_sparse(),
            "meta": torch.empty(3, 3, device="meta"),
            "complex": torch.zeros(2, dtype=torch.complex64),
            "float8": torch.zeros(4).to(torch.float8_e4m3fn),
            "view": torch.zeros(3, 4).t(),
        }


SAFE = {
    "state_dict": lambda: Net().state_dict(),
    "ordered": lambda: collections.OrderedDict(a=torch.zeros(2)),
    "checkpoint": checkpoint,
    "exotic tensors": exotic_tensors,
    "one tensor": lambda: torch.zeros(3),
    "vocabulary": lambda: {f"word{number}": number for number in range(20_000)},
    "vocabulary with lists": lambda: {
        "stoi": {"a": 0, "été": 1},
        "itos": ["a", "été"],
        "freqs": collections.Counter("ab"),
    },
    "odd values": lambda: {"bytes": b"\x80\x02", "set": {1, 2}, "complex": 1 + 2j, "big": 1 << 80, "none": None},
}


@pytest.mark.filterwarnings("ignore:TypedStorage", "ignore::UserWarning:torch.*")  # of torch's own making
@pytest.mark.parametrize("name", SAFE)
@pytest.mark.parametrize("legacy", [False, True])
def test_what_weights_only_loads_is_safe(name: str, legacy: bool, scan: Scan, saved: Callable[..., bytes]) -> None:
    value = SAFE[name]()
    if legacy:  # which knows no untyped storages
        value = {key: item for key, item in value.items() if key != "float8"} if isinstance(value, dict) else value
    content = saved(value, _use_new_zipfile_serialization=not legacy)
    torch.load(io.BytesIO(content), weights_only=True)
    found = scan(content)
    assert (found.verdict, found.unscanned) == (PickleVerdict.SAFE, ())
    assert [each.weights_only for each in found.pickles] == [True] * len(found.pickles) != []


@pytest.mark.parametrize("protocol", range(6))
def test_a_plain_pickle_of_plain_values_is_safe_in_every_protocol(protocol: int, scan: Scan) -> None:
    value = {"words": ["a", "ß", "\x80\x02"], "ids": (1, -5, 2**70, 0.5, None, True), "x": [[]], "y": b"\x80\x04"}
    found = scan(pickle.dumps(value, protocol=protocol))
    assert found.verdict is PickleVerdict.SAFE
    assert [pickle.problem for pickle in found.pickles] == [None]
    assert found.pickles[0].weights_only is (protocol == 2)


def test_tensors_of_random_bytes_do_not_look_like_pickles(scan: Scan, saved: Callable[..., bytes]) -> None:
    numbers = torch.frombuffer(bytearray(np.random.default_rng(5).bytes(8 * 4000)), dtype=torch.uint8).view(4000, 8)
    content = saved({f"t{number}": row.clone() for number, row in enumerate(numbers)})
    assert [pickle.where.rpartition("/")[2] for pickle in scan(content).pickles] == ["data.pkl"]


class Vocab:
    """As torchtext's: a class of its author's around a dict."""

    def __init__(self) -> None:
        self.stoi = collections.defaultdict(int, a=1)


def test_a_whole_model_needs_trust_and_lists_what_it_imports(scan: Scan, saved: Callable[..., bytes]) -> None:
    found = scan(saved(Net()))
    assert found.verdict is PickleVerdict.NEEDS_TRUST
    names = {name for pickle in found.pickles for name in pickle.globals}
    assert "torch.nn.modules.linear.Linear" in names
    assert any(name.endswith(".Net") for name in names)


def test_a_class_or_a_path_needs_trust(scan: Scan, saved: Callable[..., bytes]) -> None:
    found = scan(saved(Vocab()))
    assert found.verdict is PickleVerdict.NEEDS_TRUST
    assert {"collections.defaultdict", "builtins.int"} <= set(found.pickles[0].globals)
    assert scan(pickle.dumps(Path("x"))).verdict is PickleVerdict.NEEDS_TRUST


def test_a_tensor_pickled_without_torch_save_unpickles_what_lies_in_it(scan: Scan) -> None:
    found = scan(pickle.dumps({"a": torch.zeros(2)}))
    assert found.verdict is PickleVerdict.DANGEROUS
    assert found.pickles[0].reasons == ("it imports torch.storage._load_from_bytes",)


EVIL = {
    "os.system": Call(os.system, "id"),
    "eval": Call(eval, "1"),
    "exec": Call(exec, "1"),
    "compile": Call(compile, "1", "x", "eval"),
    "subprocess": Call(subprocess.Popen, ["id"]),
    "getattr": Call(getattr, "x", "upper"),
    "import": Call(importlib.import_module, "os"),
    "builtin import": Call(builtins.__import__, "os"),
    "open": Call(open, "/tmp/x", "w"),
    "runpy": Call(runpy.run_path, "x.py"),
    "nested torch.load": Call(torch.load, "other.pt"),
    "pickle.loads": Call(pickle.loads, b"N."),
    "numpy.load": Call(np.load, "x.npy"),
    "torch.hub": Call(torch.hub.load, "a", "b"),
    "deep inside": {"weights": [torch.zeros(2), {"x": (Call(os.system, "id"),)}]},
}


@pytest.mark.parametrize("name", EVIL)
@pytest.mark.parametrize("protocol", range(6))
def test_known_bad_calls_are_dangerous_in_every_protocol(name: str, protocol: int, scan: Scan) -> None:
    found = scan(pickle.dumps(EVIL[name], protocol=protocol))
    assert found.verdict is PickleVerdict.DANGEROUS
    assert any("it imports" in reason for pickle in found.pickles for reason in pickle.reasons)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_bad_call_in_a_torch_file_is_dangerous(legacy: bool, scan: Scan, saved: Callable[..., bytes]) -> None:
    content = saved({"a": torch.zeros(2), "b": Call(os.system, "id")}, _use_new_zipfile_serialization=not legacy)
    assert scan(content).verdict is PickleVerdict.DANGEROUS


def test_each_name_that_picklescan_lists_is_dangerous(scan: Scan) -> None:
    listed = picklescan.scanner._unsafe_globals
    for module, names in listed.items():
        each = ["x"] if names == "*" else [names] if isinstance(names, str) else sorted(names)
        for name in (name for name in each if module != "uuid"):  # our allow-list has UUID and SafeUUID
            found = scan(f"c{module}\n{name}\n)R.".encode())
            assert found.verdict is PickleVerdict.DANGEROUS, (module, name)


CALLED = short("id") + b"\x85R."
NAMES = short("posix") + short("system") + b"\x93"
TRICKS = {
    "protocol 0": SYSTEM,
    "INST": b"(S'id'\nios\nsystem\n.",
    "OBJ": b"(cos\nsystem\nS'id'\no.",
    "NEWOBJ": b"\x80\x02cos\nsystem\nU\x02id\x85\x81.",
    "NEWOBJ_EX": NAMES + short("id") + b"}\x92.",
    "Python 2's name": b"c__builtin__\neval\n(S'1'\ntR.",
    "Python 2's commands": b"ccommands\ngetoutput\n(S'id'\ntR.",
    "STACK_GLOBAL": NAMES + CALLED,
    "STACK_GLOBAL from the memo": short("posix") + b"\x940" + short("system") + b"\x940h\x00h\x01\x93" + CALLED,
    "memo overwritten": short("collections")
    + b"q\x000"
    + short("posix")
    + b"q\x000h\x00"
    + short("system")
    + b"\x93"
    + CALLED,
    "names duplicated on the stack": short("posix") + b"20" + short("system") + b"\x93" + CALLED,
    "names out of a tuple that is dropped": b"(" + short("x") + b"1" + NAMES + CALLED,
    "name as UNICODE": b"Vposix\nVsystem\n\x93" + CALLED,
    "name as escaped STRING": b"S'pos\\x69x'\nS'system'\n\x93" + CALLED,
    "name as BINUNICODE8": b"\x8d" + struct.pack("<Q", 5) + b"posix" + short("system") + b"\x93" + CALLED,
    "an attribute's attribute": short("torch.serialization") + short("os.system") + b"\x93" + CALLED,
    "no STOP": SYSTEM[:-1],
    "garbage behind the call": SYSTEM[:-1] + b"\xff\xff",
    "a lying frame": b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + SYSTEM,
    "copyreg": b"ccopyreg\nadd_extension\n(S'os'\nS'system'\nI240\ntR0\x82\xf0(S'id'\ntR.",
    "behind a STOP": pickle.dumps({"a": 1}) + SYSTEM,
    "behind two STOPs": pickle.dumps(1) + pickle.dumps([]) + pickle.dumps(Call(os.system, "id")),
    "behind padding": pickle.dumps({"a": 1}) + b"\0 \r\n" * 50 + pickle.dumps(Call(os.system, "id")),
    "an attribute of a module": b"csys\nmodules\nVos\nNs.",
    "an attribute of a class": b"cmodel\nNet\n}Vforward\ncbuiltins\nprint\nsb.",
    "a list of a module's": b"cmodel\nHOOKS\ncbuiltins\nprint\na.",
    "behind a huge string": pickle.dumps(["x" * 300_000, b"y" * 300_000, Call(os.system, "id")]),
    "a call without arguments it needs": b"cposix\nabort\n)R.",
    "a computed name": b"c_codecs\nencode\n" + short("posix") + short("utf-8") + b"\x86R" + short("system") + b"\x93.",
    "only imported": b"cposix\nsystem\n.",
    "a name that picklescan lists": b"cuuid\n_get_command_stdout\n(S'id'\ntR.",
}
# STACK_GLOBAL is of protocol 4.
TRICKS = {
    name: content if content[:1] == b"\x80" or b"\x93" not in content else b"\x80\x04" + content
    for name, content in TRICKS.items()
}


@pytest.mark.parametrize("name", TRICKS)
def test_tricks_do_not_hide_a_bad_call(name: str, scan: Scan) -> None:
    assert scan(TRICKS[name]).verdict is PickleVerdict.DANGEROUS


WRAPPED = {
    "zip": lambda evil: zipped({"a/readme.txt": evil}),
    "deflated zip": lambda evil: zipped({"x": evil}, zipfile.ZIP_DEFLATED),
    "zip in zip in zip": lambda evil: zipped({"x.zip": zipped({"y.jpg": zipped({"z": evil})})}),
    "torch storage": lambda evil: zipped({"m/data.pkl": pickle.dumps({}, 2), "m/version": b"3", "m/data/0": evil}),
    "second data.pkl": lambda evil: zipped({"m/data.pkl": pickle.dumps({}, 2), "m/version": b"3", "n/data.pkl": evil}),
    "extra file of TorchScript": lambda evil: zipped(
        {"m/data.pkl": pickle.dumps({}, 2), "m/constants.pkl": b"\x80\x02).", "m/code/x.py": b"", "m/extra/notes": evil}
    ),
    "TorchScript's own": lambda evil: zipped(
        {"m/data.pkl": evil, "m/constants.pkl": b"\x80\x02).", "m/code/x.py": b""}
    ),
    "gzip": gzip.compress,
    "zlib": zlib.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "two gzip members": lambda evil: gzip.compress(evil[:9]) + gzip.compress(evil[9:]),
    "tar": lambda evil: tarred({"a/b": evil}),
    "tar.gz": lambda evil: gzip.compress(tarred({"a/b": evil})),
    "behind a picture": lambda evil: b"\x89PNG\r\n\x1a\n" + bytes(500) + zipped({"x": evil}),
}


@pytest.mark.parametrize("wrap", WRAPPED)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_wrappings_do_not_hide_a_bad_call(wrap: str, scan: Scan) -> None:
    evil = pickle.dumps(Call(os.system, "id"))
    assert scan(WRAPPED[wrap](evil), "picture.png").verdict is PickleVerdict.DANGEROUS


def test_objects_in_numpys_format_are_looked_into(scan: Scan) -> None:
    evil = np.array([Call(os.system, "id")], dtype=object)
    for content in (written(np.save, evil, allow_pickle=True), written(np.savez, a=evil, b=np.zeros(3))):
        found = scan(content)
        assert (found.verdict, found.unscanned) == (PickleVerdict.DANGEROUS, ())


ARRAYS = {"floats": np.zeros((10, 100)), "objects": np.array([1, "x"], dtype=object), "texts": np.array(["a", "bcd"])}


@pytest.mark.parametrize("compress", [0, 3])
def test_a_joblib_file_is_not_scanned_behind_its_first_array(compress: int, scan: Scan, tmp_path: Path) -> None:
    joblib = pytest.importorskip("joblib")
    joblib.dump({**ARRAYS, "last": [1]}, tmp_path / "plain", compress=compress)
    joblib.dump({**ARRAYS, "evil": Call(os.system, "id")}, tmp_path / "evil", compress=compress)
    plain = scan((tmp_path / "plain").read_bytes())
    evil = scan((tmp_path / "evil").read_bytes())
    assert plain.verdict is evil.verdict is PickleVerdict.NEEDS_TRUST
    assert all("raw array" in each.reason for each in (*plain.unscanned, *evil.unscanned))


def test_a_wrapper_of_joblibs_does_not_make_what_follows_safe(scan: Scan) -> None:
    state = b"(U\x05shape(K\x40tU\x05dtypecnumpy\ndtype\n(U\x02u1tRd"
    wrapper = b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\x81" + state + b"b"
    found = scan(b"\x80\x02" + wrapper + b"0" + SYSTEM + bytes(64) + b"N.")
    assert found.verdict is PickleVerdict.NEEDS_TRUST
    assert scan(b"\x80\x02" + SYSTEM + b"0" + wrapper + bytes(64) + b"N.").verdict is PickleVerdict.DANGEROUS


@pytest.mark.parametrize("length", [1 << 20, (1 << 63) + 70_000, (1 << 64) - 1])
def test_a_byte_string_longer_than_any_file_is_not_looked_for_there(length: int, scan: Scan) -> None:
    found = scan(b"\x8e" + struct.pack("<Q", length) + b"\x80\x02" + b"}" * 1000, "a.pkl")
    assert found.verdict is PickleVerdict.NEEDS_TRUST


def test_an_encrypted_member_is_not_passed_over(scan: Scan) -> None:
    content = bytearray(zipped({"a": b"hello"}))
    content[content.index(b"PK\1\2") + 8] |= 1
    assert [part.where for part in scan(bytes(content)).unscanned] == ["notes.bin!a"]


def test_a_duplicate_member_is_not_overlooked(scan: Scan) -> None:
    content = zipped({"m/data.pkl": pickle.dumps({}, 2), "m/atad.pkl": SYSTEM, "m/version": b"3"})
    assert scan(content.replace(b"m/atad.pkl", b"m/data.pkl")).verdict is PickleVerdict.DANGEROUS


@pytest.mark.parametrize("extension", [b"\x82\x05", b"\x83\x05\0", b"\x84\x05\0\0\0"])
def test_an_extension_by_its_number_needs_trust_and_hides_nothing_behind_it(extension: bytes, scan: Scan) -> None:
    alone = scan(b"\x80\x02" + extension + b")R.")
    assert alone.verdict is PickleVerdict.NEEDS_TRUST
    assert alone.pickles[0].globals == ("copyreg.extension_5",)
    assert scan(b"\x80\x02" + extension + b"0" + SYSTEM).verdict is PickleVerdict.DANGEROUS


@pytest.mark.parametrize(("levels", "verdict"), [(6, PickleVerdict.DANGEROUS), (7, PickleVerdict.NEEDS_TRUST)])
def test_zips_within_zips_are_looked_into_down_to_a_depth(levels: int, verdict: PickleVerdict, scan: Scan) -> None:
    content = SYSTEM
    for _ in range(levels):
        content = zipped({"x": content})
    found = scan(content)
    assert found.verdict is verdict
    assert bool(found.unscanned) is (verdict is PickleVerdict.NEEDS_TRUST)


@pytest.mark.parametrize(
    ("behind", "verdicts"),
    [
        (b"\n", ["safe"]),
        (b"\0" * 200_000, ["safe"]),
        (b"\xff" + SYSTEM, ["safe"]),  # no unpickler begins there
        (b"class A(B):\n    pass\n", ["safe"]),
        (b"\0" + pickle.dumps([2]), ["safe", "safe"]),
        (b"\n" + SYSTEM, ["safe", "dangerous"]),
        (b"cme\nNet\n)R.", ["safe", "needs trust"]),
        (b"cme\nNet\n)R.N.cme\nNet\n)R.", ["safe", "needs trust", "needs trust"]),
        (SYSTEM[:-1] + b"\xff", ["safe", "dangerous"]),
    ],
)
def test_what_follows_a_pickle_is_a_pickle_padding_or_data(behind: bytes, verdicts: list[str], scan: Scan) -> None:
    found = scan(pickle.dumps([1], 2) + behind)
    assert [part.verdict for part in found.pickles] == verdicts


def test_a_file_has_no_more_than_so_many_pickles(scan: Scan) -> None:
    assert not scan(pickle.dumps([1]) * 1000).unscanned
    assert "over 1,000 pickles" in scan(pickle.dumps([1]) * 1001).unscanned[0].reason


BROKEN = {
    "cut off": pickle.dumps([1, 2, 3])[:-3],
    "an import, then rubbish": b"\x80\x02cme\nNet\n\xff",
    "a number that is none": b"\x80\x02I1x\n.",
    "a protocol's mark alone": b"\x80\x04",
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_begins_as_a_pickle_and_is_not_read_to_its_end_is_not_safe(name: str, scan: Scan) -> None:
    found = scan(BROKEN[name])
    assert found.verdict is PickleVerdict.NEEDS_TRUST
    assert [part.reason for part in found.unscanned] == [pickle.problem for pickle in found.pickles]


@pytest.mark.parametrize(
    ("member", "content", "is_safe"),
    [
        ("words.txt", b"cat\ndog\nowl\n", True),
        ("words.pkl", b"cat\ndog\nowl\n", False),
        ("words.PT.gz", gzip.compress(b"cat\ndog\nowl\n", mtime=0), False),
        ("words.txt.gz", gzip.compress(b"cat\ndog\nowl\n", mtime=0), True),
        ("tree.pt", b"tree\nversion=v3\n", True),  # nothing stands on the stack for its first opcode
        ("tree.pkl", b"tree\nversion=v3\n", False),
        ("evil.pt", b"cevil\nname", False),  # imports evil, if it is Python's unpickler
        ("zeros.pkl", bytes(100), False),
        ("tree.pt", b"{}", True),
        ("weights.bin", b"cat\ndog\nowl\n", False),  # the manifest's
    ],
)
def test_a_name_or_the_manifest_claims_that_a_file_is_a_pickle(
    member: str, content: bytes, is_safe: bool, scan: Scan
) -> None:
    found = scan(content, member, weights="weights.bin")
    assert (found.verdict is PickleVerdict.SAFE) is is_safe
    assert bool(found.unscanned) is not is_safe


@pytest.mark.parametrize(
    ("content", "verdict"),
    [
        (b"captum\nnumpy\n.", PickleVerdict.SAFE),  # to import is not to call
        (b"cposix\nsystem\n.", PickleVerdict.DANGEROUS),
        (b"cme\nNet\n)R\xff", PickleVerdict.NEEDS_TRUST),
        (b"cme\nNet\nVa\nR\xff", PickleVerdict.NEEDS_TRUST),  # Python's unpickler calls with any iterable
        (b"Permission\ncme\nNet\n)R.", PickleVerdict.NEEDS_TRUST),
        (b"Permission\n" + SYSTEM, PickleVerdict.DANGEROUS),
        (b"PHP\nPython\nR\nRuby\n", PickleVerdict.SAFE),  # calls only what the loader itself returns
        (b"(i) the first\n(ii) the second\n", PickleVerdict.NEEDS_TRUST),  # a module may have any name
        (b"\x82\x05\xff", PickleVerdict.SAFE),  # an import by its number
        (b"N" * 100 + b"cme\nNet\n)R", PickleVerdict.NEEDS_TRUST),
    ],
)
def test_what_nobody_claims_is_judged_by_what_it_calls(content: bytes, verdict: PickleVerdict, scan: Scan) -> None:
    assert scan(content, "notes.txt").verdict is verdict


@pytest.mark.parametrize(
    ("member", "content", "members", "verdict"),
    [
        ("words.txt", b"cat\ndog\nowl\n", ["at.py"], PickleVerdict.NEEDS_TRUST),
        ("words.txt", b"cat\ndog\nowl\n", ["lib/at/__init__.py"], PickleVerdict.NEEDS_TRUST),
        ("words.txt", b"cat\ndog\nowl\n", ["at.cpython-311-x86_64-linux-gnu.so"], PickleVerdict.NEEDS_TRUST),
        ("words.txt", b"cat\ndog\nowl\n", ["bat.py", "at.txt"], PickleVerdict.SAFE),
        ("a.pkl", pickle.dumps(collections.OrderedDict(a=1)), ["collections.py"], PickleVerdict.NEEDS_TRUST),
        ("a.pkl", pickle.dumps(collections.OrderedDict(a=1)), ["handler.py"], PickleVerdict.SAFE),
    ],
)
def test_an_import_from_the_archive_needs_trust(
    member: str, content: bytes, members: list[str], verdict: PickleVerdict, scan: Scan
) -> None:
    assert scan(content, member, members=[member, *members]).verdict is verdict


def dtype(code: str, state: object = None) -> Ops:
    made = call("numpy.dtype", code, False, True)
    return made if state is None else Ops(made + push(state) + b"b")


OBJECT = dtype("O8", (3, "|", None, None, None, -1, -1, 63))
HIDDEN = (3, "|", None, ("a",), {"a": (OBJECT, 0)}, 8, 1, 0)  # eight bytes, which are read as a reference
FORGED = {
    "an object within eight bytes": dtype("V8", HIDDEN),
    "an object in a subarray": dtype("V8", (3, "|", (OBJECT, (1,)), None, None, 8, 1, 0)),
    "objects whose flags say bytes": dtype("O8", (3, "|", None, None, None, -1, -1, 0)),
    "bytes whose flags say objects": dtype("V8", (3, "|", None, None, None, 8, 1, 4)),
    "another size": dtype("V8", (3, "|", None, None, None, 64, 1, 0)),
    "an unknown state": dtype("V8", {"flags": 0}),
    "an unknown code": dtype("O,O", (3, "|", None, None, None, -1, -1, 0)),
    "a second state": Ops(dtype("V8", (3, "|", None, None, None, 8, 1, 0)) + push(HIDDEN) + b"b"),
    "any buffer": call("numpy.ndarray", (1,), "O", bytes(8)),
    "an object handed back": call("numpy.core.multiarray.scalar", OBJECT, ref("torch.Tensor")),
    "a dtype made by copyreg": Ops(
        call("copyreg._reconstructor", *map(ref, ("numpy.dtype",) * 2), "V8") + push(HIDDEN) + b"b"
    ),
    "a call through torch": call(
        "torch._tensor._rebuild_from_type_v2", ref("numpy.ndarray"), ref("numpy.ndarray"), ((1,), "O", bytes(8)), ()
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_arrays_that_no_pickler_writes_are_not_safe(name: str, scan: Scan) -> None:
    assert scan(b"\x80\x03" + FORGED[name] + b".", "a.pkl").verdict is PickleVerdict.NEEDS_TRUST


def test_imports_of_data_are_listed(scan: Scan) -> None:
    (found,) = scan(b"cat\ndog\nowl\n", "words.txt").stray_imports
    assert (found.where, found.globals) == ("words.txt", ("at.dog",))


def test_plain_values_are_read_whatever_they_are_written_in(scan: Scan, saved: Callable[..., bytes]) -> None:
    for content in (
        pickle.dumps({"a": [1, "b"]}, protocol=0) + b"\n",
        pickle.dumps("a" * 10_000, protocol=0),
        saved({"a": 1, "b": "c"}, _use_new_zipfile_serialization=False, pickle_protocol=0),
        saved({"a": torch.ones(3)}, _use_new_zipfile_serialization=False, pickle_protocol=0),
    ):
        found = scan(content)
        assert found.verdict is PickleVerdict.SAFE
        assert found.pickles
        assert all(pickle.problem is None for pickle in found.pickles)


def test_what_torch_reads_must_be_what_torch_accepts(scan: Scan, saved: Callable[..., bytes]) -> None:
    found = scan(saved({"mean": np.zeros(3)}))
    assert found.verdict is PickleVerdict.NEEDS_TRUST
    assert [(pickle.weights_only, pickle.runs_no_code) for pickle in found.pickles] == [(False, True)]


@pytest.mark.parametrize("name", ["a", "a" * 40, "a" * 90])
def test_a_pickle_in_the_place_of_numbers_is_seen(name: str, scan: Scan, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.pt"  # torch.save puts the file's name before each member's
    torch.save({"a": torch.full((64,), 1.5)}, path)
    content = path.read_bytes()
    assert scan(content).verdict is PickleVerdict.SAFE
    numbers = b"\0\0\xc0?" * 64
    assert numbers in content
    assert scan(content.replace(numbers, SYSTEM.ljust(256, b"\0"))).verdict is PickleVerdict.DANGEROUS


def test_flags_that_stop_other_scanners_do_not_stop_this_one(scan: Scan) -> None:
    content = bytearray(zipped({"m/data.pkl": SYSTEM, "m/version": b"3"}))
    entry = content.find(b"PK\x01\x02")
    content[entry + 8] |= 1  # "encrypted", says the directory
    content[entry + 16] ^= 0xFF  # a wrong CRC
    assert scan(bytes(content)).verdict is PickleVerdict.DANGEROUS


DEEP = SYSTEM
for _ in range(9):
    DEEP = zipped({"x": DEEP})


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (DEEP, {}),
        (pickle.dumps(list(range(1000))), {"opcodes": 100}),
        (b"7z\xbc\xaf\x27\x1c" + bytes(100), {}),
        (b"\x28\xb5\x2f\xfd" + bytes(100), {}),
        (gzip.compress(bytes(65 << 20)), {}),
        (zipped({"x": SYSTEM}, zipfile.ZIP_BZIP2), {}),
    ],
    ids=["too deep", "too many opcodes", "7z", "zstandard", "gzip bomb", "zip of bzip2"],
)
def test_nothing_is_passed_over_in_silence(content: bytes, options: dict[str, Any], scan: Scan) -> None:
    found = scan(content, **options)
    assert found.unscanned
    assert all(part.reason for part in found.unscanned)


def test_what_cannot_be_expanded_is_told_once(scan: Scan) -> None:
    content = bytearray(gzip.compress(pickle.dumps([1]), mtime=0))
    content[-6] ^= 1
    (part,) = scan(bytes(content), "words.pkl.gz").unscanned
    assert "damaged" in part.reason


def test_what_stands_behind_an_unreadable_member_is_looked_into(scan: Scan) -> None:
    content = bytearray(zipped({"a": bytes(100), "b": SYSTEM}))
    content[content.index(b"PK\1\2") + 10] = content[8] = zipfile.ZIP_BZIP2
    found = scan(bytes(content))
    assert [part.where for part in found.unscanned] == ["notes.bin!a"]
    assert found.verdict is PickleVerdict.DANGEROUS


@pytest.mark.parametrize("cut", range(0, 100, 7))
def test_a_truncated_pickle_is_judged_by_what_it_would_have_done(cut: int, scan: Scan) -> None:
    content = pickle.dumps([Call(os.system, "id"), list(range(30))], protocol=2)
    stop = len(content) * cut // 100
    rest = PickleVerdict.NEEDS_TRUST if stop else PickleVerdict.SAFE
    # Python's unpickler takes a last line without its newline, and then without its last character.
    is_imported = b"cposix\n" in content[:stop]
    expected = PickleVerdict.DANGEROUS if is_imported else rest
    assert scan(content[:stop]).verdict is expected
