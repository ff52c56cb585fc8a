"""The kserve target: a ServingRuntime, the model as an InferenceService of either protocol, and the image's context."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from marpack.exporting.findings import front_findings, placeholders
from marpack.exporting.image import image_files
from marpack.exporting.plan import Export
from marpack.exporting.texts import render
from marpack.findings import Finding
from marpack.inspection.lint.codes import Code

_ENVELOPES = {"v1": "kserve", "v2": "kservev2"}
_FILES = {"v1": "inference-service.yaml", "v2": "inference-service-v2.yaml"}
_PROBE = 5  # seconds between two

BATCHES = Code(
    "export-batches",
    "KServe's envelopes answer the first request of a batch only, so the export serves batches of one.",
    "Let requests carry several instances, or deploy with --to docker and send requests as TorchServe takes them.",
)
OWN_ENVELOPE = Code(
    "export-own-envelope",
    "The archive's own envelope goes before KServe's; requests and answers have its form, whatever the protocol says.",
    "Build the archive without the envelope.",
)


def files(export: Export) -> Mapping[str, bytes | Path]:
    """Return the YAML of runtime and model, the archive, and the image's context."""
    runtime = f"marpack-{export.slug}"
    placed: dict[str, bytes | Path] = {
        "README.md": render("kserve/README.md.j2", export=export, commands=commands(export)),
        "serving-runtime.yaml": render(
            "kserve/serving-runtime.yaml.j2",
            runtime=runtime,
            image=_image(export),
            failures=-(-export.settings.startup_timeout // _PROBE),
            cores=str(max(2, export.settings.min_workers)),
            gpu=export.options.device == "cuda",
        ),
        f"model/{export.file}": export.archive,
        "model/Dockerfile": render("kserve/model.Dockerfile.j2", file=export.file),
    }
    for protocol, name in _FILES.items():
        placed[name] = render(
            "kserve/inference-service.yaml.j2",
            name=export.slug,
            digest=export.content_digest or "none",
            runtime=runtime,
            protocol=protocol,
            storage=_storage(export),
            args=_arguments(export, protocol),
        )
    image = image_files(export, with_archive=False)
    return placed | {f"image/{name}": content for name, content in image.items()}


def _arguments(export: Export, protocol: str) -> list[str]:
    """Return what marpack serve is to be asked for, beside what the runtime asks for."""
    if export.envelope:
        return []
    return ["--envelope", _ENVELOPES[protocol], "--batch-size", "1"]


def _image(export: Export) -> str:
    return export.options.image or f"registry.example.com/marpack-{export.slug}"


def _storage(export: Export) -> str:
    return export.options.storage_uri or f"s3://YOUR-BUCKET/{export.slug}/{export.file}"


def findings(export: Export) -> Iterator[Finding]:
    """Yield what of the archive does not carry over."""
    yield from front_findings(export)
    where = str(export.archive)
    if export.envelope:
        yield OWN_ENVELOPE.warning(f"its envelope is '{export.envelope}', which it keeps", where)
    elif export.settings.batch_size > 1:
        yield BATCHES.warning(f"its batchSize of {export.settings.batch_size} becomes 1", where)
    yield from placeholders(export, "image", "storage_uri")


def commands(export: Export) -> tuple[str, str, str]:
    """Return the commands from here to a model that is served."""
    image, storage = shlex.quote(_image(export)), _storage(export)
    return (
        f"docker build -t {image} image && docker push {image}",
        _upload(f"model/{export.file}", storage),
        "kubectl apply -f serving-runtime.yaml -f inference-service.yaml",
    )


def _upload(file: str, uri: str) -> str:
    """Return the command that brings the archive to where KServe fetches it."""
    scheme, place = uri.partition("://")[0], shlex.quote(uri)
    if scheme == "s3":
        return f"aws s3 cp {file} {place}"
    if scheme == "gs":
        return f"gcloud storage cp {file} {place}"
    if scheme in ("oci", "oci+native", "oci+fetch"):
        image = shlex.quote(uri.partition("://")[2])
        return f"docker build -t {image} model && docker push {image}"
    return f"# put {file} where {place} says"
