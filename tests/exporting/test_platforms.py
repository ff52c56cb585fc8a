"""Exports for KServe, SageMaker and Ray Serve, checked against the schemas and clients of these platforms."""

import ast
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from exporting.exports import ECHO, HOSTILE, MakeMar, contents, exported
from lazy import jsonschema

from marpack.version import __version__

SCHEMAS = Path(__file__).parents[1] / "data" / "kserve"
Json = Any  # whatever JSON is


def closed(schema: Json) -> Json:
    """Return a schema that takes no unknown property: a cluster drops these."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items() if key != "properties"}
    if "properties" in schema:
        made["properties"] = {name: closed(value) for name, value in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            made.setdefault("additionalProperties", False)
    return made


@cache
def published(kind: str) -> tuple[str, "jsonschema.Draft202012Validator"]:
    """Return a kind's version and its validator."""
    found = (json.loads(path.read_text()) for path in sorted(SCHEMAS.glob("*.json")))
    crd = next(each for each in found if each["kind"] == kind)
    schema = closed(crd["schema"])
    return f"{crd['group']}/{crd['version']}", jsonschema.Draft202012Validator(schema)


def kserve(archive: Path, **options: Any) -> list[Json]:
    """Return the documents of an export: the runtime, and the service for each protocol."""
    folder = Path(exported(archive, "kserve", **options).folder)
    names = ("serving-runtime.yaml", "inference-service.yaml", "inference-service-v2.yaml")
    assert {path.name for path in folder.glob("*.yaml")} == set(names)
    return [yaml.safe_load((folder / name).read_text()) for name in names]


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ({}, {}),
        ({"envelope": "json"}, {"device": "cuda"}),
        (
            {"modelName": HOSTILE},
            {"storage_uri": "oci://registry.example/models/digits:1", "image": "r.example:5000/m@sha256:" + "0" * 64},
        ),
    ],
)
def test_kserve_accepts_every_document(options: dict[str, Any], model: dict[str, str], make_mar: MakeMar):
    for document in kserve(make_mar(ECHO, **model), **options):
        version, validator = published(document["kind"])
        assert document["apiVersion"] == version
        validator.validate(document)
        document["spec"]["mistake"] = 1
        assert not validator.is_valid(document)


def test_kserves_runtime_and_services_fit_each_other(make_mar: MakeMar):
    runtime, v1, v2 = kserve(make_mar(ECHO, name="My_Net"), device="cuda", image="r.example/a:1")
    (container,) = runtime["spec"]["containers"]
    formats = {each["name"] for each in runtime["spec"]["supportedModelFormats"]}
    assert container["image"] == "r.example/a:1"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    for protocol, service, envelope in (("v1", v1, "kserve"), ("v2", v2, "kservev2")):
        model = service["spec"]["predictor"]["model"]
        assert service["metadata"]["name"] == "my-net"
        assert (model["runtime"], model["protocolVersion"]) == (runtime["metadata"]["name"], protocol)
        assert protocol in runtime["spec"]["protocolVersions"]
        assert model["modelFormat"]["name"] in formats
        assert model["args"] == ["--envelope", envelope, "--batch-size", "1"]


def test_the_second_command_uploads_the_archive_to_its_address(make_mar: MakeMar):
    archive = make_mar(ECHO)
    commands = {
        "s3://b/x.mar": "aws s3 cp model/probe.mar s3://b/x.mar",
        "gs://b/x.mar": "gcloud storage cp model/probe.mar gs://b/x.mar",
        "oci://r.example/m:1": "docker build -t r.example/m:1 model && docker push r.example/m:1",
        "pvc://disk/x.mar": "# put model/probe.mar where pvc://disk/x.mar says",
        "s3://b/$(id)": "aws s3 cp model/probe.mar 's3://b/$(id)'",
        "oci+native://r.example/m:1": "docker build -t r.example/m:1 model && docker push r.example/m:1",
    }
    for number, (uri, command) in enumerate(commands.items()):
        done = exported(archive, "kserve", archive.parent / str(number), storage_uri=uri)
        assert done.commands[1] == command
    lines = Path(done.folder, "model", "Dockerfile").read_text().splitlines()
    assert lines[1:] == ["FROM busybox:stable", 'COPY ["probe.mar", "/models/"]']


CALLS = {
    "create-model": "CreateModel",
    "create-endpoint-config": "CreateEndpointConfig",
    "create-endpoint": "CreateEndpoint",
}


def sagemaker(folder: str) -> dict[str, Any]:
    """Return the parameters of each call."""
    return {name: json.loads(Path(folder, f"{name}.json").read_bytes()) for name in CALLS}


@pytest.mark.parametrize(
    ("device", "model"), [("cpu", {}), ("cuda", {"modelName": HOSTILE}), ("cpu", {"modelName": "x" * 90})]
)
def test_sagemakers_client_accepts_every_call(device: str, model: dict[str, str], make_mar: MakeMar):
    session = pytest.importorskip("botocore.session", reason="botocore, a dependency of s3fs, knows the parameters")
    validate = pytest.importorskip("botocore.validate")
    service = session.get_session().get_service_model("sagemaker")
    for name, parameters in sagemaker(exported(make_mar(ECHO, **model), "sagemaker", device=device).folder).items():
        report = validate.ParamValidator().validate(parameters, service.operation_model(CALLS[name]).input_shape)
        assert not report.has_errors(), report.generate_report()


