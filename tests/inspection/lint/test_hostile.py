"""Files that are made to break a reader: the checks end soon, raise nothing, and say what they could not look into."""

import gc
import io
import signal
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, BinaryIO

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inspection.lint.case import BASE, CLASS, NET, Case, Members, told
from inspection.lint.weights_files import bytes_of

from marpack.archive.manifest import Manifest, ManifestModel
from marpack.errors import DamagedArchiveError
from marpack.findings import Severity
from marpack.inspection.lint.linting import lint

PATIENCE = 120  # seconds; the slowest takes two on an idle machine


@pytest.fixture(autouse=True)
def _bounded() -> Iterator[None]:
    """Fail a test that does not end, instead of waiting for it."""

    def give_up(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError("this file is too much for the checks")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE)
    gc.disable()  # going through large trees again and again costs two fifths of the time
    yield
    gc.enable()
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def chain(count: int) -> str:
    """Return classes that each derive from the one before."""
    return "class A0: pass\n" + "".join(f"class A{i}(A{i - 1}): pass\n" for i in range(1, count))


def lattice(count: int) -> str:
    """Return classes whose resolution orders double with every line, to who does not remember them."""
    lines = ["class A0: pass", "class B0: pass"]
    lines += [f"class {x}{i}(A{i - 1}, B{i - 1}): pass" for i in range(1, count) for x in "AB"]
    return "\n".join(lines) + "\n"


SOURCES = {
    "open-parentheses": "(" * 100_000,
    "minus-signs": "-" * 100_000 + "1",
    "long-sum": "+".join("a" * 100_000),
    "long-attribute": "a" + ".b" * 100_000,
    "long-import": "import " + ".".join(["a"] * 100_000),
    "long-unicode-import": "import " + ".".join(["é"] * 50_000),
    "spaced-import": "import " + " . ".join(["a"] * 50_000),
    "long-word": "a" * 500_000,
    "elifs": "if 1: pass\n" + "elif x: pass\n" * 2_000,
    "nested-ifs": "".join(" " * i + "if x:\n" for i in range(99)) + " " * 99 + "pass\n",
    "branches-of-many-names": "".join(f"a{i} = 1\n" for i in range(10_000)) + "if x: pass\n" * 10_000,
    "branches-of-one-name": "if x: a = 1\n" * 7_000 + "if x: b = a\n" * 7_000,
    "many-imports": "".join(f"import nowhere{i}\n" for i in range(10_000)),
    "many-missing-names": "from handler import " + ", ".join(f"a{i}" for i in range(20_000)),
    "many-classes": "".join(f"class A{i}: pass\n" for i in range(10_000)),
    "chain-of-classes": chain(5_000) + "class H(A4999): pass\ndel " + ", ".join(f"A{i}" for i in range(5_000)),
    "lattice-of-classes": lattice(2_000) + "class H(A1999, B1999): pass\ndel " + ", ".join(
        f"{x}{i}" for i in range(2_000) for x in "AB"),
    "many-bases": "".join(f"class A{i}: pass\n" for i in range(3_000)) + "class H(" + ", ".join(
        f"A{i}" for i in range(3_000)) + "): pass\ndel " + ", ".join(f"A{i}" for i in range(3_000)),
    "own-base": "class H(H): pass\n",
    "stars-in-a-lattice": "from m0 import *\n" + CLASS.replace("handle", "handel"),
    "calls-of-a-large-function": "def f():\n" + "    x = 1\n" * 8_000 + "".join(
        f"A{i} = f()\n" for i in range(8_000)) + CLASS,
    "many-returns": "def handle(data, context):\n" + "    if data: return {}\n" * 20_000,
    "deep-returns": "def handle(data, context):\n    return " + "[" * 150 + "]" * 150 + "\n",
    "long-hint": f"from torch import *\nimport {'x' * 100_000}\n" + CLASS,
    "null": "\0" * 1000,
    "utf-7": "# coding: utf-7\nx = 1\n",
    "idna": "# coding: idna\nx = 1\n",
    "too-large": "x = 1\n" * 100_000,
}  # fmt: skip

