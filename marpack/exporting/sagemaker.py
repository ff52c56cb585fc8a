"""The sagemaker target: the three calls that make an endpoint, as JSON for the aws command, and the image's context."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from marpack.exporting.findings import placeholders, sagemaker_findings
from marpack.exporting.image import image_files
from marpack.exporting.plan import Export
from marpack.exporting.texts import render
from marpack.findings import Finding
from marpack.inspection.lint.codes import Code

_INSTANCES = {"cpu": "ml.c6i.xlarge", "cuda": "ml.g5.xlarge"}
_START = (60, 3600)  # seconds that SageMaker waits for a container at least, and at most
_ANSWER = 60  # seconds that SageMaker waits for an answer

SLOW = Code(
    "export-slow-answers",
    "SageMaker ends a request of a real-time endpoint after 60 s, whatever the archive's responseTimeout says.",
    "Let the endpoint be asynchronous, or make answers faster.",
)


def files(export: Export) -> Mapping[str, bytes | Path]:
    """Return the calls, the script that makes them, the archive, and the image's context."""
    placed: dict[str, bytes | Path] = {
        "README.md": render("sagemaker/README.md.j2", export=export, commands=commands(export)),
        "deploy.sh": render("sagemaker/deploy.sh.j2", name=export.slug),
        f"model/{export.file}": export.archive,
    }
    for name, call in calls(export).items():
        placed[f"{name}.json"] = msgspec.json.format(msgspec.json.encode(call), indent=2) + b"\n"
    image = image_files(export, with_archive=False)
    return placed | {f"image/{name}": content for name, content in image.items()}


def calls(export: Export) -> dict[str, dict[str, Any]]:  # Any: JSON
    """Return the parameters of each call, by its name in the aws command."""
    variant = {
        "VariantName": "all",
        "ModelName": export.slug,
        "InstanceType": _INSTANCES[export.options.device],
        "InitialInstanceCount": 1,
        "ContainerStartupHealthCheckTimeoutInSeconds": min(max(export.settings.startup_timeout, _START[0]), _START[1]),
    }
    container = {"Image": _image(export), "ModelDataUrl": _storage(export)}
    return {
        "create-model": {
            "ModelName": export.slug,
            "PrimaryContainer": container,
            "ExecutionRoleArn": export.options.role or "arn:aws:iam::000000000000:role/YOUR-ROLE",
        },
        "create-endpoint-config": {"EndpointConfigName": export.slug, "ProductionVariants": [variant]},
        "create-endpoint": {"EndpointName": export.slug, "EndpointConfigName": export.slug},
    }


def _image(export: Export) -> str:
    default = f"000000000000.dkr.ecr.REGION.amazonaws.com/marpack-{export.slug}"
    return export.options.image or default


def _storage(export: Export) -> str:
    return export.options.storage_uri or f"s3://YOUR-BUCKET/{export.slug}/model.tar.gz"


def findings(export: Export) -> Iterator[Finding]:
    """Yield what of the archive does not carry over."""
    yield from sagemaker_findings(export)
    seconds = export.settings.response_timeout
    if "responseTimeout" in export.config and seconds > _ANSWER:
        yield SLOW.note(f"its batches may take {seconds} s, and requests end after {_ANSWER}", str(export.archive))
    yield from placeholders(export, "image", "storage_uri", "role")


def commands(export: Export) -> tuple[str, str, str]:
    """Return the commands from here to an endpoint."""
    image, storage = shlex.quote(_image(export)), shlex.quote(_storage(export))
    return (
        f"docker build -t {image} image && docker push {image}",
        f"tar -czf - -C model {export.file} | aws s3 cp - {storage}",
        "sh deploy.sh",
    )
