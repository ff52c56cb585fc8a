"""Arguments of the Python API: each wrong value is a UsageError that names its argument, before anything is done."""

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import marpack
from marpack.api.options import SignOptions
from marpack.errors import UsageError

API: Any = marpack  # called as no type checker would let it
FUNCTIONS: dict[str, dict[str, Any]] = {  # → the arguments that it needs
    "build": {},
    "check": {},
    "diff": {"before": ".", "after": "."},
    "doctor": {},
    "export": {"to": "docker"},
    "init": {},
    "inspect": {},
    "load": {},
    "open": {},
    "pull": {"reference": "oci://127.0.0.1:1/x:1"},
    "push": {"source": "x.mar", "reference": "oci://127.0.0.1:1/x:1"},
    "run": {"inputs": ["x"]},
    "sign": {"archive": "x.mar", "key": b"x"},
    "unpack": {"source": "x.mar"},
    "verify": {"archive": "x.mar", "key": b"x"},
}
ARGUMENTS = [(name, argument) for name in FUNCTIONS for argument in inspect.signature(getattr(API, name)).parameters]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_an_object_is_no_argument() -> None:
    for name, argument in ARGUMENTS:
        with pytest.raises(UsageError) as caught:
            getattr(API, name)(**FUNCTIONS[name] | {argument: object()})
        assert (caught.value.where, caught.value.code, caught.value.exit_code) == (argument, "usage", 2), name


SCORER = marpack.RowMapping(text="t")
WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: API.build(vendor_platform="x"), "vendor_platform"),
    (lambda: API.build(vendor_python=3.9), "vendor_python"),
    (lambda: API.build(strict="no"), "strict"),
    (lambda: API.build(force=1), "force"),
    (lambda: API.build(extra_files=[5]), "extra_files"),
    (lambda: API.build(extra_files=5), "extra_files"),
    (lambda: API.check(tolerance="x"), "tolerance"),
    (lambda: API.check(tolerance=-1e-9), "tolerance"),
    (lambda: API.check(tolerance=math.nan), "tolerance"),
    (lambda: API.check(tolerance=True), "tolerance"),
    (lambda: API.check(compile="off"), "compile"),
    (lambda: API.check(compile=None), "compile"),
    (lambda: API.check(hermetic="yes"), "hermetic"),
    (lambda: API.check(stand_ins=True), "stand_ins"),
    (lambda: API.check(seconds_per_check=math.inf), "seconds_per_check"),
    (lambda: API.check(max_opcodes=1 << 63), "max_opcodes"),
    (lambda: API.load(timeout=math.inf), "timeout"),
    (lambda: API.load(trust_url="no"), "trust_url"),
    (lambda: API.run(inputs=["x"], max_memory=10**30), "max_memory"),
    (lambda: API.run(inputs=["x"], fail_fast="no"), "fail_fast"),
    (lambda: API.run(inputs=["x"], trace=0), "trace"),
    (lambda: API.push("x.mar", "oci://127.0.0.1:1/x:1", attach="x.sig"), "attach"),
    (lambda: API.sign("x.mar", key=b"x", password=5), "password"),
    (lambda: API.verify("x.mar", key=b"x", allow_unsigned="no"), "allow_unsigned"),
    (lambda: API.doctor(clear_cache="no"), "clear_cache"),
    (lambda: API.Scorer("x.mar", SCORER, isolate="no"), "isolate"),
    (lambda: API.RowMapping(json="features"), "json"),
    (lambda: API.RowMapping(json_object="features"), "json_object"),
    (lambda: API.RowMapping(text=5), "text"),
    (lambda: API.RowMapping(text="t", keep="id"), "keep"),
    (lambda: API.RowMapping(text="t", select={"a": 5}), "select"),
    (lambda: API.RowMapping(json=("a",), types={"a": "number"}), "types"),
    (lambda: API.RowMapping(text="t", headers={"A": "b"}), "headers"),
    (lambda: API.RowMapping(text="t", explain="no"), "explain"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_a_wrong_value_is_told_with_its_argument_and_what_to_do(number: int) -> None:
    call, argument = WRONG[number]
    with pytest.raises(UsageError) as caught:
        call()
    assert (caught.value.where, caught.value.code, caught.value.exit_code) == (argument, "usage", 2)
    assert argument in str(caught.value.hint)


def test_a_root_may_be_a_path(tmp_path: Path) -> None:
    assert API.RowMapping(path="p", root=tmp_path).root == tmp_path


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(SignOptions("x.mar", key=b"secret key", password="secret"))
