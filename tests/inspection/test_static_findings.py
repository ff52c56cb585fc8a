"""`inspect` reports what the static checks of a build find, once each, at every surface."""

import json
import random
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import marpack
from marpack.archive.reader import open_archive
from marpack.cli.main import main
from marpack.findings import Severity
from marpack.inspection.inspect import inspect

MakeMar = Callable[..., Path]
SOUND = "def handle(data, context):\n    return data\n"
BASE = "from ts.torch_handler.base_handler import BaseHandler\n\n\nclass Own(BaseHandler):\n    pass\n"

# What is wrong with an archive → the arguments of `make_mar`, the finding's code, where it is, and the exit code.
BROKEN: dict[str, tuple[str, dict[str, Any], str, str, int]] = {
    "no entry point": ("x = 1\n", {}, "handler-no-entry", "handler.py", 1),
    "a syntax error": ("def handle(:\n", {}, "source-syntax", "handler.py:1", 1),
    "a module that is not packed": ("import utils\n" + SOUND, {}, "import-not-packed", "handler.py:1", 1),
    "a config that is a list": (
        SOUND,
        {"files": {"c.yaml": "[1]\n"}, "configFile": "c.yaml"},
        "config-root",
        "c.yaml",
        1,
    ),
    "no weights": (BASE, {}, "weights-none", "MAR-INF/MANIFEST.json: model.serializedFile", 1),
    "an unlisted package": ("import shapely\n" + SOUND, {}, "import-unlisted", "handler.py:1", 0),
}


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as end:
        main(["inspect", *words])
    return int(end.value.code or 0), capsys.readouterr().out


@pytest.mark.parametrize("name", BROKEN)
def test_every_surface_shows_what_preflight_knows(
    name: str, make_mar: MakeMar, capsys: pytest.CaptureFixture[str]
) -> None:
    handler, options, code, place, exit_code = BROKEN[name]
    mar = str(make_mar(handler, **options))

    (check,) = [each for each in marpack.check(mar, only=["preflight"]).checks if each.name == "preflight"]
    reported = {finding.code for finding in check.findings}
    assert code in reported
    assert reported <= {finding.code for finding in marpack.inspect(mar).findings}

    found = [finding for finding in marpack.inspect(mar).findings if finding.code == code]
    assert [finding.where for finding in found] == [f"{mar}!{place}"]
    assert (found[0].severity is Severity.ERROR) is bool(exit_code)

    ended, page = shown(capsys, mar)
    assert (ended, page.count(code)) == (exit_code, 1)
    ended, text = shown(capsys, mar, "--json")
    assert ended == exit_code
    assert [each["code"] for each in json.loads(text)["findings"]].count(code) == 1
    assert code in marpack.inspect(mar)._repr_html_()


# A member that reading alone already refuses → the code under which it is told, and by how many errors.
ONCE: dict[str, tuple[dict[str, str | bytes], dict[str, str], str]] = {
    "labels": ({"index_to_name.json": "[1]"}, {}, "labels-unreadable"),
    "a bomb": ({"c.yaml": "!!python/object/apply:os.getcwd []\n"}, {"configFile": "c.yaml"}, "config-hostile"),
    "a pickle": ({"net.pt": b"cposix\nsystem\n(S'id'\ntR."}, {"serializedFile": "net.pt"}, "dangerous-pickle"),
}


@pytest.mark.parametrize("name", ONCE)
def test_a_member_that_is_refused_is_reported_once(name: str, make_mar: MakeMar) -> None:
    files, model, code = ONCE[name]
    member = next(iter(files))
    findings = marpack.inspect(make_mar(BASE, files=files, **model)).findings
    assert [each.code for each in findings if f"!{member}" in (each.where or "")] == [code]


def test_a_damaged_handler_is_reported_once_and_exits_3(make_mar: MakeMar, capsys: pytest.CaptureFixture[str]) -> None:
    mar = make_mar(SOUND)
    content = bytearray(mar.read_bytes())
    content[content.index(b"def handle")] ^= 1
    mar.write_bytes(content)
    ended, text = shown(capsys, str(mar), "--json")
    assert ended == 3
    assert {each["code"] for each in json.loads(text)["findings"]} == {"damaged-member", "unscanned"}


def test_the_archives_target_counts(make_mar: MakeMar) -> None:
    codes = {}
    for target in ("marpack", "torchserve"):
        labels, index = '{"0": "a", "1": "b"}', json.dumps({"members": [], "target": target, "format": 1})
        mar = make_mar(
            "", files={"index_to_name.json": labels, "MAR-INF/marpack.json": index}, entry="image_classifier"
        )
        codes[target] = {each.code for each in marpack.inspect(mar).findings}
    assert codes["torchserve"] - codes["marpack"] == {"labels-few"}


def test_inspecting_for_others_runs_no_static_checks(make_mar: MakeMar) -> None:
    with open_archive(make_mar("x = 1\n")) as archive:
        assert inspect(archive).findings == ()


def test_of_an_archive_elsewhere_only_what_is_cheap_is_fetched(make_mar: MakeMar, serve: Any) -> None:
    mar = make_mar("import helper\n" + SOUND, files={"helper.py": "x = 1\n"})
    with zipfile.ZipFile(mar, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("vocab.py", f"x = '{random.Random(1).randbytes(200_000).hex()}'\n")
    with zipfile.ZipFile(mar, "a") as file:
        file.writestr("weights.bin", bytes(1_000_000))
    with open_archive(f"{serve.url}/{mar.name}") as archive:
        plain = inspect(archive)
    before = serve.sent
    with open_archive(f"{serve.url}/{mar.name}") as archive:
        facts = inspect(archive, static_checks=True)
    assert serve.sent - before < before + 16_384
    assert {finding.code for finding in facts.findings} == {finding.code for finding in plain.findings}


@pytest.mark.parametrize("option", [(), ("--json",)])
def test_nothing_is_run_and_torch_is_not_imported(option: tuple[str, ...], make_mar: MakeMar, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    mar = make_mar(f"import torch\nopen({str(proof)!r}, 'w')\n" + BASE, files={"model.py": "import torch\n"})
    command = [sys.executable, "-X", "importtime", "-m", "marpack", "inspect", str(mar), *option]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert done.returncode == 1
    assert not loaded & {"torch", "numpy", "onnxruntime", "logging"}
    assert not proof.exists()


@pytest.mark.parametrize(("size", "is_read"), [(65 << 10, True), (1 << 20, True), ((1 << 20) + 1, False)])
def test_a_model_config_has_one_limit_for_every_command(size: int, is_read: bool, tmp_path: Path) -> None:
    config = "minWorkers: 1\nmaxBatchDelayy: 1\n# "
    (tmp_path / "handler.py").write_text(SOUND)
    (tmp_path / "c.yaml").write_text(config + "x" * (size - len(config)))
    (tmp_path / "marpack.yaml").write_text("name: tiny\nversion: '1'\nhandler: handler.py\nconfig: c.yaml\n")
    built = {finding.code for finding in marpack.build(tmp_path).findings}
    facts = marpack.inspect(tmp_path)
    assert built == {finding.code for finding in facts.findings}
    assert built == {"config-unknown-key" if is_read else "config-unchecked"}
    assert facts.config is not None
    assert (facts.config.value is not None) is is_read
