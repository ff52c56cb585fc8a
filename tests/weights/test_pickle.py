"""Laws of reading pickles, on whatever torch and pickle write."""

import collections
import inspect
import io
import pickle
import pickletools
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from marpack.weights.contents import TorchZip
from marpack.weights.pickle import (
    ALLOWED,
    OPCODES,
    WEIGHTS_ONLY_OPCODES,
    Global,
    OpcodeBudget,
    Persistent,
    PickledCall,
    PickledDict,
    Skipped,
    disallowed,
    loads_weights_only,
    read_pickle,
)

# Empty bytes are pickled as a call of builtins.bytes, which torch refuses, and so it is said.
PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(min_size=1), st.complex_numbers()
)
TENSORS = st.sampled_from([torch.float32, torch.int64, torch.bfloat16, torch.bool, torch.complex64]).map(
    lambda dtype: torch.zeros(2, 3, dtype=dtype)
)
VALUES = st.recursive(
    st.one_of(PLAIN, TENSORS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(max_size=8), inner, max_size=4),
        st.dictionaries(st.text(max_size=8), inner, max_size=4).map(collections.OrderedDict),
        st.tuples(inner, inner),
    ),
    max_leaves=12,
)


class Foreign:
    """What no allow-list knows."""


def saved(value: Any) -> TorchZip:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return TorchZip(buffer)


@settings(max_examples=100, deadline=None)
@given(VALUES)
def test_what_torch_loads_with_weights_only_is_known_to_load(value: Any) -> None:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    torch.load(buffer, weights_only=True)
    stream = TorchZip(buffer).pickle("data.pkl")
    assert loads_weights_only(stream)
    assert disallowed(stream.imports) == ()


@settings(max_examples=50, deadline=None)
@given(VALUES)
def test_what_torch_refuses_is_known_to_be_refused(value: Any) -> None:
    buffer = io.BytesIO()
    torch.save([value, Foreign()], buffer)
    buffer.seek(0)
    with pytest.raises(pickle.UnpicklingError):
        torch.load(buffer, weights_only=True)
    stream = TorchZip(buffer).pickle("data.pkl")
    assert not loads_weights_only(stream)
    assert [item.name for item in disallowed(stream.imports)] == ["Foreign"]


@settings(max_examples=100, deadline=None)
@given(VALUES.filter(lambda value: not isinstance(value, torch.Tensor)), st.integers(0, 5))
def test_opcodes_and_ends_are_those_that_pickletools_counts(value: Any, protocol: int) -> None:
    data = pickle.dumps(value, protocol=protocol)
    stream = read_pickle(io.BytesIO(data + b"rest"))
    assert stream.problem is None
    assert stream.opcodes == sum(1 for _ in pickletools.genops(data))
    assert stream.end == len(data)


WORDS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.lists(inner, max_size=4).map(tuple), st.dictionaries(st.text(), inner)
    ),
    max_leaves=12,
)
MANY = [[number] for number in range(300)]  # more than one byte counts


def rebuilt(value: Any) -> Any:
    """Return a value as Python would have it."""
    match value:
        case PickledDict(items=items):
            return {rebuilt(key): rebuilt(item) for key, item in items}
        case list() | tuple():
            return type(value)(map(rebuilt, value))
    return value


@settings(max_examples=100, deadline=None)
@given(WORDS, st.integers(0, 5))
@example([MANY, MANY[::-1], {str(number): row for number, row in enumerate(MANY)}], 0)
@example([MANY, MANY[::-1], {str(number): row for number, row in enumerate(MANY)}], 1)
@example([MANY, MANY[::-1], {str(number): row for number, row in enumerate(MANY)}], 4)
@example([1 << 3000, -1 << 3000, 1 << 31, -1 << 31, 1 << 16, 1 << 8, -1], 2)
@example(["\ud800", "\\n\n\r\x1a", "é" * 200], 0)
@example([b"ab", b"c" * 300, "d" * 300, {}, (), [], (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)], 3)
def test_plain_values_are_what_python_reads(value: Any, protocol: int) -> None:
    stream = read_pickle(io.BytesIO(pickle.dumps(value, protocol=protocol)))
    assert repr(rebuilt(stream.root)) == repr(value)
    assert (stream.imports, stream.computed, stream.indirect, stream.acts) == ({}, False, False, False)


