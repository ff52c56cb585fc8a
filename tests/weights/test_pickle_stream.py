"""Laws of reading pickles, on whatever torch and pickle write."""

import collections
import io
import pickle
import pickletools
import time
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from marpack.weights.pickle_machine import read_pickle
from marpack.weights.pickle_stream import Global, PickledCall, PickledDict
from marpack.weights.torch_zip import TorchZip
from marpack.weights.weights_only import disallowed, loads_weights_only

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
    return TorchZip.read(buffer)


@settings(max_examples=100, deadline=None)
@given(VALUES)
def test_what_torch_loads_with_weights_only_is_known_to_load(value: Any) -> None:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    torch.load(buffer, weights_only=True)

    stream = TorchZip.read(buffer).pickle("data.pkl")

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

    stream = TorchZip.read(buffer).pickle("data.pkl")

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


def test_a_limit_is_a_number_of_opcodes() -> None:
    data = pickle.dumps([1, 2, 3])
    count = sum(1 for _ in pickletools.genops(data))

    assert read_pickle(io.BytesIO(data), limit=count).problem is None
    assert read_pickle(io.BytesIO(data), limit=count - 1).opcodes == count - 1


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
    assert stream.root.get("c").made_by("torch._utils._rebuild_tensor_v2")
    assert stream.imports == (
        Global("torch._utils", "_rebuild_tensor_v2"),
        Global("torch", "FloatStorage"),
        Global("collections", "OrderedDict"),
    )


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
        (b"I1x\n.", "cannot be read"),
        (b"K\x01K\x02R.", "no function"),
        (b"K\x01K\x02\x93.", "no text"),
        (b"c a\nb\n.", "no such name"),
        (b"\xff", "no opcode"),
        (b"\x97.", "buffers"),
        (b"Sx\n.", "no quotes"),
        (b"\x8b\xff\xff\xff\xff", "middle of an opcode"),
        (b"\x96" + b"\xff" * 8, "middle of an opcode"),
    ],
)
def test_what_breaks_off_says_why(data: bytes, problem: str) -> None:
    stream = read_pickle(io.BytesIO(data))

    assert problem in str(stream.problem)
    assert stream.root is None


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

    stream = read_pickle(io.BytesIO(b"]" + b"]a" * 0 + b"\x85" * 200_000 + b"."))

    assert stream.problem is None
    assert list(placed_tensors(stream.root)) == []
