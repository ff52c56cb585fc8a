"""A TorchServe's config.properties: what counts, what is told of, what stops the start."""

import errno
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict, fields

from marpack.errors import UsageError
from marpack.serving.settings import Address, MetricsMode, ModelProperties, ServerConfig

MODELS = """\
models={\\
  "noop": {\\
    "1.0": {\\
        "defaultVersion": true,\\
        "marName": "noop.mar",\\
        "minWorkers": 1,\\
        "maxWorkers": 4,\\
        "batchSize": "8",\\
        "maxBatchDelay": 100,\\
        "responseTimeout": 0,\\
        "startupTimeout": -1\\
    },\\
    "2": {}\\
  }\\
}
"""
NOOP = ModelProperties(
    min_workers=1, max_workers=4, batch_size=8, max_batch_delay=100, default_version=True, mar_name="noop.mar"
)


def read(tmp_path: Path, text: str, environ: Mapping[str, str] | None = None) -> ServerConfig:
    file = tmp_path / "config.properties"
    file.write_text(text, encoding="latin-1")
    return ServerConfig.read(file, environ or {})


def said(config: ServerConfig) -> dict[str, Any]:
    """Return what a config says, without what it leaves open."""
    return {key: value for key, value in asdict(config).items() if value != getattr(ServerConfig(), key)}


VALUES: dict[str, tuple[str, Any]] = {
    "inference_address": ("http://0.0.0.0", Address("0.0.0.0", 80)),
    "management_address": ("http://127.0.0.1", Address("127.0.0.1", 8081)),
    "metrics_address": ("unix:/run/metrics", Address("", 0, "/run/metrics")),
    "load_models": ("a.mar, b=c.mar,,all", ("a.mar", "b=c.mar", "all")),
    "models": ('{"m": {"1": {"batchSize": 2}}}', {"m": {"1": ModelProperties(batch_size=2)}}),
    "model_snapshot": (
        '{"name": "startup.cfg", "modelCount": 1, "models": {"m": {"1": {"marName": "m.mar"}}}}',
        {"m": {"1": ModelProperties(mar_name="m.mar")}},
    ),
    "model_store": ("/home/model-server/store", Path("/home/model-server/store")),
    "default_workers_per_model": ("0", 0),
    "job_queue_size": (" 1 ", 1),
    "default_response_timeout": ("+120", 120),
    "default_startup_timeout": ("60", 60),
    "unregister_model_timeout": ("0", 0),
    "max_request_size": ("2147483647", 2_147_483_647),
    "max_response_size": ("6553500", 6_553_500),
    "decode_input_request": ("false", False),
    "cors_allowed_origin": ("*", "*"),
    "cors_allowed_methods": ("GET, POST", "GET, POST"),
    "cors_allowed_headers": ("X-Mine", "X-Mine"),
    "disable_token_authorization": ("false", False),
    "token_expiration_min": ("0.5", 0.5),
    "enable_model_api": ("TRUE", True),
    "metrics_mode": ("Prometheus", MetricsMode.PROMETHEUS),
    "metrics_config": ("metrics.yaml", Path("metrics.yaml")),
    "model_metrics_auto_detect": ("true", True),
    "enable_metrics_api": ("False", False),
    "disable_system_metrics": ("true", True),
    "metric_time_interval": ("30", 30),
    "service_envelope": ("kserve", "kserve"),
    "ts_open_inference_protocol": ("true", True),
    "blacklist_env_vars": (".*TOKEN.*|AWS_.*", re.compile(".*TOKEN.*|AWS_.*")),
    "limit_max_image_pixels": ("false", False),
    "number_of_gpu": ("0", 0),
    "enable_envvars_config": ("true", True),
}


def test_every_key_has_a_case() -> None:
    assert set(VALUES) == {field.name for field in fields(ServerConfig)} - {"notes"}


@pytest.mark.parametrize("key", VALUES)
def test_reads_each_key(tmp_path: Path, key: str) -> None:
    text, value = VALUES[key]
    assert said(read(tmp_path, f"{key}={text}")) == {key: value}


def test_says_nothing_where_the_file_says_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, "# all defaults\n") == ServerConfig()


def test_reads_the_models_of_an_example(tmp_path: Path) -> None:
    """A value of 0 or less says nothing, as in the original."""
    assert said(read(tmp_path, MODELS)) == {"models": {"noop": {"1.0": NOOP, "2": ModelProperties()}}}


