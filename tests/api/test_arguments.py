"""Arguments of the Python API: a wrong value is a UsageError that names its argument, before anything is done."""

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import has_code

import marpack
from marpack.api.declaring import valid
from marpack.api.operations import archive_of, limits_of
from marpack.api.options import SignOptions
from marpack.api.session_options import CheckOptions
from marpack.archive.protocol import Limits, no_progress
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
    (lambda: API.build(force=1), "force"),
    (lambda: API.build(extra_files=[5]), "extra_files"),
    (lambda: API.build(archive_format="zip"), "archive_format"),
    (lambda: API.check(tolerance="x"), "tolerance"),
    (lambda: API.check(tolerance=-1e-9), "tolerance"),
    (lambda: API.check(tolerance=math.nan), "tolerance"),
    (lambda: API.check(tolerance=True), "tolerance"),
    (lambda: API.check(compile=None), "compile"),
    (lambda: API.check(hermetic="yes"), "hermetic"),
    (lambda: API.check(stand_ins=True), "stand_ins"),
    (lambda: API.check(seconds_per_check=math.inf), "seconds_per_check"),
    (lambda: API.check(max_opcodes=1 << 63), "max_opcodes"),
    (lambda: API.check(only="samples"), "only"),
    (lambda: API.check(allow_unproved=["all"]), "allow_unproved"),
    (lambda: API.load(timeout=0), "timeout"),
    (lambda: API.load(timeout="5"), "timeout"),
    (lambda: API.load(target="torchserv"), "target"),
    (lambda: API.load(device=0), "device"),
    (lambda: API.inspect(b"x.mar"), "source"),
    (lambda: API.inspect(max_size=-1), "max_size"),
    (lambda: API.init("new", labels=5), "labels"),
    (lambda: API.run(inputs=["x"], max_memory=10**30), "max_memory"),
    (lambda: API.run(inputs=["x"], batch_size=1.5), "batch_size"),
    (lambda: API.run(inputs=["x"], batch_size=True), "batch_size"),
    (lambda: API.run(inputs=["x"], workers=0), "workers"),
    (lambda: API.sign("x.mar", key=b"x", password=5), "password"),
    (lambda: API.Scorer("x.mar", SCORER, isolate="no"), "isolate"),
    (lambda: API.Scorer("x.mar", {"text": "t"}), "mapping"),
    (lambda: API.Scorer(None, SCORER), "archive"),
    (lambda: API.RowMapping(json="features"), "json"),
    (lambda: API.RowMapping(text=5), "text"),
    (lambda: API.RowMapping(text="t", keep="id"), "keep"),
    (lambda: API.RowMapping(text="t", select={"a": 5}), "select"),
    (lambda: API.RowMapping(json=("a",), types={"a": "number"}), "types"),
    (lambda: API.RowMapping(text="t", headers={"A": "b"}), "headers"),
    (lambda: API.RowMapping(text="t", explain="no"), "explain"),
]


def test_a_wrong_value_names_its_argument_and_the_remedy() -> None:
    for call, argument in WRONG:
        with pytest.raises(UsageError) as caught:
            call()
        assert (caught.value.where, caught.value.code, caught.value.exit_code) == (argument, "usage", 2)
        assert argument in str(caught.value.hint) or "Did you mean" in str(caught.value.hint)


UNUSABLE: list[tuple[Callable[[], object], str | None]] = [  # a call, and the place of its error
    (lambda: API.load(".", device="gpu"), "--device"),
    (lambda: API.run("."), "inputs"),
    (lambda: API.run(".", "text"), "inputs"),
    (lambda: API.run(".", ["a", {1}]), "inputs[1]"),
    (lambda: API.run(".", [Path()]), "."),
    (lambda: API.check(".", inputs=[Path("gone.png")]), "gone.png"),
    (lambda: API.check(".", only=["sample"]), None),
    (lambda: API.check(".", against="x.mar"), "x.mar"),
    (lambda: API.inspect("gone.mar"), "gone.mar"),
    (lambda: API.unpack("."), "."),
    (lambda: API.build(model_name="m", version="1", handler="h.py", extra_files=["a,b"]), "extra_files: a,b"),
    (lambda: API.build(".", model_name="m"), None),
    (lambda: API.build(model_name="m"), None),
    (lambda: API.init("new", template="vision"), None),
    (lambda: API.init(from_="x.mar", name="m"), None),
]


@pytest.mark.parametrize("number", range(len(UNUSABLE)))
def test_an_unusable_value_is_an_error_of_one_line(number: int, tmp_path: Path) -> None:
    (tmp_path / "marpack.yaml").write_text("name: low\nversion: '1.0'\nhandler: handler.py\n")
    (tmp_path / "handler.py").write_text("def handle(data, context):\n    return data\n")
    call, where = UNUSABLE[number]
    with pytest.raises(UsageError) as caught:
        call()
    assert where is None or caught.value.where == where
    assert "\n" not in str(caught.value)


def test_values_of_other_types_that_fit_are_taken(tmp_path: Path) -> None:
    assert API.RowMapping(path="p", root=tmp_path).root == tmp_path
    given = valid(CheckOptions(tolerance=np.float64(0.5), only=["loads"], against=tmp_path))  # type: ignore[arg-type]
    assert (given.tolerance, given.only, given.against) == (0.5, ("loads",), str(tmp_path))


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(SignOptions("x.mar", key=b"secret key", password="secret"))


def test_limits_that_are_not_given_are_the_defaults() -> None:
    assert limits_of() == Limits()
    assert limits_of(max_members=1, max_ratio=3) == Limits(members=1, ratio=3)
    assert limits_of(max_size=2) == Limits(total=2)


def test_a_source_is_an_archive_an_address_or_a_project(tmp_path: Path) -> None:
    (tmp_path / "any.mar").touch()
    for source in ("https://host/digits.mar", str(tmp_path / "any.mar")):
        assert archive_of(source, no_progress) == source  # without opening it
    for source in ("gone.mar", "a\0b"):
        with pytest.raises(UsageError, check=has_code("source-not-found", where=source)):
            archive_of(source, no_progress)
    (tmp_path / "marpack.yaml").write_text("name: m\nversion: '1.0'\nhandler: handler.py\n")
    (tmp_path / "handler.py").write_text("def handle(data, context):\n    return data\n")
    assert archive_of(None, no_progress) == archive_of(".", no_progress) == Path("m.mar")