STARS = {f"m{i}.py": "".join(f"from m{j} import *\n" for j in range(i + 1, i + 9)) for i in range(60)}


DAILY = ("elifs", "many-classes", "flat", "flow", "keys")


def marked(names: Iterable[str], *, daily: bool) -> list[Any]:
    """Return parameters of which those in DAILY, or all others, are not slow."""
    return [pytest.param(name, marks=() if (name in DAILY) is daily else pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", marked(SOURCES, daily=True))
def test_a_hostile_source_costs_little(name: str) -> None:
    Case(name, {"handler.py": SOURCES[name], **STARS}).findings()
    Case(name, {"handler.py": BASE, "model.py": SOURCES[name]}, model={"model_file": "model.py"}).findings()
    Case(name, {"handler.py": f"import inner\n{CLASS}", "inner.py": SOURCES[name]}).findings()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("too-large", "N source-unchecked handler.py"),
        ("long-import", "N source-unchecked handler.py"),
        ("utf-7", "N source-unchecked handler.py"),
        ("long-sum", "N source-unchecked handler.py"),
        ("branches-of-many-names", "E handler-no-entry handler.py"),  # looked into
    ],
)
def test_what_was_not_looked_into_is_said(name: str, expected: str) -> None:
    assert expected in told(Case(name, {"handler.py": SOURCES[name]}).findings())


def test_a_check_that_could_not_be_finished_is_said() -> None:
    files = {"handler.py": "from inner import A4999\nclass H(A4999): pass\n", "inner.py": chain(5_000)}
    assert "N check-gave-up handler.py" in told(Case("deep", files).findings())


def test_large_labels_and_requirements_are_not_looked_into() -> None:
    files = {"handler.py": CLASS, "index_to_name.json": b" " * ((16 << 20) + 1), "r.txt": b"#" * ((1 << 20) + 1)}
    found = told(Case("large", files, model={"requirements_file": "r.txt"}).findings())
    assert {"N labels-unchecked index_to_name.json", "E requirements-too-large r.txt"} <= set(found)


@pytest.mark.slow
def test_findings_of_one_rule_are_bounded() -> None:
    found = Case("many", {"handler.py": SOURCES["many-imports"]}).findings()
    assert [finding.code for finding in found].count("import-unlisted") == 100


@pytest.mark.slow
def test_sources_are_bounded_together() -> None:
    modules = {f"m{i}.py": f"x = 1  # {'long ' * 50}\n" * 900 for i in range(40)}
    handler = "".join(f"import m{i}\n" for i in range(40)) + CLASS
    found = told(Case("many", {"handler.py": handler, **modules}).findings())
    assert any(line.startswith("N sources-too-large") for line in found)


YAMLS = {
    "flow": "a: " + "[" * 30_000,
    "dashes": "- " * 30_000 + "x",
    "questions": "? " * 30_000 + "x",
    "flat": "a: [" + "b," * 30_000 + "]",
    "keys": "".join(f"k{i}: 1\n" for i in range(6_000)),
    "near-keys": "".join(f"batchSiz{i}: 1\n" for i in range(3_000)),
    "aliases": "a: &a [1]\nb: [" + "*a, " * 15_000 + "]",
    "merges": "a: &a {" + ", ".join(f"k{i}: 1" for i in range(2_000)) + "}\nb: {<<: [" + "*a, " * 10_000 + "]}",
    "sexagesimal": "a: " + "1:" * 30_000 + "1",
    "long-number": "a: " + "9" * 60_000,
    "merge-of-text": "<<: text\n",
    "merge-of-itself": "a: &a {<<: *a}\n",
    "bad-base64": "a: !!binary '%%%'\n",
    "omap": "a: !!omap [b]\n",
    "set": "a: !!set {b, c}\nd: !!pairs [e: 1]\n",
    "null-key": "~: 1\n",
    "nan-key": ".nan: 1\n",
    "date-key": "2020-01-01: 1\n",
    "directive": "%YAML 2.0\n---\na: 1\n",
    "deep-torchrun": "torchrun: {nnodes: {a: {b: c}}}\npt2: {compile: {enable: [true], backend: {a: b}}}\n",
    "odd-keys-inside": "pt2: {1: 2, ~: 3, [a]: 4}\n",
    "odd-keys-in-pt2": "pt2: {1: 2, ~: 3}\ntorchrun: {~: 1, 2.5: 3}\n",
}