SYSTEM = b"cos\nsystem\n"


@pytest.mark.parametrize(
    ("data", "root"),
    [
        (b"K\x01K\x020.", 1),  # POP
        (b"K\x01(K\x02K\x031.", 1),  # POP_MARK
        (b"K\x01(0.", 1),  # POP of a mark
        (b"(K\x01K\x022l.", [1, 2, 2]),  # DUP
        (b"(K\x01l(K\x02K\x03e.", [1, 2, 3]),
        (b"]K\x01aK\x02a.", [1, 2]),
        (b"(K\x01K\x02d.", {1: 2}),
        (b"}K\x01K\x02sK\x03K\x04s.", {1: 2, 3: 4}),
        (b"}(K\x01K\x02K\x03K\x04u.", {1: 2, 3: 4}),
        (b"\x8f(K\x01K\x02\x90.", [1, 2]),  # a set
        (b"(K\x01K\x02\x91.", [1, 2]),  # a frozen one
        (b"K\x01p300\nK\x02\x85g300\n\x86.", ((2,), 1)),
        (b"K\x01r\x2c\x01\0\0K\x02\x85j\x2c\x01\0\0\x86.", ((2,), 1)),
        (b"K\x07\x94K\x08\x94h\x00h\x01\x87.", (8, 7, 8)),  # memoized as 0 and 1
        (b"I00\nI01\nI02\n\x87.", (False, True, 2)),
        (b"I0x10\nI0o17\nI0b11\n\x87.", (16, 15, 3)),  # C's and Python's base 0
        (b"I 12 \nI1_000\nI-7\n\x87.", (12, 1000, -7)),
        (b"I12\0rest\nL12L\0rest\nF1.5\0rest\n\x87.", (12, 12, 1.5)),  # C's ends at a NUL
        (b"I\0\n.", 0),
        (b"I017\nI" + b"9" * 5000 + b"\n\x86.", (15, Skipped(5000))),  # C's octal; Python reads 4,300 digits
        (b"F 1_0.5 \n.", 10.5),
        (b"K\x07p 007 \nK\x080g7\n.", 7),
        (b"K\x07p1_0\nK\x080h\x0a.", 7),
        (b"K\x07p00000000000000000000000000000000001\nK\x080h\x01.", 7),
        (b"K\x07p12345678901234567890\nK\x080g+12345678901234567890\n.", 7),
        (b"L5L\nF1.5\n\x86.", (5, 1.5)),
        (b"S'a\\n\\x41\\101\\'\\q'\n.", "a\nAA'\\q"),  # an escape of no meaning is left
        (b'S"\\777\\0"\n.', "\xff\0"),
        (b"S''\n.", ""),
        (b"T\x01\0\0\0\xe9U\x01\xe9\x86.", ("é", "é")),  # Python 2's, by latin-1
    ],
)
def test_opcodes_that_few_picklers_write(data: bytes, root: object) -> None:
    assert rebuilt(read_pickle(io.BytesIO(data)).root) == root
    assert read_pickle(io.BytesIO(b"??" + data + b"??"), 2).end == 2 + len(data)


@pytest.mark.parametrize(
    ("data", "args"),
    [
        (SYSTEM + b"K\x01\x85R.", (1,)),
        (SYSTEM + b"K\x01\x85\x81.", (1,)),
        (SYSTEM + b"K\x01\x85}\x92.", ((1,), {})),
        (b"(" + SYSTEM + b"K\x01o.", (1,)),
        (b"(K\x01ios\nsystem\n.", (1,)),
        (b"\x8c\x02os\x8c\x06system\x93)R.", ()),
    ],
)
def test_every_way_of_calling_is_a_call(data: bytes, args: object) -> None:
    stream = read_pickle(io.BytesIO(data))
    assert isinstance(stream.root, PickledCall)
    assert stream.root.calls("os.system")
    assert rebuilt(stream.root.args if len(stream.root.args) < 2 else tuple(stream.root.args)) == args
    assert (stream.acts, list(stream.imports), stream.indirect) == (True, [Global("os", "system")], False)


