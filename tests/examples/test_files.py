"""What the examples commit: complete, small, held-out, and silent about the machine it was made on."""

import io
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from marpack.findings import Severity
from marpack.project.load import load_project
from marpack.project.planning import plan_project

EXAMPLES = Path(__file__).parents[2] / "examples"
MB = 1_000_000


def committed(folder: Path) -> list[Path]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in paths if path.suffix != ".mar" and "__pycache__" not in path.parts]


def contents(path: Path) -> list[tuple[str, bytes]]:
    """Return a file's bytes, and those of the members if it is a zip, as torch's files are."""
    raw = path.read_bytes()
    if not zipfile.is_zipfile(io.BytesIO(raw)):
        return [(path.name, raw)]
    with zipfile.ZipFile(path) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def test_every_kind_of_example_is_there():
    handlers = {load_project(path.parent).handler for path in EXAMPLES.glob("*/marpack.yaml")}
    assert {"image_classifier", "image_segmenter", "object_detector", "text_classifier", "handler.py"} < handlers
    weights = {Path(load_project(path.parent).weights).suffix for path in EXAMPLES.glob("*/marpack.yaml")}
    assert weights == {".pt", ".pt2", ".onnx", ".safetensors"}


def test_examples_are_small():
    assert sum(path.stat().st_size for path in committed(EXAMPLES)) < 5 * MB
    assert sum(path.stat().st_size for path in committed(EXAMPLES / "digits")) < 1 * MB


def test_example_tells_what_it_is_and_how_it_was_made(example):
    assert (example / "README.md").read_text().startswith(f"# {example.name}: ")
    assert f"python -m examples.{example.name}.train" in (example / "train.py").read_text()
    assert f"[{example.name}]({example.name})" in (EXAMPLES / "README.md").read_text()


def test_example_plans_without_a_finding(example):
    planned = plan_project(load_project(example))
    told = {finding.code for finding in planned.findings if finding.severity is not Severity.NOTE}
    # The server's image may have onnxruntime: the example's README says that it is needed.
    assert told <= ({"weights-onnx-runtime"} if example.name == "onnx" else set())


def test_every_sample_is_used_and_expects_something(example):
    project = load_project(example)
    assert {sample.input for sample in project.samples} == {
        path.relative_to(example).as_posix() for path in (example / "samples").iterdir()
    }
    assert all(sample.expect is not None and sample.expect.status for sample in project.samples)


def test_no_file_holds_a_path_of_the_machine_it_was_made_on(example):
    for path in committed(example):
        for name, content in contents(path):
            assert not name.endswith(".debug_pkl"), path
            assert b"site-packages" not in content, f"{path}: {name}"
            assert b"examples/" not in content or path.suffix in {".py", ".md"}, f"{path}: {name}"


def test_digits_shows_a_dozen_pictures_with_every_digit_among_them():
    samples = sorted((EXAMPLES / "digits" / "samples").glob("*.png"))
    assert len(samples) == 12
    digits = "zero one two three four five six seven eight nine"
    assert {path.stem.partition("-")[0] for path in samples} == set(digits.split())
    for path in samples:
        with Image.open(path) as picture:
            assert (picture.mode, picture.size) == ("L", (128, 128))


@pytest.mark.filterwarnings("ignore:`torch.jit.load` is deprecated")
def test_digits_has_the_net_in_two_forms_that_answer_alike(monkeypatch):
    import torch

    monkeypatch.syspath_prepend(EXAMPLES.parent)
    from examples.digits.model import DigitsNet

    net = DigitsNet().eval()
    net.load_state_dict(torch.load(EXAMPLES / "digits" / "state_dict.pt", weights_only=True))
    scripted = torch.jit.load(EXAMPLES / "digits" / "digits.pt")
    scans = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(net(scans), scripted(scans))
