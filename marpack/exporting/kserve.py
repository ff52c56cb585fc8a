"""The kserve target: a ServingRuntime, the model as an InferenceService of either protocol, and the image's context."""

import shlex

from marpack.exporting.findings import kserve_findings
from marpack.exporting.image import image_files, render
from marpack.exporting.plan import Content, Export, Folder

_PROTOCOLS = {"v1": ("kserve", "inference-service.yaml"), "v2": ("kservev2", "inference-service-v2.yaml")}
_PROBE_SECONDS = 5


def kserve(export: Export) -> Folder:
    """Return the YAML of runtime and model, the archive, and the image's context."""
    runtime = f"marpack-{export.slug}"
    image = export.options.image or f"registry.example.com/marpack-{export.slug}"
    storage = export.options.storage_uri or f"s3://YOUR-BUCKET/{export.slug}/{export.file}"
    commands = (
        f"docker build -t {shlex.quote(image)} image && docker push {shlex.quote(image)}",
        _upload_command(f"model/{export.file}", storage),
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
        f"model/{export.file}": export.archive,
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
    return Folder(files=files, commands=commands, findings=tuple(kserve_findings(export)))


def _upload_command(file: str, uri: str) -> str:
    """Return the command that brings the archive to the address that KServe fetches it from."""
    scheme, place = uri.partition("://")[0], shlex.quote(uri)
    if scheme == "s3":
        return f"aws s3 cp {file} {place}"
    if scheme == "gs":
        return f"gcloud storage cp {file} {place}"
    if scheme in ("oci", "oci+native", "oci+fetch"):
        image = shlex.quote(uri.partition("://")[2])
        return f"docker build -t {image} model && docker push {image}"
    return f"# put {file} where {place} says"