def test_what_is_put_into_a_call_is_kept_with_it() -> None:
    stream = read_pickle(io.BytesIO(SYSTEM + b")RK\x01aK\x02K\x03sK\x04b."))
    assert isinstance(stream.root, PickledCall)
    assert (stream.root.values, stream.root.items, stream.root.state) == ([1], [(2, 3)], 4)


def test_a_result_that_is_called_is_indirect() -> None:
    stream = read_pickle(io.BytesIO(SYSTEM + b")R)R."))
    assert stream.indirect
    assert stream.acts


@pytest.mark.parametrize("data", [b"\x82\x05", b"\x83\x05\0", b"\x84\x05\0\0\0"])
def test_an_extension_is_an_import_that_does_not_hide_the_next(data: bytes) -> None:
    stream = read_pickle(io.BytesIO(data + b"0" + SYSTEM + b"."))
    assert stream.problem is None
    assert list(stream.imports) == [Global("copyreg", "extension_5"), Global("os", "system")]


@pytest.mark.parametrize("opcode", [b"X", b"T", b"B"])
def test_texts_are_kept_up_to_a_length(opcode: bytes) -> None:
    for length in (4096, 4097):
        stream = read_pickle(io.BytesIO(opcode + length.to_bytes(4, "little") + b"a" * length + b"K\x01\x86."))
        assert stream.root[1] == 1
        assert (stream.root[0] == Skipped(length)) is (length > 4096)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"'a'", "a"),
        (b' "a" ', "a"),
        (b"''", ""),
        (b"'a", None),
        (b"'", None),
        (b"a'", None),
        (b"", None),
        (b"aa", None),
    ],
)
def test_a_quoted_text_has_a_quote_at_either_end(line: bytes, text: str | None) -> None:
    stream = read_pickle(io.BytesIO(b"S" + line + b"\n."))
    assert stream.root == text
    assert bool(stream.problem) is (text is None)


@pytest.mark.parametrize(
    "part", [b"cstring\nascii_letters\n", b"cme\nNAME\n", SYSTEM + b")R", b"Pkey\n", b"X\x88\x13\0\0" + b"a" * 5000]
)
def test_a_name_that_may_be_text_is_computed(part: bytes) -> None:
    for data in (part + b"Va\n\x93.", b"Va\n" + part + b"\x93."):
        stream = read_pickle(io.BytesIO(data))
        assert (stream.problem, stream.computed) == (None, True)


@pytest.mark.parametrize(
    "wrapper", [b"joblib.numpy_pickle\nNumpyArrayWrapper\n", b"joblib\nnumpy_pickle.NumpyArrayWrapper\n"]
)
def test_what_follows_a_raw_array_of_joblibs_is_not_read(wrapper: bytes) -> None:
    for make in (b"c" + wrapper + b")\x81", b"ccopyreg\n_reconstructor\n(c" + wrapper + b"cbuiltins\nobject\nNtR"):
        stream = read_pickle(io.BytesIO(b"\x80\x04(" + make + b"}b" + SYSTEM + b")R."))
        assert (stream.unfollowed, stream.is_data) == (True, False)
        assert Global("os", "system") not in stream.imports


def test_storages_are_those_that_are_referred_to() -> None:
    storages = saved([torch.zeros(1), torch.ones(2)]).pickle("data.pkl").storages
    assert storages == {"0": ("FloatStorage", 1), "1": ("FloatStorage", 2)}
    data = b"(X\x07\0\0\0storagect\nLongStorage\nX\x01\0\0\0aNK\x01tQ."
    assert read_pickle(io.BytesIO(data)).storages == {"a": ("LongStorage", 1)}
    assert read_pickle(io.BytesIO(data.replace(b"storage", b"another"))).storages == {}
    assert read_pickle(io.BytesIO(b"Pkey\n.")).root == Persistent("key")


