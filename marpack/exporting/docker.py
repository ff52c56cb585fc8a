"""The docker target: an image that serves the archive by itself, on SageMaker and on KServe."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

from marpack.exporting.image import image_files
from marpack.exporting.plan import Export
from marpack.exporting.texts import render
from marpack.findings import Finding


def files(export: Export) -> Mapping[str, bytes | Path]:
    """Return the image's context, and its README."""
    readme = render("docker/README.md.j2", export=export, commands=commands(export))
    return image_files(export, with_archive=True) | {"README.md": readme}


def findings(export: Export) -> Iterator[Finding]:  # noqa: ARG001 - as every target
    """Yield nothing: a container of marpack's own answers as marpack serve."""
    yield from ()


def commands(export: Export) -> tuple[str, str, str]:
    """Return the commands from here to the first answer."""
    image = shlex.quote(export.options.image or f"marpack-{export.slug}")
    gpus = "--gpus all " if export.options.device == "cuda" else ""
    run = f"docker run --rm -d {gpus}-p 8080:8080 {image}"
    url = shlex.quote(f"http://127.0.0.1:8080/predictions/{quote(export.name, safe='')}")
    return (f"docker build -t {image} .", run, f"curl {url} -T FILE")
