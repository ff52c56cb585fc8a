"""The image without a daemon: its Dockerfile's steps in a bare venv, its entry in all three ways, its answers."""

import json
import os
import shlex
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from exporting.exports import MakeMar, exported, free_port

from marpack.exporting.export import export
from marpack.exporting.image import make_lock, wheel
from marpack.exporting.plan import ExportOptions

# A venv gets all that marpack needs, torch among it: a minute or more.
slow = pytest.mark.slow
ROOT = Path(__file__).parents[2]
START = 120  # seconds
SERVICES = {"v1": "inference-service.yaml", "v2": "inference-service-v2.yaml"}
ROUTES = {"v1": "/v1/models/probe:predict", "v2": "/v2/models/probe/infer"}
TENSOR = {"name": "x", "shape": [2], "datatype": "INT64", "data": [1, 2]}
REQUESTS = {"v1": {"instances": [{"x": 1}, {"x": 2}]}, "v2": {"inputs": [TENSOR]}}
SAMPLE = ROOT / "examples" / "digits" / "samples" / "seven.png"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "digits.mar"
    command = [sys.executable, "-m", "marpack", "build", str(ROOT / "examples" / "digits"), "-o", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


@pytest.fixture(scope="module")
def image(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that a container would see as /opt/marpack, beside the venv that it would run in."""
    folder = tmp_path_factory.mktemp("image")
    torch = f"torch=={version('torch').partition('+')[0]}"  # of the default index, which every CI can reach
    (folder / "lock").write_bytes(make_lock((torch,), wheel(None), None))
    export(archive, "docker", folder / "context", ExportOptions(lock=folder / "lock"))
    venv.create(folder / "venv", with_pip=True)
    build(folder / "context", folder / "opt", folder / "venv")
    return folder


def build(context: Path, place: Path, environment: Path) -> None:
    """Do what the Dockerfile says: files are copied, and Python's steps run with the venv's."""
    variables: dict[str, str] = {}
    place.mkdir()
    for line in (context / "Dockerfile").read_text().splitlines():
        step, _, rest = line.partition(" ")
        if step == "ENV":
            variables |= dict(pair.split("=", 1) for pair in shlex.split(rest) if "CACHE_DIR" not in pair)
        elif step == "ARG":
            variables["TORCH_INDEX"] = "file:///nowhere"
        elif step == "COPY":
            *sources, target = rest.split()
            for source in sources:
                subprocess.run(["cp", "-r", str(context / source), str(place / target)], check=True)
        elif step == "RUN" and rest.startswith("python"):
            command = rest.replace("python", shlex.quote(str(environment / "bin" / "python")), 1)
            clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            subprocess.run(["sh", "-ec", command], cwd=place, check=True, env=clean | variables, capture_output=True)
        else:
            assert step in {"#", "FROM", "WORKDIR", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "RUN"}, line


@contextmanager
def container(image: Path, *words: str, folders: str, **environment: str) -> Iterator[str]:
    """Start the entry as the container's ENTRYPOINT would; give its address, end it by SIGTERM."""
    port = free_port()
    keep = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    given = keep | {"MODEL_FOLDERS": folders, "MARPACK_CACHE_DIR": str(image / "cache"), "PORT": port} | environment
    port = environment.get("SAGEMAKER_BIND_TO_PORT", port)
    entry = [str(image / "venv" / "bin" / "python"), str(image / "opt" / "entrypoint.py")]
    metrics = ("--metrics-port", "0")  # other servers are under test here, too
    with subprocess.Popen(
        [*entry, *words, *metrics], cwd=image / "opt", env=given, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            until = time.monotonic() + START
            while subprocess.run([*entry, "--healthy"], env=given, check=False).returncode:
                assert process.poll() is None, process.stderr and process.stderr.read()
                assert time.monotonic() < until
                time.sleep(0.2)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            assert process.wait(timeout=60) == 0


def ask(url: str, body: bytes, kind: str) -> str:
    request = urllib.request.Request(url, body, {"Content-Type": kind, "Host": "model.default.svc.cluster.local"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read(), "utf-8")


def answer_here(archive: Path, sample: Path, *words: str) -> str:
    command = [sys.executable, "-m", "marpack", "run", str(archive), *words, "--input", str(sample), "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    body: str = json.loads(done.stdout)["results"][0]["body"]
    return body


@pytest.fixture(scope="module")
def expected(archive: Path) -> str:
    return answer_here(archive, SAMPLE)


@slow
def test_the_image_with_its_own_archive(image: Path, expected: str):
    with container(image, folders=str(image / "opt" / "model")) as address:
        assert ask(f"{address}/predictions/digits", SAMPLE.read_bytes(), "image/png") == expected


@slow
def test_as_sagemaker_starts_it(image: Path, archive: Path, expected: str, tmp_path: Path):
    with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as model:
        model.add(archive, archive.name)
    with tarfile.open(tmp_path / "model.tar.gz") as model:
        model.extractall(tmp_path / "ml", filter="data")
    place = f"{tmp_path / 'mnt'}:{tmp_path / 'ml'}:{image / 'opt' / 'model'}"
    with container(image, "serve", folders=place, SAGEMAKER_BIND_TO_PORT=free_port()) as address:
        assert ask(f"{address}/invocations", SAMPLE.read_bytes(), "image/png") == expected
        assert json.load(urllib.request.urlopen(f"{address}/ping", timeout=10)) == {"status": "Healthy"}
        with pytest.raises(urllib.error.HTTPError):  # management is off
            urllib.request.urlopen(urllib.request.Request(f"{address}/models/digits", method="DELETE"), timeout=10)


@slow
def test_as_kserve_starts_it(image: Path, archive: Path, expected: str, tmp_path: Path):
    (tmp_path / "digits.mar").write_bytes(archive.read_bytes())
    with container(image, "--model-name", "my-digits", folders=str(tmp_path)) as address:
        assert ask(f"{address}/v1/models/my-digits:predict", SAMPLE.read_bytes(), "image/png") == expected
        with urllib.request.urlopen(f"{address}/v1/models/my-digits", timeout=10) as answer:
            assert json.load(answer)["ready"]


@slow
@pytest.mark.parametrize("protocol", ["v1", "v2"])
def test_as_kserve_starts_it_with_its_envelope(protocol: str, image: Path, make_mar: MakeMar, tmp_path: Path):
    archive = make_mar("def handle(data, context):\n    return data\n")
    exported(archive, "kserve")
    service = yaml.safe_load((tmp_path / "kserve" / SERVICES[protocol]).read_text())
    arguments = service["spec"]["predictor"]["model"]["args"]
    (tmp_path / "request.json").write_text(json.dumps(REQUESTS[protocol]))
    there = answer_here(archive, tmp_path / "request.json", *arguments)
    with container(image, "--model-name", "probe", *arguments, folders=str(tmp_path)) as address:
        answer = ask(f"{address}{ROUTES[protocol]}", (tmp_path / "request.json").read_bytes(), "application/json")
    assert json.loads(answer) | {"id": ""} == json.loads(there) | {"id": ""}


@slow
def test_the_image_uses_nothing_of_the_checkout(image: Path):
    code = "import marpack, marpack.project.scaffold.template as t; print(marpack.__file__, t.templates())"
    done = subprocess.run(
        [image / "venv" / "bin" / "python", "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert all(place.startswith(str(image / "venv")) for place in done.stdout.split())
