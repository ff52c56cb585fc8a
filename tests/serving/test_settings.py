"""Addresses, and TorchServe's config.properties."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict
from refusals import has_code

from marpack.errors import UsageError
from marpack.serving.settings import (
    Address,
    MetricsMode,
    ModelProperties,
    ModelTuning,
    ServerConfig,
    parse_properties,
    sagemaker_tuning,
)

ADDRESSES = {
    "http://127.0.0.1:8080": (Address("127.0.0.1", 8080), "http://127.0.0.1:8080"),
    "http://0.0.0.0": (Address("0.0.0.0", 80), "http://0.0.0.0:80"),
    "HTTP://localhost:1/": (Address("localhost", 1), "http://localhost:1"),
    "http://my_host-1.lan:65535": (Address("my_host-1.lan", 65_535), "http://my_host-1.lan:65535"),
    "http://localhost:0": (Address("localhost", 0), "http://localhost:0"),
    "http://[::]:8080": (Address("::", 8080), "http://[::]:8080"),
    "http://[0:0::1]": (Address("::1", 80), "http://[::1]:80"),
    "unix:/run/s.sock": (Address("", 0, "/run/s.sock"), "unix:/run/s.sock"),
    "UNIX:/a b": (Address("", 0, "/a b"), "unix:/a b"),
}
REFUSED = {
    "TLS": ["https://127.0.0.1:8443", "HTTPS://localhost"],
    "is not an address": [
        *("127.0.0.1:8080", "8080", "", "http://", "http://host:", "http://host:80a", "http://host:-1"),
        *("http://ho st:80", "http://host:80/path", "http://user@host:80", "http://*:80", "http://::1:80"),
        *("http://höst:80", "ftp://host:80"),
        "http://ho\u017ft:80",  # its capital letter is S
    ],
    "port 65536": ["http://host:65536"],
    "is not an IPv6 address": ["http://[::g]:80", "http://[]:80"],
    "absolute path": ["unix:relative", "unix:", "unix:/a\0b"],
}


@pytest.mark.parametrize(("text", "expected"), ADDRESSES.items(), ids=ADDRESSES)
def test_reads_an_address(text: str, expected: tuple[Address, str]) -> None:
    address = Address.parse(text, default_port=80)
    assert (address, str(address)) == expected


@pytest.mark.parametrize(("what", "text"), [(what, text) for what, texts in REFUSED.items() for text in texts])
def test_refuses_an_address(what: str, text: str) -> None:
    with pytest.raises(UsageError, match=what) as caught:
        Address.parse(text, default_port=80)
    assert caught.value.hint


def test_loopback_addresses() -> None:
    inside = ["http://127.0.0.1:8081", "http://127.1.2.3:8081", "http://localhost:8081", "http://[::1]:8081", "unix:/s"]
    outside = ["http://0.0.0.0:8081", "http://[::]:8081", "http://10.0.0.1:8081", "http://127.example.com:8081"]
    assert [text for text in inside + outside if Address.parse(text, default_port=80).is_loopback] == inside


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
    "models": (  # a value of 0 or less counts as missing, as on TorchServe
        '{"m": {"1": {"defaultVersion": true, "batchSize": "8", "responseTimeout": 0, "startupTimeout": -1}, "2": {}}}',
        {"m": {"1": ModelProperties(default_version=True, batch_size=8), "2": ModelProperties()}},
    ),
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
    "default_service_handler": ("/opt/handler.py:handle", "/opt/handler.py:handle"),
    "ts_open_inference_protocol": ("true", True),
    "blacklist_env_vars": (".*TOKEN.*|AWS_.*", re.compile(".*TOKEN.*|AWS_.*")),
    "limit_max_image_pixels": ("false", False),
    "number_of_gpu": ("0", 0),
    "enable_envvars_config": ("true", True),
}


@pytest.mark.parametrize("key", VALUES)
def test_reads_each_key(tmp_path: Path, key: str) -> None:
    text, value = VALUES[key]
    found = said(read(tmp_path, f"# a comment\n{key}={text}"))
    assert found.pop("notes", ()) == () or key == "default_service_handler"
    assert found == {key: value}


NOT_MODELS = "not a JSON object of models and versions"
WRONG = {
    "job_queue_size=many": "'many' is not a whole number from 1",
    "max_request_size=6MB": "'6MB' is not a whole number",
    "number_of_gpu=1.5": "'1.5' is not a whole number from 0",
    "job_queue_size=0": "'0' is not a whole number from 1",
    "default_workers_per_model=-1": "'-1' is not a whole number from 0",
    "metric_time_interval=": "'' is not a whole number",
    "max_request_size=2147483648": "to 2147483647",
    "job_queue_size=\\u0661": "is not a whole number",
    "job_queue_size=1_000": "'1_000' is not a whole number",
    "token_expiration_min=soon": "'soon' is not a number of minutes",
    "token_expiration_min=0": "'0' is not a number of minutes",
    "token_expiration_min=inf": "'inf' is not a number of minutes",
    "token_expiration_min=nan": "'nan' is not a number of minutes",
    "inference_address=8080": "'8080' is not an address",
    "inference_address=https://0.0.0.0:8443": "TLS",
    "management_address=https://0.0.0.0": "TLS",
    "metrics_address=https://0.0.0.0": "TLS",
    "models={": NOT_MODELS,
    'models={"m": {"batchSize": 1}}': NOT_MODELS,
    'models={"m": {"1": {"batchSize": "x"}}}': NOT_MODELS,
    f'models={{"m": {{"1": {{"x": {"[" * 100_000}': NOT_MODELS,
    "model_snapshot={}": NOT_MODELS,
    "model_store=": "'' is not a path",
    "metrics_config=a\\u0000": "is not a path",
    "blacklist_env_vars=*": "not a regular expression",
    "model_store=$$STORE$$/a": "variable 'STORE', which is not set",
    "mine=$$STORE$$": "variable 'STORE', which is not set",
}


@pytest.mark.parametrize(("text", "what"), WRONG.items(), ids=[text[:40] for text in WRONG])
def test_refuses(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(UsageError, match=re.escape(what)) as caught:
        read(tmp_path, text)
    assert caught.value.where == f"{tmp_path / 'config.properties'}: {text.partition('=')[0]}"
    assert caught.value.hint
    assert (caught.value.code == "tls-not-supported") == ("TLS" in what)


NO_BOOLEAN = "enable_model_api is '{}', which counts as false; write true or false with nothing after it"
NOTES = {
    "grpc_inference_port=1\nenable_grpc_ssl=true": None,
    "grpc_management_port=1": "grpc_management_port has no effect: models are managed over HTTP only, not gRPC",
    "vmargs=-Xmx4g": "vmargs has no effect: there is no Java process to tune",
    "use_env_allowed_urls=true": "use_env_allowed_urls has no effect: allowed_urls is read from the file only",
    "default_service_handler=h.py:handle": "default_service_handler has no effect: an archive names its own handler",
    "install_py_dep_per_model=false\nipex_enable= False ": None,
    "inference_adress=http://0.0.0.0": "'inference_adress' is not a known key; did you mean inference_address?",
    "NUM_WORKERS=1": "'NUM_WORKERS' is not a known key",
    "min_workers=1": "'min_workers' is not a known key",
    "enable_model_api=yes": NO_BOOLEAN.format("yes"),
    "enable_model_api=true ": NO_BOOLEAN.format("true "),
    "metrics_mode=promotheus": (
        "metrics_mode is 'promotheus', which counts as log; the modes are log, prometheus, legacy"
    ),
    'models={"m": {"1": {"batch_size": 2}}}': (
        "models: 'batch_size' of 'm' '1' has no effect; did you mean batchSize?"
    ),
    "\\u001b[31m=1": "'\\x1b[31m' is not a known key",
}


@pytest.mark.parametrize(("text", "note"), NOTES.items())
def test_keys_and_values_without_effect_are_noted(tmp_path: Path, text: str, note: str | None) -> None:
    config = read(tmp_path, text)
    assert list(config.notes) == ([note] if note else [])
    assert config.enable_model_api is (False if "enable_model_api" in text else None)
    assert config.metrics_mode is (MetricsMode.LOG if "metrics_mode" in text else None)


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


def test_the_environment_takes_precedence_where_the_file_allows_it(tmp_path: Path) -> None:
    config = read(tmp_path, "enable_envvars_config=true\njob_queue_size=3\nmetric_time_interval=60", ENVIRON)
    assert said(config) == {
        "enable_envvars_config": True,
        "job_queue_size": 7,
        "metric_time_interval": 60,
        "ts_open_inference_protocol": True,
        "token_expiration_min": 5.0,
        "model_store": Path("$$PLAIN$$"),
    }
    for word in ("false", "yes", ""):
        assert read(tmp_path, f"enable_envvars_config={word}\njob_queue_size=3", ENVIRON).job_queue_size == 3
    assert said(read(tmp_path, "job_queue_size=3", ENVIRON)) == {"job_queue_size": 3}


def test_variables_without_effect_and_wrong_ones_are_named(tmp_path: Path) -> None:
    config = read(tmp_path, "enable_envvars_config=true", {"TS_VMARGS": "-Xmx4g", "TS_SNAPSHOT_STORE": "x"})
    assert [note.split()[0] for note in config.notes] == ["snapshot_store"]
    with pytest.raises(UsageError, match="'x'") as caught:
        read(tmp_path, "enable_envvars_config=true", {"TS_JOB_QUEUE_SIZE": "x"})
    assert (caught.value.code, caught.value.where) == ("invalid-integer", "TS_JOB_QUEUE_SIZE")


def test_allowed_urls_are_expressions_that_the_environment_does_not_replace(tmp_path: Path) -> None:
    lines = ("enable_envvars_config=true", "use_env_allowed_urls=true", r"allowed_urls=https://a\\.b/.* , http://c/d")
    config = read(tmp_path, "\n".join(lines), {"TS_ALLOWED_URLS": ".*"})
    assert [each.pattern for each in config.allowed_urls] == [r"https://a\.b/.*", "http://c/d"]
    assert config.allowed_urls[0].fullmatch("HTTPS://A.b/x")
    with pytest.raises(UsageError, match="regular expression"):
        read(tmp_path, "allowed_urls=https://(", {})


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    files = {
        "config-not-found": tmp_path / "none",
        "unreadable-config": tmp_path,
        "config-too-large": Path("/dev/zero"),
    }
    for code, file in files.items():
        with pytest.raises(UsageError) as caught:
            ServerConfig.read(file, {})
        assert (caught.value.code, caught.value.where) == (code, str(file))
    for text in (r"a=\u12", r"a=C:\users", r"\u00g0=1"):
        with pytest.raises(UsageError, check=has_code("invalid-escape")) as caught:
            read(tmp_path, text)
        assert caught.value.where == str(tmp_path / "config.properties")
        assert caught.value.hint


CASES = {
    "equals sign": (b"a=1", {"a": "1"}),
    "colon": (b"a:1", {"a": "1"}),
    "blank": (b"a 1", {"a": "1"}),
    "blanks around the sign": (b" \t\x0ca \t=\t 1", {"a": "1"}),
    "one sign only": (b"a==1\nb = : 2", {"a": "=1", "b": ": 2"}),
    "an address": (b"inference_address=http://0.0.0.0:8080", {"inference_address": "http://0.0.0.0:8080"}),
    "no value": (b"a\nb=\nc:", {"a": "", "b": "", "c": ""}),
    "blanks at the end stay": (b"a=1 \t", {"a": "1 \t"}),
    "comments": (b"#a=1\n!b=2\n  # c=3\nd=#4", {"d": "#4"}),
    "a comment is not continued": (b"# a\\\nb=1", {"b": "1"}),
    "blank lines": (b"\n \t\n\ra=1\r\n\r\n", {"a": "1"}),
    "three line ends": (b"a=1\rb=2\r\nc=3\nd=4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
    "other line ends are letters": (b"a=1\x0bb\x85c", {"a": "1\x0bb\x85c"}),
    "continued": (b"a=1,\\\n   2,\\\r\n\t3\nb=4", {"a": "1,2,3", "b": "4"}),
    "continued by a comment's sign": (b"a=1\\\n#2", {"a": "1#2"}),
    "continued by nothing": (b"a=1\\\n\nb=2", {"a": "1", "b": "2"}),
    "an escaped backslash continues nothing": (b"a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
    "three backslashes": (b"a=1\\\\\\\n2", {"a": "1\\2"}),
    "a backslash at the end": (b"a=1\\", {"a": "1"}),
    "escaped signs in a key": (rb"a\=b\:c\ d = 1", {"a=b:c d": "1"}),
    "escapes": (rb"a=\t\n\r\f\"\q\\", {"a": '\t\n\r\f"q\\'}),
    "a letter by its number": (rb"\u0061=\u00fc\u20AC", {"a": "ü€"}),
    "a letter by its halves": (rb"a=\ud83d\ude00", {"a": "😀"}),
    "half a letter": (rb"a=\ud83d", {"a": "\ufffd"}),
    "Latin-1": (b"a=\xfc", {"a": "ü"}),
    "the last one counts": (b"a=1\nb=2\na=3", {"a": "3", "b": "2"}),
    "empty": (b"", {}),
}


@pytest.mark.parametrize(("data", "expected"), CASES.values(), ids=CASES)
def test_reads_java_properties(data: bytes, expected: dict[str, str]) -> None:
    assert parse_properties(data) == expected


def test_variables_of_aws_images() -> None:
    assert sagemaker_tuning({"SAGEMAKER_REGION": "eu-west-1"}) == ModelTuning()
    given = {"SAGEMAKER_MODEL_SERVER_WORKERS": "3", "SAGEMAKER_TS_MIN_WORKERS": "2", "SAGEMAKER_TS_BATCH_SIZE": "8"}
    assert sagemaker_tuning(given) == ModelTuning(min_workers=2, max_workers=3, batch_size=8)
    given = {"SAGEMAKER_TS_RESPONSE_TIMEOUT": "5", "SAGEMAKER_MODEL_SERVER_TIMEOUT": "60"}
    assert sagemaker_tuning(given) == ModelTuning(response_timeout=5)
    with pytest.raises(UsageError) as caught:
        sagemaker_tuning({"SAGEMAKER_TS_BATCH_SIZE": "many"})
    assert (caught.value.code, caught.value.where) == ("invalid-integer", "SAGEMAKER_TS_BATCH_SIZE")
