"""The training scripts: what is committed is what they make, and the samples are scans the net never saw."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from PIL import Image

pytestmark = pytest.mark.usefixtures("uncovered")

REPOSITORY = Path(__file__).parents[2]
DIGITS = REPOSITORY / "examples" / "digits"

if find_spec("sklearn") is None:
    pytest.skip("training needs marpack[examples]", allow_module_level=True)


QUICK = ["batches_and_metrics", "function_handler", "onnx", "safetensors_compile", "text_classifier", "torch_export"]


def start_training(folder: Path, name: str = "digits") -> subprocess.Popen[str]:
    folder.mkdir()
    command = [sys.executable, "-m", f"examples.{name}.train", str(folder)]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_digits_trains_to_97_percent_and_to_the_same_bytes_each_time(tmp_path):
    folders = tmp_path / "first", tmp_path / "second"
    for run in [start_training(folder) for folder in folders]:
        said, _ = run.communicate(timeout=300)
        assert run.returncode == 0
        assert float(re.match(r"([\d.]+)% of 450 held-out scans", said)[1]) >= 97
    made = sorted(path.relative_to(folders[0]) for path in folders[0].rglob("*") if path.is_file())
    assert len(made) == 15
    for path in made:
        assert (folders[0] / path).read_bytes() == (folders[1] / path).read_bytes(), path
        assert (DIGITS / path).stat().st_size == (folders[0] / path).stat().st_size, path


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.peer if name == "function_handler" else pytest.mark.slow) for name in QUICK],
)
def test_quick_examples_train_to_what_they_demand_and_make_what_is_committed(tmp_path, name):
    run = start_training(tmp_path / name, name)
    said, _ = run.communicate(timeout=120)
    assert run.returncode == 0, said
    made = {path.relative_to(tmp_path / name) for path in (tmp_path / name).rglob("*") if path.is_file()}
    assert made
    assert all((REPOSITORY / "examples" / name / path).is_file() for path in made)


@pytest.mark.slow
def test_digits_samples_are_held_out(monkeypatch):
    from sklearn.model_selection import train_test_split

    monkeypatch.syspath_prepend(REPOSITORY)
    from examples.digits import train

    scans, digits = train.load()
    known, held_out, _, _ = train_test_split(scans, digits, test_size=0.25, random_state=0, stratify=digits)
    pictures = [train.picture(scan).resize((8, 8), Image.Resampling.NEAREST).tobytes() for scan in known]
    seen = set(pictures)
    new = {train.picture(scan).resize((8, 8), Image.Resampling.NEAREST).tobytes() for scan in held_out}
    for path in (DIGITS / "samples").glob("*.png"):
        with Image.open(path) as picture:
            scan = picture.resize((8, 8), Image.Resampling.NEAREST).tobytes()
        assert scan not in seen, path
        assert scan in new, path
