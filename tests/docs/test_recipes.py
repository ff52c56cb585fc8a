"""CONTRIBUTING.md's recipes: the files they name are there, as many as they say, and no others are needed."""

import io
import re
import subprocess
import sys
import zipfile
from enum import StrEnum
from pathlib import Path
from types import ModuleType, SimpleNamespace

import click
import pytest

from marpack.cli.main import COMMANDS, GROUPS, main
from marpack.gate import checks
from marpack.gate.verdicts import passed
from marpack.project.checks import CHECKS, Check
from marpack.weights.contents import read_contents
from marpack.weights.detect import recognize
from marpack.weights.kind import FORMATS, FormatRow
from marpack.worker.loaders import registry

ROOT = Path(__file__).parents[2]
HEADING = re.compile(r"^## Add an? (?P<what>[\w -]+) \((?P<count>\d) files\)\n(?P<text>(?:(?!## ).*\n)*)", re.MULTILINE)
STEP = re.compile(r"^\d\. `(?P<path>marpack/[\w/.]+)`: (?P<text>.*(?:\n   .*)*)", re.MULTILINE)
RECIPES = {match["what"]: match for match in HEADING.finditer((ROOT / "CONTRIBUTING.md").read_text())}


def files_of(what: str) -> list[str]:
    return [step["path"] for step in STEP.finditer(RECIPES[what]["text"])]


def test_the_four_recipes_and_how_many_files_each_touches():
    counts = {what: (int(match["count"]), len(files_of(what))) for what, match in RECIPES.items()}
    assert counts == {
        "check": (2, 2), "built-in handler": (2, 2), "weights format": (4, 4), "command": (5, 5),
    }  # fmt: skip


@pytest.mark.parametrize("what", RECIPES)
def test_what_a_recipe_names_is_there(what: str):
    for step in STEP.finditer(RECIPES[what]["text"]):
        place = ROOT / step["path"]
        if place.stem == "NAME":
            assert list(place.parent.glob("*.py"))
            continue
        source = place.read_text()
        for table in re.findall(r"`(\w*[A-Z_]\w*)`", step["text"]):
            assert re.search(rf"^(class|def)? ?{table}\b", source, re.MULTILINE), f"{step['path']} has no {table}"
    for path in re.findall(r"`((?:tests|docs|marpack)/[\w/.]+)`", RECIPES[what]["text"]):
        assert "NAME" in path or (ROOT / path).exists(), path


def test_a_check_is_named_by_the_table_alone():
    naming = [path for path in (ROOT / "marpack").rglob("*.py") if "marpack.gate.checks." in path.read_text()]
    assert not naming


def test_a_row_makes_a_check(monkeypatch: pytest.MonkeyPatch):
    lean = ModuleType("marpack.gate.checks.no_notebooks")
    monkeypatch.setattr(lean, "run", lambda candidate: passed(f"saw {candidate}"), raising=False)
    monkeypatch.setitem(sys.modules, lean.__name__, lean)
    assert checks.run(Check("no-notebooks", "it has no notebooks"), "x.mar").reason == "saw x.mar"
    for check in CHECKS:
        assert (ROOT / "marpack" / "gate" / "checks" / f"{check.name.replace('-', '_')}.py").is_file()


def test_a_built_in_is_named_by_its_file_and_its_row():
    naming = {path for path in (ROOT / "marpack").rglob("*.py") if "densenet" in path.read_text().lower()}
    assert naming == {ROOT / path.replace("NAME", "densenet") for path in files_of("built-in handler")}


FOLLOWED = """
import sys, types
from marpack.torchserve import stock

class VLLMHandler:
    def initialize(self, context): ...
    def handle(self, data, context): return data

toy = types.ModuleType("marpack.worker.handlers.toy")
toy.VLLMHandler = VLLMHandler
sys.modules[toy.__name__] = toy
stock.BUILT_INS["vllm_handler"] = stock.BuiltIn("vllm_handler", "VLLMHandler", ours="toy", offered=True)

from marpack.torchserve.ts import finder
from marpack.torchserve.ts.entry_point import find_entry
from marpack.project.members import OFFERED

finder.install()
assert isinstance(find_entry("vllm_handler").instance, VLLMHandler)
assert sys.modules["ts.torch_handler.vllm_handler"].BaseHandler.__module__ == "marpack.worker.handlers.base"
assert "vllm_handler" in OFFERED
"""


@pytest.mark.nightly
def test_a_row_makes_a_built_in():
    subprocess.run([sys.executable, "-c", FOLLOWED], check=True)


class Toy(StrEnum):
    TOY = "toy"


def zipped(name: str) -> bytes:
    with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
        archive.writestr(name, "numbers")
    return file.getvalue()


@pytest.mark.parametrize("content", [b"TOY! and numbers", zipped("TOY!"), b"\x80\x02}.TOY!"])
def test_a_row_makes_a_weights_format(monkeypatch: pytest.MonkeyPatch, content: bytes):
    header = SimpleNamespace(tensors=(), metadata={"author": "me"})
    reader = SimpleNamespace(
        looks_like=lambda file: file.seek(0) == 0 and b"TOY!" in file.read(), read_header=lambda file: header
    )
    loader = ModuleType("marpack.worker.loaders.toy")
    monkeypatch.setattr(loader, "load_job", lambda job: f"loaded {job.path}", raising=False)
    monkeypatch.setitem(sys.modules, loader.__name__, loader)
    monkeypatch.setitem(FORMATS, Toy.TOY, FormatRow(title="a toy", reader=reader, model="toy:load_job"))
    file = io.BytesIO(content)
    found = recognize(file)
    assert found.kind is Toy.TOY
    assert read_contents(file, found).metadata == {"author": "me"}
    assert registry.load_model(found.kind, SimpleNamespace(path="w.toy")) == "loaded w.toy"


def test_a_row_makes_a_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    toy = ModuleType("toy_command")
    monkeypatch.setattr(toy, "toy", click.command("toy")(lambda: click.echo("toyed")), raising=False)
    monkeypatch.setitem(sys.modules, toy.__name__, toy)
    monkeypatch.setitem(COMMANDS, "toy", ("toy_command:toy", "Do next to nothing."))
    monkeypatch.setitem(GROUPS, "Toys", ("toy",))
    for words in (["toy"], ["--help"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith("toyed\n")
    assert "Toys:\n  toy         Do next to nothing.\n" in shown


def test_a_command_is_one_row_and_one_place():
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(COMMANDS)
    for module, _ in COMMANDS.values():
        assert (ROOT / f"{module.partition(':')[0].replace('.', '/')}.py").is_file()