@pytest.mark.parametrize("name", marked(YAMLS, daily=False))
def test_a_hostile_config_costs_little(name: str) -> None:
    files = {"handler.py": CLASS, "m.yaml": YAMLS[name]}
    Case(name, files, model={"config_file": "m.yaml"}).findings()


class Broken:
    """Members that cannot be opened, or not be read to their end."""

    def __init__(self, error: Exception, *, late: bool) -> None:
        self._error = error
        self._late = late

    @property
    def entries(self) -> Iterable[str]:
        return ["handler.py", "model.py", "model.pt", "m.yaml", "requirements.txt", "index_to_name.json"]

    def open(self, name: str) -> BinaryIO:
        if not self._late:
            raise self._error
        return _Failing(self._error)


class _Failing(io.BytesIO):
    def __init__(self, error: Exception) -> None:
        super().__init__(b"x = 1\n")
        self._error = error

    def read(self, size: int | None = -1) -> bytes:
        raise self._error


FULL = ManifestModel(
    name="probe", handler="handler.py", model_file="model.py", serialized_file="model.pt", config_file="m.yaml",
    requirements_file="requirements.txt",
)  # fmt: skip


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), DamagedArchiveError("its CRC is wrong")])
def test_members_that_cannot_be_read_are_findings(error: Exception, late: bool) -> None:
    found = lint(Broken(error, late=late), Manifest(model=FULL))
    unreadable = {finding.where for finding in found if finding.code == "member-unreadable"}
    assert {"handler.py", "model.py", "m.yaml", "requirements.txt"} <= unreadable
    reason = "Permission denied" if isinstance(error, OSError) else "its CRC is wrong"
    assert all(reason in finding.message for finding in found if finding.code == "member-unreadable")


PIECES = [CLASS.encode(), NET.encode(), b"{", b"[", b'"0": "a"', b"\xff", b"\0", b"pt2: {compile: ", b"- ", b"&a *a"]
CONTENT = st.one_of(st.binary(max_size=200), st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    handler=CONTENT, model=CONTENT, config=CONTENT, labels=CONTENT, requirements=CONTENT, weight=CONTENT,
    name=st.text(max_size=20), runtime=st.sampled_from(["python", "python3", "LSP", "x"]),
)  # fmt: skip
def test_no_bytes_make_it_raise(handler, model, config, labels, requirements, weight, name, runtime) -> None:
    files = {
        "handler.py": handler, "model.py": model, "m.yaml": config, "index_to_name.json": labels,
        "requirements.txt": requirements, "model.pt": weight,
    }  # fmt: skip
    for entry in ("handler.py", name, f"handler.py:{name}", "image_classifier"):
        manifest = Manifest(model=msgspec.structs.replace(FULL, handler=entry), runtime=runtime)
        for finding in lint(Members(files), manifest):
            assert finding.code
            assert finding.message
            assert finding.severity in Severity


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 3000), st.integers(0, 3000), st.sampled_from(["state_dict", "script", "safetensors"]))
def test_no_damaged_weights_make_it_raise(cut: int, flip: int, kind: str) -> None:
    data = bytearray(bytes_of(kind))
    data[flip % len(data)] ^= 0xFF
    files = {"handler.py": BASE, "model.py": NET, "model.pt": bytes(data[: cut or None])}
    for model in ({"serialized_file": "model.pt"}, {"serialized_file": "model.pt", "model_file": "model.py"}):
        Case("damaged", files, model=model).findings()
