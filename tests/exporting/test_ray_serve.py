"""The ray-serve folder: one application, whose replicas and batches are the archive's own."""

import ast
from pathlib import Path
from typing import Any

import pytest
import yaml
from exporting.exports import MakeMar

import marpack
from marpack.version import __version__

HANDLER = "def handle(data, context):\n    return data\n"


def exported(archive: Path, folder: Path, **options: Any) -> dict[str, bytes]:
    """Return the files of an export, by their names."""
    marpack.export(archive, to="ray-serve", output=folder, **options)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def application(archive: Path, folder: Path, **options: Any) -> dict[str, Any]:
    config = yaml.safe_load(exported(archive, folder, **options)["config.yaml"])
    assert set(config) == {"applications"}
    [found] = config["applications"]
    return dict(found)


def test_the_layout_is_the_one_that_containers_of_ray_serve_take(make_mar: MakeMar, tmp_path: Path) -> None:
    archive = make_mar(HANDLER)
    once, again = (exported(archive, tmp_path / name) for name in ("once", "again"))
    assert once == again
    assert {"config.yaml", "deployment.py", "code/requirements.txt", "README.md", "probe.mar"} < set(once)
    assert once["probe.mar"] == archive.read_bytes()
    found = application(archive, tmp_path / "third")
    module = ast.parse(once["deployment.py"])
    names = {each.name for each in module.body if isinstance(each, ast.ClassDef | ast.FunctionDef)}
    assert {found["deployments"][0]["name"], "app"} < names
    settings = {each.value for each in ast.walk(module) if isinstance(each, ast.Constant)}
    assert set(found["deployments"][0]["user_config"]) < settings
    assert (found["route_prefix"], found["import_path"]) == ("/", "deployment:app")
    assert found["args"] == {"archive": "probe.mar", "device": "cpu"}


SCALING = [
    ("", {"num_replicas": 1, "max_ongoing_requests": 2, "max_queued_requests": 100}, (1, 0.1)),
    ("batchSize: 8\nmaxBatchDelay: 50\n", {"num_replicas": 1, "max_ongoing_requests": 16}, (8, 0.05)),
    ("minWorkers: 3\nmaxWorkers: 3\njobQueueSize: 7\n", {"num_replicas": 3, "max_queued_requests": 7}, (1, 0.1)),
    (
        "minWorkers: 1\nmaxWorkers: 4\nbatchSize: 2\n",
        {"autoscaling_config": {"min_replicas": 1, "max_replicas": 4, "target_ongoing_requests": 2}},
        (2, 0.1),
    ),
    ("minWorkers: many\nbatchSize: -1\nmaxBatchDelay: soon\n", {"num_replicas": 1}, (1, 0.1)),
]


@pytest.mark.parametrize(("config", "expected", "batches"), SCALING)
def test_workers_and_batches_are_those_of_the_config(
    make_mar: MakeMar, tmp_path: Path, config: str, expected: dict[str, Any], batches: tuple[int, float]
) -> None:
    further = {"files": {"c.yaml": config}, "configFile": "c.yaml"} if config else {}
    [deployment] = application(make_mar(HANDLER, **further), tmp_path / "out")["deployments"]
    assert expected.items() <= deployment.items()
    assert ("num_replicas" in deployment) is not ("autoscaling_config" in deployment)
    assert (deployment["user_config"]["max_batch_size"], deployment["user_config"]["batch_wait_timeout_s"]) == batches
    assert deployment["ray_actor_options"] == {"num_cpus": 1, "num_gpus": 0}


def test_requirements_are_marpacks_rays_and_the_archives(make_mar: MakeMar, tmp_path: Path) -> None:
    files = {"requirements.txt": "numpy>=1.26\n# comment\n-e .\n--index-url https://example.com\n"}
    archive = make_mar(HANDLER, files=files, requirementsFile="requirements.txt")
    files = exported(archive, tmp_path / "out", device="cuda")
    lines = files["code/requirements.txt"].decode().splitlines()
    assert lines == ["--find-links .", f"marpack=={__version__}", "ray[serve]>=2.54", "numpy>=1.26"]
    assert f"code/marpack-{__version__}-py3-none-any.whl" in files
    [found] = yaml.safe_load(files["config.yaml"])["applications"]  # each replica has a GPU of its own
    assert found["args"]["device"] == "cuda"
    assert found["deployments"][0]["ray_actor_options"]["num_gpus"] == 1


def test_a_folder_that_was_run_is_replaced(make_mar: MakeMar, tmp_path: Path) -> None:
    archive = make_mar(HANDLER)
    before = exported(archive, tmp_path / "out")
    (tmp_path / "out" / "__pycache__").mkdir()
    (tmp_path / "out" / "__pycache__" / "deployment.cpython-313.pyc").touch()
    assert exported(archive, tmp_path / "out", force=True) == before


HOSTILE = (
    *('a b"; rm -rf', "x\n  args: {archive: /etc/passwd}", "*anchor", "../../up", "`id`", "{{ 7 * 7 }}", "ä" * 300),
    "true",
)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_does_not_break_out(make_mar: MakeMar, tmp_path: Path, name: str) -> None:
    found = application(make_mar(HANDLER, modelName=name), tmp_path / "out")
    assert set(found) == {"name", "route_prefix", "import_path", "args", "deployments"}
    assert isinstance(found["name"], str)
    assert (tmp_path / "out" / found["args"]["archive"]).is_file()
    assert Path(found["args"]["archive"]).name == found["args"]["archive"]
    heading, blank, *_ = (tmp_path / "out" / "README.md").read_text().splitlines()
    assert heading.startswith("# `")
    assert heading.endswith("` under Ray Serve")
    assert blank == ""


FINDINGS = [
    ("", set()),
    ("context.get_request_header(0, 'X-Key')", {"export-request-headers"}),
    ("context.set_response_header(0, 'X-Key', 'v')", {"export-response-headers"}),
    ("context.set_response_status(418, 'Teapot')", {"export-reason-phrase"}),
    ("context.metrics.add_counter('asked', 1)", {"export-metrics"}),
    ("send_intermediate_predict_response([], {}, '', 200, context)", {"export-streaming"}),
]


@pytest.mark.parametrize(("line", "codes"), FINDINGS)
def test_what_does_not_carry_over_is_told(make_mar: MakeMar, tmp_path: Path, line: str, codes: set[str]) -> None:
    written = marpack.export(make_mar(f"{HANDLER}    {line}\n"), to="ray-serve", output=tmp_path / "out")
    assert {finding.code for finding in written.findings} == codes
