"""The calls for SageMaker, held to the parameters that its clients take."""

import json
from pathlib import Path
from typing import Any

import pytest
from exporting.exports import ECHO, HOSTILE, MakeMar, exported

CALLS = {
    "create-model": "CreateModel",
    "create-endpoint-config": "CreateEndpointConfig",
    "create-endpoint": "CreateEndpoint",
}


def sent(folder: str) -> dict[str, Any]:
    return {name: json.loads(Path(folder, f"{name}.json").read_bytes()) for name in CALLS}


@pytest.mark.parametrize("model", [{}, {"modelName": HOSTILE}, {"modelName": "x" * 90}])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_its_client_takes_every_call(device: str, model: dict[str, str], make_mar: MakeMar):
    session = pytest.importorskip("botocore.session", reason="botocore, which s3fs brings, knows the parameters")
    validate = pytest.importorskip("botocore.validate")
    service = session.get_session().get_service_model("sagemaker")
    for name, parameters in sent(exported(make_mar(ECHO, **model), "sagemaker", device=device).folder).items():
        shape = service.operation_model(CALLS[name]).input_shape
        report = validate.ParamValidator().validate(parameters, shape)
        assert not report.has_errors(), report.generate_report()


def test_the_calls_name_each_other(make_mar: MakeMar):
    role = "arn:aws:iam::123456789012:role/service-role/r"
    done = exported(make_mar(ECHO), "sagemaker", image="r.example/a:1", storage_uri="s3://b/m.tar.gz", role=role)
    calls = sent(done.folder)
    assert calls["create-model"] == {
        "ModelName": "probe",
        "PrimaryContainer": {"Image": "r.example/a:1", "ModelDataUrl": "s3://b/m.tar.gz"},
        "ExecutionRoleArn": role,
    }
    (variant,) = calls["create-endpoint-config"]["ProductionVariants"]
    assert (variant["ModelName"], variant["InstanceType"]) == ("probe", "ml.c6i.xlarge")
    assert calls["create-endpoint"]["EndpointConfigName"] == calls["create-endpoint-config"]["EndpointConfigName"]
    script = Path(done.folder, "deploy.sh").read_text()
    assert [name for name in CALLS if f"aws sagemaker {name} --cli-input-json file://{name}.json" in script] == list(
        CALLS
    )


@pytest.mark.parametrize(("startup", "seconds"), [(None, 120), (10, 60), (600, 600), (100_000, 3600)])
def test_it_waits_as_long_as_the_model_takes_to_load(startup: int | None, seconds: int, make_mar: MakeMar):
    given = {"files": {"c.yaml": f"startupTimeout: {startup}\n"}, "configFile": "c.yaml"} if startup else {}
    calls = sent(exported(make_mar(ECHO, **given), "sagemaker").folder)
    (variant,) = calls["create-endpoint-config"]["ProductionVariants"]
    assert variant["ContainerStartupHealthCheckTimeoutInSeconds"] == seconds
