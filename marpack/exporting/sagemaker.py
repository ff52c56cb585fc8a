"""The sagemaker target: the three calls that make an endpoint, as JSON for the aws command, and the image's context."""

import shlex

import msgspec

from marpack.exporting.findings import sagemaker_findings
from marpack.exporting.image import image_files, render
from marpack.exporting.plan import Content, Export, Folder

_INSTANCES = {"cpu": "ml.c6i.xlarge", "cuda": "ml.g5.xlarge"}
_MIN_START, _MAX_START = 60, 3600  # seconds that SageMaker waits for a container


def sagemaker(export: Export) -> Folder:
    """Return the calls, the script that makes them, the archive, and the image's context."""
    image = export.options.image or f"000000000000.dkr.ecr.REGION.amazonaws.com/marpack-{export.slug}"
    storage = export.options.storage_uri or f"s3://YOUR-BUCKET/{export.slug}/model.tar.gz"
    start = min(max(export.settings.startup_timeout, _MIN_START), _MAX_START)
    variant = {
        "VariantName": "all",
        "ModelName": export.slug,
        "InstanceType": _INSTANCES[export.options.device],
        "InitialInstanceCount": 1,
        "ContainerStartupHealthCheckTimeoutInSeconds": start,
    }
    calls = {
        "create-model": {
            "ModelName": export.slug,
            "PrimaryContainer": {"Image": image, "ModelDataUrl": storage},
            "ExecutionRoleArn": export.options.role or "arn:aws:iam::000000000000:role/YOUR-ROLE",
        },
        "create-endpoint-config": {"EndpointConfigName": export.slug, "ProductionVariants": [variant]},
        "create-endpoint": {"EndpointName": export.slug, "EndpointConfigName": export.slug},
    }
    commands = (
        f"docker build -t {shlex.quote(image)} image && docker push {shlex.quote(image)}",
        f"tar -czf - -C model {export.file} | aws s3 cp - {shlex.quote(storage)}",
        "sh deploy.sh",
    )
    files: dict[str, Content] = {
        "README.md": render("sagemaker/README.md.j2", export=export, commands=commands),
        "deploy.sh": render("sagemaker/deploy.sh.j2", name=export.slug),
        f"model/{export.file}": export.archive,
    }
    for name, call in calls.items():
        files[f"{name}.json"] = msgspec.json.format(msgspec.json.encode(call), indent=2) + b"\n"
    files |= {f"image/{name}": content for name, content in image_files(export).items()}
    return Folder(files=files, commands=commands, findings=tuple(sagemaker_findings(export)))
