"""The folders of the four platforms: docker, kserve, sagemaker and ray-serve."""

import shlex
import sys
from typing import Any
from urllib.parse import quote

import msgspec

from marpack import finding_codes as codes
from marpack.exporting.image import image_files, render, wheel
from marpack.exporting.plan import Content, Export, Folder
from marpack.findings import Code, Finding
from marpack.project.scaffold.template import templates
from marpack.version import __version__

# KServe's protocols, each with the envelope for it and its file.
_PROTOCOLS = {"v1": ("kserve", "inference-service.yaml"), "v2": ("kservev2", "inference-service-v2.yaml")}
_PROBE_SECONDS = 5
_INSTANCES = {"cpu": "ml.c6i.xlarge", "cuda": "ml.g5.xlarge"}
_MIN_START, _MAX_START = 60, 3600  # seconds that SageMaker waits for a container
_MAX_RESPONSE = 60  # seconds that SageMaker waits for a response
_RAY = "ray[serve]>=2.54"  # as in the first of AWS's containers
_WHEELS = "--find-links ."  # pip and uv read it as the folder of this file


def docker(export: Export) -> Folder:
    """Return the image's build context with the archive in it."""
    image = shlex.quote(export.options.image or f"marpack-{export.slug}")
    gpus = "--gpus all " if export.options.device == "cuda" else ""
    url = shlex.quote(f"http://127.0.0.1:8080/predictions/{quote(export.name, safe='')}")
    run = f"docker run --rm -d {gpus}-p 8080:8080 {image}"
    commands = (f"docker build -t {image} .", run, f"curl {url} -T FILE")
    readme = render("docker/README.md.j2", export=export, commands=commands)
    return image_files(export, with_archive=True) | {"README.md": readme}, commands


