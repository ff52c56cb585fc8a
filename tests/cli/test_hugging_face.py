"""Folders with Hugging Face models: what `init` writes, and whether its handlers respond as transformers does."""

import io
import json
import shutil
import subprocess
import sys
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from conformance.forking import forked_workers, shared
from invoking import Invoked, invoke
from safetensors.numpy import save_file

import marpack
from marpack.runner.client import LoadError, Worker

pytestmark = pytest.mark.usefixtures("uncovered")

TASKS = (
    *("text-classification", "token-classification", "question-answering", "fill-mask", "feature-extraction"),
    *("text-generation", "decoder", "image-classification", "ctc", "whisper", "shards"),
)
MODULES = (
    *("transformers.models.auto.modeling_auto", "transformers.models.auto.tokenization_auto"),
    *("transformers.models.auto.feature_extraction_auto", "transformers.generation.utils"),
    "transformers.models.bert.modeling_bert",
)
# A second request of a batch, shorter than the sample; without one, the sample again.
TEXTS = ("text-classification", "shards", "decoder", "token-classification", "fill-mask", "feature-extraction")
OTHERS = dict.fromkeys(TEXTS, "dog")
OTHERS |= {"question-answering": {"question": "where?", "context": "paris"}, "text-generation": "dog sat on"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model for each task; importing transformers takes ten times as long as making them."""
    folder = tmp_path_factory.mktemp("models")
    subprocess.run([sys.executable, Path(__file__).with_name("pretrained_models.py"), folder], check=True)
    return folder


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork workers from a process that has imported transformers, which takes four seconds."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # handlers set it before they import transformers
    monkeypatch.setattr(Worker, "spawn", forked_workers(lambda: shared(modules=MODULES)))


@pytest.fixture
def copied(models: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that copies a model into a folder of its own."""

    def copied(name: str) -> Path:
        return Path(shutil.copytree(models / name, tmp_path / name))

    return copied


def init(folder: Path, *words: str, code: int = 0) -> Invoked:
    return invoke("init", str(folder), *words, code=code)


def codes(done: Invoked) -> list[str]:
    return [finding["code"] for finding in json.loads(done.stdout)["findings"]]


def project(folder: Path) -> dict[str, object]:
    found: dict[str, object] = yaml.safe_load((folder / "marpack.yaml").read_text())
    return found


def comparable(value: object, number: Callable[[float], object] = float) -> object:
    """Return a response without the keys that only transformers' pipelines give, and without lists of one item."""
    if isinstance(value, dict):
        dropped = {"word", "index", "token", "sequence"}
        return {key: comparable(item, number) for key, item in value.items() if key not in dropped}
    if isinstance(value, list):
        return comparable(value[0], number) if len(value) == 1 else [comparable(item, number) for item in value]
    return number(value) if isinstance(value, float) else value


def lengthen(wav: bytes) -> bytes:
    """Return a WAV file that is twice as long."""
    made = io.BytesIO()
    with wave.open(io.BytesIO(wav)) as sound, wave.open(made, "wb") as longer:
        longer.setparams(sound.getparams())
        longer.writeframes(2 * sound.readframes(sound.getnframes()))
    return made.getvalue()


@pytest.mark.parametrize(
    "name", [pytest.param(task, marks=pytest.mark.peer if task == TASKS[0] else pytest.mark.slow) for task in TASKS]
)
@pytest.mark.usefixtures("forked")
def test_the_handler_answers_as_transformers_does(name: str, models: Path, copied: Callable[[str], Path]):
    folder = copied(name)
    init(folder)
    (sample,) = project(folder)["samples"]
    body = (folder / sample["input"]).read_bytes()
    other = lengthen(body) if name == "ctc" else OTHERS.get(name, body)
    with marpack.load(folder) as model:
        alone = model.predict(folder / sample["input"])
        _, batched = model.predict_batch([other, body])
    expected = json.loads((models / "expected.json").read_text())[name]
    assert expected
    expected = comparable(expected, lambda number: pytest.approx(number, abs=1e-4))
    for answer in (alone, batched):
        assert answer.status == 200, answer.troubles
        assert (answer.body if name == "text-generation" else comparable(answer.json())) == expected


def test_the_project_packs_what_the_model_needs_and_names_the_rest(tmp_path: Path):
    folder = tmp_path / "feature-extraction"
    (folder / "1_Pooling").mkdir(parents=True)
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    contents = {
        "config.json": {"architectures": ["BertModel"], "model_type": "bert"},
        "modules.json": [{"path": path, "type": f"sentence_transformers.models.{kinds[path]}"} for path in kinds],
        "1_Pooling/config.json": {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True},
        "tokenizer.json": {},
        "tokenizer_config.json": {"tokenizer_class": "BertTokenizer"},
    }
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content))
    save_file({"layer.weight": np.ones((2, 3), "float32")}, folder / "model.safetensors")
    (folder / "README.md").write_text("---\npipeline_tag: sentence-similarity\n---\nThe model card.\n")
    for name in ("pytorch_model.bin", "tf_model.h5", ".gitattributes"):
        (folder / name).write_bytes(b"x")
    (folder / ".git").mkdir()
    assert codes(init(folder, "--json")) == ["task-chosen", "left-out"]
    assert project(folder)["weights"] == "model.safetensors"
    assert project(folder)["files"] == [
        *("1_Pooling/config.json", "config.json", "modules.json", "tokenizer.json", "tokenizer_config.json"),
    ]
    assert "The model card." in (folder / "README.md").read_text()
    handler = (folder / "handler.py").read_text()
    assert "local_files_only=True" in handler
    assert handler.index('os.environ["HF_HUB_OFFLINE"] = "1"') < handler.index("from transformers import")
    assert "normalize(vectors, dim=1)" in handler
    assert (folder / "requirements.txt").read_text().startswith("transformers==")
    checked = marpack.inspect(folder)
    assert {member.name for member in checked.members} >= {"1_Pooling/config.json", "model.safetensors"}


OWN_CODE = """
from transformers import BertConfig


class OwnConfig(BertConfig):
    model_type = "own"
"""
OWN_MODEL = """
from transformers import BertForSequenceClassification

from .configuration_own import OwnConfig


class OwnModel(BertForSequenceClassification):
    config_class = OwnConfig
"""


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_code_of_the_model_runs_only_if_its_author_is_trusted(copied: Callable[[str], Path]):
    folder = copied("text-classification")
    (folder / "configuration_own.py").write_text(OWN_CODE)
    (folder / "modeling_own.py").write_text(OWN_MODEL)
    names = {"AutoConfig": "configuration_own.OwnConfig", "AutoModelForSequenceClassification": "modeling_own.OwnModel"}
    config = {"architectures": ["OwnModel"], "model_type": "own", "auto_map": names}
    before = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(before | config))
    init(folder, "--task", "text-classification")
    with pytest.raises(LoadError), marpack.load(folder):
        pass
    init(folder, "--task", "text-classification", "--trust-remote-code", "--force")
    with marpack.load(folder) as model:
        answer = model.predict("dog")
    assert (answer.status, len(answer.json())) == (200, 3), answer.troubles