WRONG = {
    "a word for a number": ("job_queue_size=many", "job_queue_size", "'many' is not a whole number from 1"),
    "a unit": ("max_request_size=6MB", "max_request_size", "'6MB' is not a whole number"),
    "a fraction": ("number_of_gpu=1.5", "number_of_gpu", "'1.5' is not a whole number from 0"),
    "no queue": ("job_queue_size=0", "job_queue_size", "'0' is not a whole number from 1"),
    "below zero": ("default_workers_per_model=-1", "default_workers_per_model", "'-1' is not a whole number from 0"),
    "no number": ("metric_time_interval=", "metric_time_interval", "'' is not a whole number"),
    "too large for Java": ("max_request_size=2147483648", "max_request_size", "to 2147483647"),
    "other digits": ("job_queue_size=\\u0661", "job_queue_size", "is not a whole number"),
    "grouped digits": ("job_queue_size=1_000", "job_queue_size", "'1_000' is not a whole number"),
    "no minutes": ("token_expiration_min=soon", "token_expiration_min", "'soon' is not a number of minutes"),
    "no time at all": ("token_expiration_min=0", "token_expiration_min", "'0' is not a number of minutes"),
    "no end": ("token_expiration_min=inf", "token_expiration_min", "'inf' is not a number of minutes"),
    "not even a number": ("token_expiration_min=nan", "token_expiration_min", "'nan' is not a number of minutes"),
    "no address": ("inference_address=8080", "inference_address", "'8080' is not an address"),
    "TLS": ("inference_address=https://0.0.0.0:8443", "inference_address", "asks for TLS"),
    "TLS for management": ("management_address=https://0.0.0.0", "management_address", "asks for TLS"),
    "TLS for metrics": ("metrics_address=https://0.0.0.0", "metrics_address", "asks for TLS"),
    "models without JSON": ("models={", "models", "not a JSON object of models and versions"),
    "models without versions": ('models={"m": {"batchSize": 1}}', "models", "not a JSON object of models and versions"),
    "a model's wrong number": ('models={"m": {"1": {"batchSize": "x"}}}', "models", "not a JSON object of models"),
    "a deep hole": (
        f'models={{"m": {{"1": {{"x": {"[" * 100_000}',
        "models",
        "not a JSON object of models and versions",
    ),
    "a snapshot without models": ("model_snapshot={}", "model_snapshot", "not a JSON object of models and versions"),
    "no path": ("model_store=", "model_store", "'' is not a path"),
    "a NUL in a path": ("metrics_config=a\\u0000", "metrics_config", "is not a path"),
    "no pattern": ("blacklist_env_vars=*", "blacklist_env_vars", "not a regular expression"),
    "an unset variable": ("model_store=$$STORE$$/a", "model_store", "variable 'STORE', which is not set"),
    "an unset variable of an unknown key": ("mine=$$STORE$$", "mine", "variable 'STORE', which is not set"),
}


@pytest.mark.parametrize(("text", "key", "what"), WRONG.values(), ids=WRONG)
def test_refuses(tmp_path: Path, text: str, key: str, what: str) -> None:
    with pytest.raises(UsageError, match=re.escape(what)) as caught:
        read(tmp_path, text)
    assert caught.value.where == f"{tmp_path / 'config.properties'}: {key}"
    assert caught.value.hint


def test_tls_is_told_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, "inference_address=https://0.0.0.0:8443")
    assert caught.value.code == "tls-not-supported"
    assert "proxy" in str(caught.value.hint)


NOTES = {
    "gRPC, once": (
        "grpc_inference_port=1\nenable_grpc_ssl=true",
        ["grpc_inference_port, enable_grpc_ssl have no effect: marpack serves HTTP only, not gRPC"],
    ),
    "one key": ("vmargs=-Xmx4g", ["vmargs has no effect: there is no Java process to tune"]),
    "URLs": (
        "allowed_urls=https://.*",
        ["allowed_urls has no effect: models are registered from the model store only; copy their archives there"],
    ),
    "what is off": ("install_py_dep_per_model=false\nipex_enable= False ", []),
    "a misspelt key": (
        "inference_adress=http://0.0.0.0",
        ["'inference_adress' is not a known key; did you mean inference_address?"],
    ),
    "a key of somebody else": ("NUM_WORKERS=1", ["'NUM_WORKERS' is not a known key"]),
    "a key that is like none": ("min_workers=1", ["'min_workers' is not a known key"]),
    "no boolean": (
        "enable_model_api=yes",
        ["enable_model_api is 'yes', which counts as false; write true or false, nothing after it"],
    ),
    "a blank after a boolean": (
        "enable_model_api=true ",
        ["enable_model_api is 'true ', which counts as false; write true or false, nothing after it"],
    ),
    "no mode": (
        "metrics_mode=promotheus",
        ["metrics_mode is 'promotheus', which counts as log; the modes are log, prometheus, legacy"],
    ),
    "a model's misspelt property": (
        'models={"m": {"1": {"batch_size": 2}}}',
        ["models: 'batch_size' of 'm' '1' has no effect; did you mean batchSize?"],
    ),
    "a key's letters": ("\\u001b[31m=1", ["'\\x1b[31m' is not a known key"]),
}


