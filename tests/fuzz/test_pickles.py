"""The oracle at work: what marpack says of pickles, compared with what Python's unpicklers do with them."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from fuzz.oracle import VARIANTS, compare
from fuzz.run_oracle import one_bare, one_wrapped
from fuzz.streams import Maker
from fuzz.unpicklers import JOBLIB, bounded, load_all
from fuzz.wrapped import Case, compare_wrapped

from marpack.weights.pickle import _Machine

# Each was called data, safe or something else than what an unpickler made of it.
CASES = {
    "a line across a frame's end": b"\x95\x08\0\0\0\0\0\0\0cposix\nmkdir\n)R.",
    "a text across a frame's end": b"\x95\7\0\0\0\0\0\0\0X\4\0\0\0coevil\x8c\3Net\x93)R.",
    "a memo place across a frame's end": b"cme\nNet\nq\x020\x95\2\0\0\0\0\0\0\0g12\n)R.",
    "a frame within a frame": b"\x95\x0c\0\0\0\0\0\0\0\x95\x09\0\0\0\0\0\0\0NN0cposix\nmkdir\n)R.",
    "APPENDS of nothing to an import": b"cme\nNet\n(e.",
    "REDUCE of a number by an import": b"K\1cme\nnumbers\nR.",
    "BUILD of a tuple by an import's items": b"N\x85Ncme\nNet\n\x86b.",
    "NEWOBJ_EX of a number by an import's keywords": b"K\1)cme\nkeywords\n\x92.",
}


WRAPPER = b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n"
NUMBERS = b"cnumpy\ndtype\nU\2f8\x89\x88\x87R(K\3U\1<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
OBJECTS = b"cnumpy\ndtype\nU\2O8\x89\x88\x87R(K\3U\1|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK?tb"
HIDDEN = b"0cme\nNet\n)R0"


def array(dtype: bytes, more: bytes = b"", wrapper: bytes = WRAPPER + b")\x81") -> bytes:
    return wrapper + b"}(U\5shapeK\1\x85U\5dtype" + dtype + more + b"ub"


JOBLIB_CASES = {
    "read_array from the wrapper's state": array(NUMBERS, b"U\nread_arraycme\nread\n") + b"cme\nN\n)R.",
    "a class from the array's pickle": array(OBJECTS) + b"cbuiltins\nset\n.Na.",
    "a name of Python 2 in the array's pickle": b"\x80\4" + array(OBJECTS) + b"\x80\2c__builtin__\nset\n)R..",
    "padding that the constructor asks for": array(
        NUMBERS, wrapper=WRAPPER + b"(cnumpy\nndarray\nK\1\x85U\1C" + NUMBERS + b"tR"
    ) + bytes(8) + b"U)" + HIDDEN.ljust(41, b"N") + b"0.",
    "padding that an earlier state asks for": array(
        NUMBERS, wrapper=array(NUMBERS, b"U\x1bnumpy_array_alignment_bytesK\x10", WRAPPER + b")\x81q\0")
        + bytes(9) + b"0h\0",
    ) + bytes(8) + b"U)" + HIDDEN.ljust(41, b"N") + b"0.",
    "an import behind the array for pickle.load": array(NUMBERS, b"U\5ordercme\nC\n") + b"cme\nNet\n.",
    "a forged dtype": array(NUMBERS.replace(b"K\0tb", b"K?tb")) + b"cme\nNet\n.",
}  # fmt: skip


@pytest.mark.parametrize("name", JOBLIB_CASES)
def test_what_joblib_does_is_reported(name: str) -> None:
    case = Case(JOBLIB_CASES[name], ("bare",), "a.joblib", tuple(VARIANTS))
    assert list(compare_wrapped(case)) == []
    assert any(load.events or load.imports for load in load_all(case.data, JOBLIB))


@pytest.mark.parametrize("name", CASES)
def test_what_the_oracle_found_stays_found(name: str) -> None:
    assert list(compare(CASES[name], VARIANTS)) == []
    assert any(load.events for variant in VARIANTS for load in load_all(CASES[name], variant))


def test_the_walk_reports_all_that_unpicklers_do() -> None:
    maker, seen = Maker("day"), Counter[str]()
    with bounded():
        failures = [failure for _ in range(2500) for failure in one_bare(maker, seen)]
        failures += [failure for _ in range(50) for failure in one_wrapped(maker, seen)]
    assert failures == []
    assert seen["loads that call"] > 500


@pytest.mark.slow
def test_the_walk_reports_all_that_unpicklers_do_in_many_files() -> None:
    command = [sys.executable, "-m", "fuzz.run_oracle", "--bare", "30000", "--wrapped", "300"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["loads that call"] > 6_000


@pytest.mark.parametrize("method", ["import_name", "call", "note_change", "note_iteration", "leave_frame"])
@pytest.mark.slow
def test_a_walk_that_overlooks_something_is_found(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    monkeypatch.setattr(_Machine, method, lambda *_: None)
    maker = Maker("planted")
    with bounded():
        assert any(list(compare(maker.stream(), VARIANTS)) for _ in range(4000))
