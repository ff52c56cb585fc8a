"""What a handler's author has for tests of their own: the server's context, without a server."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from marpack.protocol.targets import Target, settings_of
from marpack.testing import context
from marpack.torchserve.metrics import MetricTypes


@pytest.mark.slow
def test_a_handlers_own_test_needs_no_server():
    folder = Path(__file__).parents[1] / "examples" / "digits"
    code = (
        "import sys; sys.path.insert(0, '.')\n"
        "from marpack.testing import context, install\n"
        "install()\n"
        "from handler import DigitsHandler\n"
        "handler = DigitsHandler()\n"
        "handler.initialize(context('.', model={'serializedFile': 'digits.pt'}))\n"
        "row = {'body': bytearray(open('samples/seven.png', 'rb').read())}\n"
        "assert handler.preprocess([row]).shape == (1, 1, 8, 8)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_context_is_the_servers_for_one_request(tmp_path: Path):
    made = context(tmp_path)
    model = {"modelName": "test", "modelVersion": "1.0", "handler": "handler.py"}
    assert made.manifest == {"runtime": "python", "model": model}
    assert made.model_name == "test"
    assert made.model_yaml_config == {}
    properties = {"model_dir": str(tmp_path), "gpu_id": None, "batch_size": 1, "limit_max_image_pixels": True}
    assert made.system_properties == {**properties, "server_name": "MMS", "server_version": "0.12.0"}
    assert made.request_ids == {0: "test-0"}
    assert [each.get_request_properties() for each in made.request_processor] == [{"explain": "False"}]
    assert settings_of(made).target is Target.TORCHSERVE


def test_a_context_says_of_batch_and_model_what_it_is_told(tmp_path: Path):
    (tmp_path / "config.yaml").write_text("mapping: small\n")
    model = {"modelName": "mine", "configFile": "config.yaml"}
    options = {"requests": 2, "headers": {"X": "y"}, "gpu_id": 0, "batch_size": 4, "target": "marpack"}
    made = context(tmp_path, model=model, **options)
    assert (made.model_name, made.model_yaml_config) == ("mine", {"mapping": "small"})
    assert (made.system_properties["gpu_id"], made.system_properties["batch_size"]) == (0, 4)
    assert made.request_ids == {0: "test-0", 1: "test-1"}
    assert [made.get_request_header(index, "X") for index in range(2)] == ["y", "y"]
    assert settings_of(made).target is Target.MARPACK


def test_metrics_are_told_of_the_model_and_the_request(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    made = context(tmp_path, model={"modelName": "mine"}, requests=2)
    assert made.metrics is not None
    with caplog.at_level(logging.INFO):
        made.metrics.add_counter("Seen", 1, idx=1)
    assert caplog.messages[0].startswith("[METRICS]Seen.Count:1|#ModelName:mine,Level:Model|")
    assert caplog.messages[0].endswith(",test-1")
    assert made.metrics.get_metric("PredictionTime", MetricTypes.GAUGE).unit == "Milliseconds"  # the server's own