def test_sagemakers_calls_name_each_other(make_mar: MakeMar):
    role = "arn:aws:iam::123456789012:role/service-role/r"
    done = exported(make_mar(ECHO), "sagemaker", image="r.example/a:1", storage_uri="s3://b/m.tar.gz", role=role)
    calls = sagemaker(done.folder)
    assert calls["create-model"] == {
        "ModelName": "probe",
        "PrimaryContainer": {"Image": "r.example/a:1", "ModelDataUrl": "s3://b/m.tar.gz"},
        "ExecutionRoleArn": role,
    }
    (variant,) = calls["create-endpoint-config"]["ProductionVariants"]
    assert (variant["ModelName"], variant["InstanceType"]) == ("probe", "ml.c6i.xlarge")
    assert calls["create-endpoint"]["EndpointConfigName"] == calls["create-endpoint-config"]["EndpointConfigName"]
    script = Path(done.folder, "deploy.sh").read_text()
    assert all(f"aws sagemaker {name} --cli-input-json file://{name}.json" in script for name in CALLS)


@pytest.mark.parametrize(("startup", "seconds"), [(None, 120), (10, 60), (600, 600), (100_000, 3600)])
def test_sagemaker_waits_for_the_models_startup_timeout(startup: int | None, seconds: int, make_mar: MakeMar):
    given = {"files": {"c.yaml": f"startupTimeout: {startup}\n"}, "configFile": "c.yaml"} if startup else {}
    calls = sagemaker(exported(make_mar(ECHO, **given), "sagemaker").folder)
    (variant,) = calls["create-endpoint-config"]["ProductionVariants"]
    assert variant["ContainerStartupHealthCheckTimeoutInSeconds"] == seconds


def application(archive: Path, **options: Any) -> tuple[dict[str, Any], Path]:
    """Return the only application of Ray Serve's config, and the export's folder."""
    folder = Path(exported(archive, "ray-serve", **options).folder)
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert set(config) == {"applications"}
    [found] = config["applications"]
    return dict(found), folder


def test_the_layout_fits_containers_of_ray_serve(make_mar: MakeMar) -> None:
    archive = make_mar(ECHO)
    found, folder = application(archive)
    assert {"config.yaml", "deployment.py", "code/requirements.txt", "README.md", "probe.mar"} < set(contents(folder))
    assert (folder / "probe.mar").read_bytes() == archive.read_bytes()
    module = ast.parse((folder / "deployment.py").read_text())
    names = {each.name for each in module.body if isinstance(each, ast.ClassDef | ast.FunctionDef)}
    assert {found["deployments"][0]["name"], "app"} < names
    settings = {each.value for each in ast.walk(module) if isinstance(each, ast.Constant)}
    assert set(found["deployments"][0]["user_config"]) < settings
    assert (found["route_prefix"], found["import_path"]) == ("/", "deployment:app")
    assert found["args"] == {"archive": "probe.mar", "device": "cpu"}
    before = contents(folder)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "deployment.cpython-313.pyc").touch()
    exported(archive, "ray-serve", replace=True)  # a folder that was run
    assert contents(folder) == before


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
def test_ray_serve_has_the_workers_and_batches_of_the_config(
    make_mar: MakeMar, config: str, expected: dict[str, Any], batches: tuple[int, float]
) -> None:
    further = {"files": {"c.yaml": config}, "configFile": "c.yaml"} if config else {}
    [deployment] = application(make_mar(ECHO, **further))[0]["deployments"]
    assert expected.items() <= deployment.items()
    assert ("num_replicas" in deployment) is not ("autoscaling_config" in deployment)
    assert (deployment["user_config"]["max_batch_size"], deployment["user_config"]["batch_wait_timeout_s"]) == batches
    assert deployment["ray_actor_options"] == {"num_cpus": 1, "num_gpus": 0}


def test_ray_serve_requires_marpack_ray_and_the_archives_requirements(make_mar: MakeMar) -> None:
    files = {"requirements.txt": "numpy>=1.26\n# comment\n-e .\n--index-url https://example.com\n"}
    archive = make_mar(ECHO, files=files, requirementsFile="requirements.txt")
    found, folder = application(archive, device="cuda")
    lines = (folder / "code" / "requirements.txt").read_text().splitlines()
    assert lines == ["--find-links .", f"marpack=={__version__}", "ray[serve]>=2.54", "numpy>=1.26"]
    assert (folder / "code" / f"marpack-{__version__}-py3-none-any.whl").exists()
    assert found["args"]["device"] == "cuda"
    assert found["deployments"][0]["ray_actor_options"]["num_gpus"] == 1  # each replica has one of its own


HOSTILE_NAMES = (
    *('a b"; rm -rf', "x\n  args: {archive: /etc/passwd}", "*anchor", "../../up", "`id`", "{{ 7 * 7 }}", "ä" * 300),
    "true",
)


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_hostile_name_stays_a_name_for_ray_serve(make_mar: MakeMar, name: str) -> None:
    found, folder = application(make_mar(ECHO, modelName=name))
    assert set(found) == {"name", "route_prefix", "import_path", "args", "deployments"}
    assert isinstance(found["name"], str)
    assert (folder / found["args"]["archive"]).is_file()
    assert Path(found["args"]["archive"]).name == found["args"]["archive"]
    heading, blank, *_ = (folder / "README.md").read_text().splitlines()
    assert heading.startswith("# `")
    assert heading.endswith("` under Ray Serve")
    assert blank == ""