def test_a_limit_is_a_number_of_opcodes() -> None:
    data = pickle.dumps([1, 2, 3])
    count = sum(1 for _ in pickletools.genops(data))
    assert read_pickle(io.BytesIO(data), limit=count).problem is None
    cut = read_pickle(io.BytesIO(data), limit=count - 1)
    assert (cut.opcodes, cut.unfollowed, cut.is_data) == (count - 1, True, False)
    assert not read_pickle(io.BytesIO(data[:-1]), limit=count).unfollowed


def test_a_budget_is_spent_by_all_pickles_together() -> None:
    data = pickle.dumps(list(range(50)))
    count = sum(1 for _ in pickletools.genops(data))
    budget = OpcodeBudget(2 * count - 1)
    assert [budget.read(io.BytesIO(data)).unfollowed for _ in range(3)] == [False, True, True]
    assert budget.left <= 0
    assert budget.count == 2 * count - 1


def test_a_pickle_costs_more_than_its_opcodes() -> None:
    budget = OpcodeBudget(100)
    assert [budget.read(io.BytesIO(b"N.")).unfollowed for _ in range(5)] == [False] * 4 + [True]


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_at_all_are_answered(data: bytes) -> None:
    stream = read_pickle(io.BytesIO(b"\x80\x04" + data), limit=1000)
    assert stream.end <= len(data) + 2


def test_values_keep_their_shape() -> None:
    stream = saved({"a": [1, (2.5, None)], "b": "text", "c": torch.zeros(1)}).pickle("data.pkl")
    assert isinstance(stream.root, PickledDict)
    assert stream.root.get("a") == [1, (2.5, None)]
    assert stream.root.get("b") == "text"
    assert isinstance(stream.root.get("c"), PickledCall)
    assert stream.root.get("c").calls("torch._utils._rebuild_tensor_v2")
    assert list(stream.imports) == [
        Global("torch._utils", "_rebuild_tensor_v2"),
        Global("torch", "FloatStorage"),
        Global("collections", "OrderedDict"),
    ]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "ends before its STOP"),
        (b"\x80", "middle of an opcode"),
        (b"\x80\x09.", "protocol does not exist"),
        (b"X\x10\0\0\0ab", "middle of an opcode"),
        (b"0", "MARK is missing"),
        (b"R", "stack runs empty"),
        (b"h\x05.", "never kept"),
        (b"I1x\n.", "invalid integer"),
        (b"K\x01K\x02R.", "not a function"),
        (b"K\x01K\x02\x93.", "not text"),
        (b"c\xff\nb\n.", "cannot be read"),
        (b"p1\n", "stack runs empty"),
        (b"Np-1\n", "negative"),
        (b"Npx\n", "not a number"),
        (b"g\n", "not a number"),
        (b"F1.5x\n", "cannot be read"),
        (b"S'a\\'\n.", "in the middle of an escape"),
        (b"S'\\x4'\n.", "in the middle of an escape"),
        (b"(K\x01d.", "no value"),
        (b"}(K\x01u.", "no value"),
        (b"K\x01(K\x02e.", "holds nothing"),
        (b"(K\x01ios", "ends before its STOP"),
        (b"(K\x01ios\nsystemX", "ends before its STOP"),
        (b"\xff", "not an opcode"),
        (b"Sx\n.", "no quotes"),
        (b"\x8b\xff\xff\xff\xff", "middle of an opcode"),
        (b"\x96" + b"\xff" * 8, "middle of an opcode"),
    ],
)
def test_what_breaks_off_says_why(data: bytes, problem: str) -> None:
    stream = read_pickle(io.BytesIO(data))
    assert problem in str(stream.problem)
    assert stream.root is None


@pytest.mark.parametrize("loads", [pickle.loads, pickle._loads])
def test_no_byte_is_unknown_that_an_unpickler_knows(loads: Callable[[bytes], object]) -> None:
    """What breaks off at the first byte for us breaks off there for C's unpickler and for Python's."""
    for code in range(256):
        if code in OPCODES:
            continue
        with pytest.raises((pickle.UnpicklingError, KeyError)):
            loads(bytes([code]) + b"N.")


