"""marpack export: the command, its output and its exit codes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from exporting.exports import MakeMar

import marpack as api

ECHO = "def handle(data, context):\n    return data\n"
Marpack = Callable[..., tuple[int, str, str]]


def test_the_folder_is_named_after_model_and_target_and_the_next_commands_are_told(marpack: Marpack, make_mar: MakeMar):
    make_mar(ECHO, name="My_Net")
    code, out, err = marpack("export", "My_Net.mar", "--to", "docker", "--no-lock")
    assert code == 0
    assert "my-net-docker" in out
    assert [line.strip() for line in out.splitlines()[-3:]] == [
        "docker build -t marpack-my-net .",
        "docker run --rm -d -p 8080:8080 marpack-my-net",
        "curl http://127.0.0.1:8080/predictions/My_Net -T FILE",
    ]
    assert "(export-requirements-unhashed)" in err
    assert (Path("my-net-docker") / "Dockerfile").is_file()


def test_the_result_as_json(marpack: Marpack, make_mar: MakeMar):
    make_mar(ECHO)
    code, out, err = marpack("export", "probe.mar", "--to", "sagemaker", "--no-lock", "-o", "out", "--json")
    result = json.loads(out)
    assert (code, err) == (0, "")
    assert (result["archive"], result["target"], result["folder"]) == ("probe.mar", "sagemaker", "out")
    on_disk = {path.relative_to("out").as_posix(): path.stat().st_size for path in Path("out").rglob("*.*")}
    assert {file["name"]: file["size"] for file in result["files"]}.items() <= {
        **on_disk,
        "image/Dockerfile": Path("out/image/Dockerfile").stat().st_size,
    }.items()
    assert {finding["code"] for finding in result["findings"]} == {"export-requirements-unhashed", "export-placeholder"}
    assert len(result["commands"]) == 3


def test_python_says_the_same(marpack: Marpack, make_mar: MakeMar):
    path = make_mar(ECHO)
    _, out, _ = marpack("export", "probe.mar", "--to", "docker", "--no-lock", "--json")
    done = api.export("probe.mar", to="docker", no_lock=True, force=True)
    assert done.to_dict() == json.loads(out)
    assert repr(done).startswith("Exported('probe-docker', ")
    assert api.export(path, to="kserve", output=Path("k"), no_lock=True).folder == "k"


WRONG = {  # words → exit code
    "probe.mar": 2,
    "nothing.mar --to docker": 2,
    "--to docker": 2,
    "https://example.org/x.mar --to docker": 2,
    "text.mar --to docker": 3,
    "net.pt --to docker": 2,
    "folder --to docker": 2,
    "probe.mar --to docker -o text.mar --force": 2,
    "probe.mar --to docker -o text.mar/out": 1,
    "probe.mar --to docker -o . --force": 2,
    "probe.mar --to docker --tag x": 2,
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_usage_has_its_exit_code_and_leaves_nothing(
    words: str, marpack: Marpack, make_mar: MakeMar, make_folder: MakeMar, tmp_path: Path
):
    make_mar(ECHO)
    make_folder(ECHO).rename(tmp_path / "folder")
    (tmp_path / "text.mar").write_text("hello\n")
    (tmp_path / "net.pt").write_text("hello\n")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    before = sorted(tmp_path.rglob("*"))
    ended, out, err = marpack("export", *words.split(), *([] if "--lock" in words else ["--no-lock"]))
    assert (ended, out) == (WRONG[words], "")
    assert err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_project_is_built_first(marpack: Marpack, tmp_path: Path):
    assert api.init(tmp_path / "shop", template="function")
    code, out, _ = marpack("export", "shop", "--to", "kserve", "--no-lock")
    assert code == 0
    assert "shop-kserve" in out
    assert (tmp_path / "shop-kserve" / "model" / "shop.mar").read_bytes() == (
        tmp_path / "shop" / "shop.mar"
    ).read_bytes()


def test_a_dry_run_names_what_an_export_writes(marpack: Marpack, make_mar: MakeMar):
    make_mar(ECHO)
    before = {*Path().iterdir()}
    words = ("export", "probe.mar", "--to", "docker", "--no-lock", "--json")
    code, planned, _ = marpack(*words, "--dry-run")
    assert (code, {*Path().iterdir()}) == (0, before)
    code, written, _ = marpack(*words)
    assert (code, json.loads(planned)) == (0, json.loads(written))
    code, failed, _ = marpack(*words, "--dry-run")  # as the export itself
    assert (code, json.loads(failed)["code"]) == (2, "output-exists")


def test_a_dry_run_does_not_build_a_projects_archive(marpack: Marpack):
    Path("marpack.yaml").write_text('name: x\nversion: "1.0"\nhandler: handler.py\n')
    Path("handler.py").write_text(ECHO)
    before = {*Path().iterdir()}
    code, out, err = marpack("export", "--to", "docker", "--no-lock", "--dry-run")
    assert (code, {*Path().iterdir()} - {Path("cache")}) == (0, before)
    assert "model/x.mar" in out
    assert "/tmp" not in out + err
