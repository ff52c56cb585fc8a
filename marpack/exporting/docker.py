"""The docker target: an image that serves the archive by itself, on SageMaker and on KServe."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from marpack.exporting.plan import Export
from marpack.exporting.texts import render
from marpack.findings import Finding


def files(export: Export) -> Mapping[str, bytes | Path]:
    """Return the build context."""
    return {
        "README.md": render("docker/README.md.j2", export=export, commands=commands(export)),
        f"model/{export.file}": export.archive,
    }


def findings(export: Export) -> Iterator[Finding]:  # noqa: ARG001
    """Yield what of the archive does not carry over."""
    yield from ()


def commands(export: Export) -> tuple[str, str, str]:
    """Return the commands from here to the first answer."""
    image = shlex.quote(export.options.image or f"marpack-{export.slug}")
    return (f"docker build -t {image} .", f"docker run --rm -p 8080:8080 {image}", "curl http://127.0.0.1:8080/ping")