@pytest.mark.parametrize(
    ("data", "acts", "is_data"),
    [
        (SYSTEM + b")R\xff", True, False),
        (SYSTEM + b"(K\x01K\x02u\xff", True, False),  # os.system[1] = 2
        (SYSTEM + b"}b\xff", True, False),
        (b"(K\x01ios\nsystemX", True, False),  # a last line needs no newline
        (SYSTEM + b"K\x01a\xff", True, False),
        (SYSTEM + b"\xff", False, True),  # only imported
        (SYSTEM + b"Va\nR\xff", True, False),  # Python's unpickler calls with any iterable
        (b"(i) one\n(ii) two\n\xff", True, False),
        (b"c\nb\n)R\xff", True, False),  # Python's unpickler imports an empty name
        (b"(cos\n", False, True),
        (b"(ios\n", True, False),  # the file ends in place of the name
        (SYSTEM + b"(K\x01u\xff", True, False),  # a key without a value
        (b"Pa\n)R\xff", False, True),  # what the loader returns for an id is not imported
        (b"K\x01)R", False, True),  # a number is not called
        (b"]K\x01a}K\x01K\x02sb\xff", False, True),
        (b"(" * 100_001, False, False),
        (b"V" + b"a" * 5_000_000 + b"\n.", False, False),
        (b"c" + b"a" * 1_000_000 + b"\nb\n\xff", False, True),
        (b"".join(b"ca\nb%d\n0" % number for number in range(10_001)), False, False),
        (b"X\x88\x13\0\0" + b"a" * 5000 + b"Va\n\x93\xff", False, False),  # a name too long to keep
        (b"\x80\x04\x95\xff\0\0\0\0\0\0\0N.N.", False, False),  # a frame beyond its STOP
    ],
)
def test_what_breaks_off_is_data_if_it_did_nothing_and_everybody_breaks_off_there(
    data: bytes, acts: bool, is_data: bool
) -> None:
    stream = read_pickle(io.BytesIO(data))
    assert stream.problem is not None
    assert (stream.acts, stream.is_data) == (acts, is_data)


def test_what_it_imports_and_then_changes_is_known() -> None:
    stream = read_pickle(io.BytesIO(b"cos\nenviron\nVa\nVb\ns."))
    assert list(stream.changes) == [Global("os", "environ")]


def test_long_strings_are_jumped_over() -> None:
    class Counting(io.BytesIO):
        total = 0

        def read(self, size: int | None = -1) -> bytes:
            data = super().read(size)
            self.total += len(data)
            return data

    file = Counting(pickle.dumps([b"x" * 5_000_000, "y" * 5_000_000, "end"]))
    stream = read_pickle(file)
    assert stream.problem is None
    assert stream.root[2] == "end"
    assert file.total < 100_000


def test_numbers_chosen_to_collide_cost_no_more_than_others() -> None:
    prime = (1 << 61) - 1  # Python's hash of its multiples is 0
    file = io.BytesIO(b"N" + b"".join(b"p%d\n" % (count * prime) for count in range(40_000)) + b".")
    before = time.process_time()
    assert read_pickle(file).problem is None
    assert time.process_time() - before < 3  # seconds; a dict by number takes over ten


def test_a_shared_structure_costs_what_it_is_stored_in() -> None:
    """Forty doublings would be a trillion values if they were followed one by one."""
    from marpack.weights.tensors import placed_tensors

    value: Any = [torch.zeros(1)]
    for _ in range(40):
        value = [value, value]
    assert len(list(placed_tensors(saved(value).pickle("data.pkl").root))) == 1


def test_a_deep_structure_is_no_recursion() -> None:
    from marpack.weights.tensors import placed_tensors

    stream = read_pickle(io.BytesIO(b"]" + b"\x85" * 200_000 + b"."))
    assert stream.problem is None
    assert list(placed_tensors(stream.root)) == []


def test_the_allow_list_is_torchs_own() -> None:
    assert set(torch._weights_only_unpickler._get_allowed_globals()) == ALLOWED


def test_the_opcodes_are_those_that_torchs_unpickler_knows() -> None:
    source = inspect.getsource(torch._weights_only_unpickler.Unpickler)
    names = set(re.findall(r"\b([A-Z][A-Z_0-9]+)\[0\]", source))
    assert {getattr(pickle, name)[0] for name in names} == WEIGHTS_ONLY_OPCODES