def kserve(export: Export) -> Folder:
    """Return a ServingRuntime, the model as an InferenceService of either protocol, the archive, and the image."""
    runtime = f"marpack-{export.slug}"
    image = export.options.image or f"registry.example.com/marpack-{export.slug}"
    storage = export.options.storage_uri or f"s3://YOUR-BUCKET/{export.slug}/{export.file}"
    file, place, scheme = f"model/{export.file}", shlex.quote(storage), storage.partition("://")[0]
    model = shlex.quote(storage.partition("://")[2])
    uploads = {
        "s3": f"aws s3 cp {file} {place}",
        "gs": f"gcloud storage cp {file} {place}",
        "oci": f"docker build -t {model} model && docker push {model}",
    }
    commands = (
        f"docker build -t {shlex.quote(image)} image && docker push {shlex.quote(image)}",
        uploads.get(scheme.partition("+")[0], f"# put {file} where {place} says"),
        "kubectl apply -f serving-runtime.yaml -f inference-service.yaml",
    )
    files: dict[str, Content] = {
        "README.md": render("kserve/README.md.j2", export=export, commands=commands),
        "serving-runtime.yaml": render(
            "kserve/serving-runtime.yaml.j2",
            runtime=runtime,
            image=image,
            failures=-(-export.settings.startup_timeout // _PROBE_SECONDS),
            cores=str(max(2, export.settings.min_workers)),
            gpu=export.options.device == "cuda",
        ),
        file: export.archive,
        "model/Dockerfile": render("kserve/model.Dockerfile.j2", file=export.file),
    }
    for protocol, (envelope, name) in _PROTOCOLS.items():
        files[name] = render(
            "kserve/inference-service.yaml.j2",
            name=export.slug,
            digest=export.content_digest or "none",
            runtime=runtime,
            protocol=protocol,
            storage=storage,
            args=[] if export.envelope else ["--envelope", envelope, "--batch-size", "1"],
        )
    files |= {f"image/{name}": content for name, content in image_files(export).items()}
    return files, commands


def sagemaker(export: Export) -> Folder:
    """Return the three calls that make an endpoint, the script that sends them, the archive, and the image."""
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
    return files, commands


def ray_serve(export: Export) -> Folder:
    """Return an application around the archive, for `serve run` and AWS's containers of Ray Serve."""
    settings = export.settings
    wheel_name, wheel_data = wheel(export.options.wheel)
    url = shlex.quote(f"http://127.0.0.1:8000/predictions/{export.slug}")
    commands = ("python -m pip install -r code/requirements.txt", "serve run config.yaml", f"curl {url} -T FILE")
    requirements = (_WHEELS, f"marpack=={__version__}", _RAY, *export.requirements)
    config = render(
        "ray-serve/config.yaml.j2",
        application=export.slug,
        archive=export.file,
        device=export.options.device,
        gpus=int(export.options.device == "cuda"),
        min_replicas=settings.min_workers,
        max_replicas=settings.max_workers,
        batch_size=settings.batch_size,
        batch_seconds=settings.max_batch_delay / 1000,
        queue_size=settings.queue_size,
    )
    files: dict[str, Content] = {
        "README.md": render("ray-serve/README.md.j2", model=export.name, archive=export.file, commands=commands),
        "config.yaml": config,
        "deployment.py": templates() / "export" / "ray-serve" / "deployment.py",
        "code/requirements.txt": "".join(f"{line}\n" for line in requirements).encode(),
        f"code/{wheel_name}": wheel_data,
        export.file: export.archive,
    }
    return files, commands


_SETS_HEADERS = frozenset({"set_response_header", "set_response_headers"})
_READS_HEADERS = frozenset(
    {"get_request_header", "get_all_request_header", "get_request_property", "get_request_properties"}
)
_COUNTS_METRICS = frozenset(
    {"add_counter", "add_time", "add_size", "add_percent", "add_error", "add_metric", "get_metric"}
)
_SETS_STATUS = frozenset({"set_response_status", "set_all_response_status"})
_STREAMS = frozenset({"send_intermediate_predict_response"})
_GPU_KEYS = ("deviceIds", "parallelType", "torchrun")
_PLACEHOLDERS = {"kserve": ("image", "storage_uri"), "sagemaker": ("image", "storage_uri", "role")}


def unsupported(export: Export, to: str) -> list[Finding]:
    """Return a finding for each feature of an archive that a platform does not support."""
    place, config, settings, used, image = (
        str(export.archive),
        export.config,
        export.settings,
        export.used,
        export.image,
    )
    is_kserve, is_sagemaker, is_ray = to == "kserve", to == "sagemaker", to == "ray-serve"
    has_proxy = is_kserve or is_sagemaker
    found: list[Finding] = []

    def report(applies: object, code: Code, where: str = place, **values: Any) -> None:  # Any: those of the code
        if applies:
            found.append(code.at(where, **values))

    report(export.needs_trust, codes.EXPORT_NEEDS_TRUST)
    for line in export.left_out:
        report(True, codes.EXPORT_REQUIREMENT_LEFT_OUT, f"{place}!{export.requirements_file}", line=line)
    for file in export.foreign:
        report(True, codes.EXPORT_VENDORED, wheel=file, version="{}.{}".format(*sys.version_info))
    wants_gpu = str(config.get("deviceType")).lower() == "gpu" or any(config.get(key) for key in _GPU_KEYS)
    report(wants_gpu and export.options.device == "cpu", codes.EXPORT_NO_GPU)
    unlocked = image.unlocked if image is not None and image.lock is None else None
    report(unlocked is not None, codes.EXPORT_REQUIREMENTS_UNHASHED, unlocked=unlocked)
    report(used & _SETS_STATUS and (has_proxy or is_ray), codes.EXPORT_REASON_PHRASE)
    report(used & _STREAMS and (has_proxy or is_ray), codes.EXPORT_STREAMING)
    report("jobQueueSize" in config and has_proxy, codes.EXPORT_QUEUE, size=settings.queue_size)
    report(is_kserve and export.envelope, codes.EXPORT_OWN_ENVELOPE, envelope=export.envelope)
    is_batched = settings.batch_size > 1 and not export.envelope
    report(is_kserve and is_batched, codes.EXPORT_BATCHES, batch_size=settings.batch_size)
    report(is_ray and used & _READS_HEADERS, codes.EXPORT_REQUEST_HEADERS)
    report(is_sagemaker and used & _SETS_HEADERS, codes.EXPORT_RESPONSE_HEADERS)
    report(is_ray and used & _SETS_HEADERS, codes.EXPORT_HEADERS_DROPPED)
    report(is_sagemaker and used & _COUNTS_METRICS, codes.EXPORT_METRICS)
    report(is_ray and used & _COUNTS_METRICS, codes.EXPORT_RAY_METRICS)
    seconds = settings.response_timeout if "responseTimeout" in config else 0
    is_slow = is_sagemaker and seconds > _MAX_RESPONSE
    report(is_slow, codes.EXPORT_SLOW_ANSWERS, seconds=seconds, max_sagemaker_response=_MAX_RESPONSE)
    missing = [
        f"--{key.replace('_', '-')}" for key in _PLACEHOLDERS.get(to, ()) if getattr(export.options, key) is None
    ]
    report(missing, codes.EXPORT_PLACEHOLDER, options=" and ".join(missing))
    return found
