"""What a folder holds, told by content and syntax, whatever the files are called."""

import os
import shutil

import pytest
from project.conftest import write

from marpack.project.scaffold.folder_scan import scan_folder
from marpack.weights.kind import WeightsFormat

HANDLER = "from ts.torch_handler.base_handler import BaseHandler\nclass H(BaseHandler):\n    pass\n"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("pictures", WeightsFormat.TORCHSCRIPT),
        ("state_dict", WeightsFormat.STATE_DICT),
        ("pickled", WeightsFormat.PICKLED_MODULE),
        ("onnx", WeightsFormat.ONNX),
    ],
)
@pytest.mark.parametrize("called", ["w.pt", "w.bin", "weights", "a/b/w.ckpt"])
def test_weights_are_known_by_their_content(tmp_path, saved, name, kind, called):
    (tmp_path / called).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(saved[name], tmp_path / called)
    (found,) = scan_folder(tmp_path).weights
    assert (found.name, found.kind, found.size) == (called, kind, saved[name].stat().st_size)


def test_the_likeliest_weights_come_first(tmp_path, saved):
    for name in ("state_dict", "onnx", "few", "gray"):
        shutil.copy(saved[name], tmp_path / f"{name}.bin")
    (tmp_path / "old").mkdir()
    shutil.copy(saved["pictures"], tmp_path / "old")
    kinds = [weights.kind for weights in scan_folder(tmp_path).weights]
    script = WeightsFormat.TORCHSCRIPT
    assert kinds == [script, script, WeightsFormat.ONNX, WeightsFormat.STATE_DICT, script]


def test_what_only_looks_like_weights_is_none(tmp_path, saved):
    shutil.copy(saved["vocabulary"], tmp_path / "source_vocab.pt")
    (tmp_path / "broken.pt").write_bytes(saved["few"].read_bytes()[:1000])
    (tmp_path / "empty.onnx").touch()
    found = scan_folder(tmp_path)
    assert found.weights == ()
    assert found.vocabulary == "source_vocab.pt"


@pytest.mark.parametrize(
    ("source", "entries"),
    [
        (HANDLER, ("x.py",)),
        ("class Mine:\n    def handle(self, data, context): ...\n", ("x.py",)),
        ("def handle(data, context): ...\n", ("x.py",)),
        ("def predict(data, context): ...\ndef load(path): ...\n", ("x.py:predict",)),
        ("def predict(rows, ctx): ...\n", ("x.py:predict",)),
        ("def predict(data): ...\n", ()),
        ("class Plain: ...\n", ()),
        ("def broken(:\n", ()),
        ("\0", ()),
    ],
)
def test_handlers_are_known_by_their_syntax(tmp_path, source, entries):
    (tmp_path / "x.py").write_text(source)
    assert scan_folder(tmp_path).handlers == entries


def test_a_handler_in_a_folder_finds_what_lies_beside_it_and_at_the_root(tmp_path):
    near = "from near import Near\nclass H(Near): ...\n"
    far = near.replace("near", "far").replace("Near", "Far")
    write(tmp_path, {"sub/x.py": near, "sub/near.py": HANDLER.replace("class H", "class Near"), "z.py": near})
    write(tmp_path, {"sub/y.py": far, "far.py": HANDLER.replace("class H", "class Far")})
    assert scan_folder(tmp_path).handlers == ("far.py", "sub/near.py", "sub/x.py", "sub/y.py")


def test_two_thousand_files_are_looked_at_the_topmost_first(tmp_path):
    (tmp_path / "a").mkdir()
    for number in range(2000):
        (tmp_path / "a" / f"{number}.md").touch()
    (tmp_path / "z.md").touch()
    names = scan_folder(tmp_path).names
    assert len(names) == 2000
    assert "z.md" in names
    assert "a/999.md" not in names


def test_tests_and_training_scripts_are_no_handlers(tmp_path):
    for name in ("test_handler.py", "handler_test.py", "conftest.py", "train.py", "setup.py"):
        (tmp_path / name).write_text(HANDLER)
    assert scan_folder(tmp_path).handlers == ()


@pytest.mark.parametrize(
    ("source", "is_model"),
    [
        ("class Net(torch.nn.Module): ...\n", True),
        ("class Net(Module): ...\n", True),
        ("class A(nn.Module): ...\nclass B(nn.Module): ...\n", False),
        ("class Net: ...\n", False),
    ],
)
def test_a_model_file_has_one_module(tmp_path, source, is_model):
    (tmp_path / "net.py").write_text(source)
    assert scan_folder(tmp_path).model_files == (("net.py",) if is_model else ())


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("labels.txt", "a\nb\n", 2),
        ("index_to_name.json", '{"0": "a", "1": ["n1", "b"]}', 2),
        ("classes.json", '["a", "b", "c"]', 3),
        ("class_names.csv", "index,label\n0,a\n1,b\n", 2),
        ("labels.json", '{"object_type_names": ["a", "b"]}', 2),
    ],
)
def test_labels_are_counted(tmp_path, name, text, count):
    (tmp_path / name).write_text(text)
    (labels,) = scan_folder(tmp_path).labels
    assert (labels.name, labels.count, labels.named) == (name, count, True)


def test_what_does_not_read_as_labels_is_none(tmp_path):
    write(tmp_path, {"labels.txt": "a\n\nb\n", "settings.json": '{"lr": 1}', "requirements.txt": "torch\n"})
    write(tmp_path, {"params.yaml": "batchSize: 4\n", "classes.json": "{", "names.json": '{"a": "b"}'})
    found = scan_folder(tmp_path)
    assert found.labels == ()
    assert found.requirements == "requirements.txt"
    assert found.configs == ("params.yaml",)


CONFIGS = {
    "model-config.yaml": "hidden_size: 3\n",
    "model_config.yml": "handler:\n  x: 1\n",
    "serving.yaml": "maxBatchDelay: 50\nmine: 1\n",
    "sequences.yaml": "sequenceBatching: true\n",
    "compiled.yaml": "pt2: inductor\nhandler:\n  x: 1\n",
}
NO_CONFIGS = {
    "docker-compose.yaml": "services:\n  api:\n    handler: x\n",
    "mkdocs.yml": "site_name: x\nhandler: y\n",
    "serverless.yml": "provider: aws\nhandler: app.handle\n",
    "deployment.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {}\n",
    "empty.yaml": "",
}


def test_a_model_config_is_known_by_its_name_or_the_servers_keys(tmp_path):
    for name, text in (CONFIGS | NO_CONFIGS).items():
        (tmp_path / name).write_text(text)
    assert set(scan_folder(tmp_path).configs) == set(CONFIGS)


def test_what_is_called_a_model_config_comes_first(tmp_path):
    write(tmp_path, {"a.yaml": "batchSize: 1\n", "sub/model-config.yaml": "batchSize: 2\n"})
    assert scan_folder(tmp_path).configs == ("sub/model-config.yaml", "a.yaml")


def test_other_projects_environments_and_hidden_files_are_passed_by(tmp_path, saved):
    write(tmp_path, {"venv/pyvenv.cfg": "", "other/marpack.yaml": ""})
    for place in ("venv", "other", ".hidden", "node_modules", "a/b/c", "model/MAR-INF"):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        shutil.copy(saved["few"], tmp_path / place / "model.pt")
    shutil.copy(saved["few"], tmp_path / ".model.pt")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert scan_folder(tmp_path).weights == ()


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    (tmp_path / "model.pt").symlink_to(tmp_path / "missing")
    assert not scan_folder(tmp_path).names
