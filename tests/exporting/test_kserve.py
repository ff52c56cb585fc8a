"""The YAML for KServe, held to the schemas that KServe publishes."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from exporting.exports import ECHO, HOSTILE, MakeMar, exported
from lazy import jsonschema

SCHEMAS = Path(__file__).parents[1] / "data" / "kserve"
Json = Any  # whatever JSON is


def closed(schema: Json) -> Json:
    """Return a schema that takes no property it does not know: what a cluster drops is no less a mistake."""
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
    """Return a kind's version, and what validates it."""
    found = (json.loads(path.read_text()) for path in sorted(SCHEMAS.glob("*.json")))
    crd = next(each for each in found if each["kind"] == kind)
    schema = closed(crd["schema"])
    jsonschema.Draft202012Validator.check_schema(schema)
    return f"{crd['group']}/{crd['version']}", jsonschema.Draft202012Validator(schema)


def check(document: Json) -> None:
    """Raise what a cluster would refuse or drop."""
    version, validator = published(document["kind"])
    assert document["apiVersion"] == version
    validator.validate(document)


def documents(folder: str) -> dict[str, Json]:
    return {path.name: yaml.safe_load(path.read_text()) for path in sorted(Path(folder).glob("*.yaml"))}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"device": "cuda"},
        {"storage_uri": "oci://registry.example/models/digits:1", "image": "r.example:5000/m@sha256:" + "0" * 64},
    ],
)
@pytest.mark.parametrize("model", [{}, {"modelName": HOSTILE}, {"envelope": "json"}])
def test_every_document_is_what_its_schema_takes(options: dict[str, Any], model: dict[str, str], make_mar: MakeMar):
    found = documents(exported(make_mar(ECHO, **model), "kserve", **options).folder)
    assert set(found) == {"serving-runtime.yaml", "inference-service.yaml", "inference-service-v2.yaml"}
    for document in found.values():
        check(document)
        document["spec"]["mistake"] = 1
        with pytest.raises(jsonschema.ValidationError):
            check(document)


def test_runtime_and_model_go_together(make_mar: MakeMar):
    found = documents(exported(make_mar(ECHO, name="My_Net"), "kserve", device="cuda", image="r.example/a:1").folder)
    runtime, v1, v2 = (
        found[name] for name in ("serving-runtime.yaml", "inference-service.yaml", "inference-service-v2.yaml")
    )
    models = {protocol: each["spec"]["predictor"]["model"] for protocol, each in (("v1", v1), ("v2", v2))}
    (container,) = runtime["spec"]["containers"]
    formats = {each["name"] for each in runtime["spec"]["supportedModelFormats"]}
    assert container["image"] == "r.example/a:1"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    for protocol, model in models.items():
        assert model["runtime"] == runtime["metadata"]["name"]
        assert model["protocolVersion"] == protocol
        assert protocol in runtime["spec"]["protocolVersions"]
        assert model["modelFormat"]["name"] in formats
    assert models["v1"]["args"] == ["--envelope", "kserve", "--batch-size", "1"]
    assert models["v2"]["args"] == ["--envelope", "kservev2", "--batch-size", "1"]
    assert v1["metadata"]["name"] == v2["metadata"]["name"] == "my-net"


def test_the_archive_is_brought_where_it_is_fetched(make_mar: MakeMar):
    archive = make_mar(ECHO)
    commands = {
        "s3://b/x.mar": "aws s3 cp model/probe.mar s3://b/x.mar",
        "gs://b/x.mar": "gcloud storage cp model/probe.mar gs://b/x.mar",
        "oci://r.example/m:1": "docker build -t r.example/m:1 model && docker push r.example/m:1",
        "oci+native://r.example/m:1": "docker build -t r.example/m:1 model && docker push r.example/m:1",
        "pvc://disk/x.mar": "# put model/probe.mar where pvc://disk/x.mar says",
        "s3://b/$(id)": "aws s3 cp model/probe.mar 's3://b/$(id)'",
    }
    for number, (uri, command) in enumerate(commands.items()):
        folder = archive.parent / str(number)
        assert exported(archive, "kserve", folder, storage_uri=uri).commands[1] == command


def test_an_image_of_the_archive_can_be_built(make_mar: MakeMar):
    written = exported(make_mar(ECHO), "kserve", storage_uri="oci+native://r.example/m:1")
    lines = Path(written.folder, "model", "Dockerfile").read_text().splitlines()
    assert lines[1:] == ["FROM busybox:stable", 'COPY ["probe.mar", "/models/"]']