@pytest.mark.parametrize(("text", "notes"), NOTES.values(), ids=NOTES)
def test_tells_what_has_no_effect(tmp_path: Path, text: str, notes: list[str]) -> None:
    assert list(read(tmp_path, text).notes) == notes


def test_doubtful_values_count_as_the_original_counts_them(tmp_path: Path) -> None:
    config = read(tmp_path, "enable_model_api=true \nmetrics_mode=promotheus")
    assert (config.enable_model_api, config.metrics_mode) == (False, MetricsMode.LOG)


def test_puts_the_environment_into_values(tmp_path: Path) -> None:
    environ = {"STORE": "/store", "NAME": "$$STORE$$"}
    config = read(tmp_path, "model_store=$$STORE$$/a$$NAME$$\nservice_envelope=$$\nload_models=$$X$$", environ)
    assert config.model_store == Path("/store/a$$STORE$$")
    assert (config.service_envelope, config.load_models) == ("$$", ("$$X$$",))  # names have two letters or more


ENVIRON = {
    "TS_JOB_QUEUE_SIZE": "7",
    "TS_OPEN_INFERENCE_PROTOCOL": "true",
    "TS_TOKEN_EXPIRATION_TIME_MIN": "5",
    "TS_MODEL_STORE": "$$PLAIN$$",
    "TS_METRIC_TIME_INTERVAL": "1",  # counts from the file alone, as do the next two
    "TS_MODELS": "{",
    "TS_ENABLE_ENVVARS_CONFIG": "false",
    "JOB_QUEUE_SIZE": "9",
}


def test_the_environment_beats_the_file_where_it_may(tmp_path: Path) -> None:
    config = read(tmp_path, "enable_envvars_config=true\njob_queue_size=3\nmetric_time_interval=60", ENVIRON)
    assert said(config) == {
        "enable_envvars_config": True,
        "job_queue_size": 7,
        "metric_time_interval": 60,
        "ts_open_inference_protocol": True,
        "token_expiration_min": 5.0,
        "model_store": Path("$$PLAIN$$"),
    }


@pytest.mark.parametrize("word", ["false", "yes", ""])
def test_the_environment_counts_only_where_the_file_says_so(tmp_path: Path, word: str) -> None:
    assert read(tmp_path, f"enable_envvars_config={word}\njob_queue_size=3", ENVIRON).job_queue_size == 3
    assert said(read(tmp_path, "job_queue_size=3", ENVIRON)) == {"job_queue_size": 3}


def test_a_variable_without_effect_is_told_of(tmp_path: Path) -> None:
    config = read(tmp_path, "enable_envvars_config=true", {"TS_ALLOWED_URLS": "https://.*"})
    assert [note.split()[0] for note in config.notes] == ["allowed_urls"]


def test_a_wrong_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'x'") as caught:
        read(tmp_path, "enable_envvars_config=true", {"TS_JOB_QUEUE_SIZE": "x"})
    assert (caught.value.code, caught.value.where) == ("invalid-integer", "TS_JOB_QUEUE_SIZE")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        ServerConfig.read(tmp_path / "none", {})
    assert (caught.value.code, caught.value.where) == ("config-not-found", str(tmp_path / "none"))


def test_a_folder_in_its_place(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=os.strerror(errno.EISDIR)) as caught:
        ServerConfig.read(tmp_path, {})
    assert (caught.value.code, caught.value.where) == ("unreadable-config", str(tmp_path))


def test_an_endless_file() -> None:
    with pytest.raises(UsageError, match="larger than 1024 KiB"):
        ServerConfig.read(Path("/dev/zero"), {})


def test_half_an_escape_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="hexadecimal") as caught:
        read(tmp_path, "a=\\u12")
    assert caught.value.where == str(tmp_path / "config.properties")


@pytest.mark.parametrize("field", [each.name for each in fields(ServerConfig)])
def test_what_is_read_counts(field: str) -> None:
    """A key that is read and used nowhere would be passed over without a word."""
    of_reading = {"notes", "enable_envvars_config"}
    by_port = {"inference_address", "management_address"}
    commands = (Path(__file__).parents[2] / "marpack" / "cli").glob("serve*.py")
    used = any(f"config.{field}" in command.read_text() for command in commands)
    assert used or field in of_reading | by_port
