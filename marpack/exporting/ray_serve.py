"""The folder that `serve run` and AWS's containers of Ray Serve take: an application around the archive."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from marpack.exporting.findings import COUNTS_METRICS, HEADERS, METRICS, SETS_HEADERS, handler_findings
from marpack.exporting.plan import Export
from marpack.exporting.texts import render, template_file
from marpack.exporting.wheel import wheel
from marpack.findings import Finding
from marpack.inspection.lint.codes import Code
from marpack.version import __version__

_READS_HEADERS = frozenset(
    {"get_request_header", "get_all_request_header", "get_request_property", "get_request_properties"}
)
_RAY = "ray[serve]>=2.54"  # what the first of AWS's containers brought
_WHEELS = "--find-links ."  # as pip and uv read it: the folder of the file that it stands in

REQUEST_HEADERS = Code(
    "export-request-headers",
    "The handler reads headers of requests. Ray Serve spells every name like Content-Type, and AWS's containers hand"
    " on Content-Type and Accept alone.",
    "Look X-Api-Key up by that spelling; behind AWS's containers, put into the body what is needed.",
)


def files(export: Export) -> Mapping[str, bytes | Path]:
    """Return the folder's files."""
    settings = export.settings
    wheel_name, wheel_data = wheel(export.options.wheel)
    return {
        "README.md": render(
            "ray-serve/README.md.j2", model=export.name, archive=export.file, commands=commands(export)
        ),
        "config.yaml": render(
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
        ),
        "deployment.py": template_file("ray-serve/deployment.py"),
        "code/requirements.txt": _requirements(export),
        f"code/{wheel_name}": wheel_data,
        export.file: export.archive,
    }


def _requirements(export: Export) -> bytes:
    lines = (_WHEELS, f"marpack=={__version__}", _RAY, *export.requirements.lines)
    return "".join(f"{line}\n" for line in lines).encode()


def commands(export: Export) -> tuple[str, str, str]:
    """Return the commands that install what it needs, run it and ask it, in the folder."""
    url = shlex.quote(f"http://127.0.0.1:8000/predictions/{export.slug}")
    return "python -m pip install -r code/requirements.txt", "serve run config.yaml", f"curl {url} -T FILE"


def findings(export: Export) -> Iterator[Finding]:
    """Yield what of the archive does not carry over."""
    where, used = str(export.archive), export.used
    yield from handler_findings(export)
    if used & _READS_HEADERS:
        yield REQUEST_HEADERS.note("its handler reads headers of requests, not all of which reach it", where)
    if used & SETS_HEADERS:
        hint = "put into the body what clients need who come by way of SageMaker"
        yield HEADERS.note("its handler sets response headers, which AWS's containers drop", where, hint)
    if used & COUNTS_METRICS:
        hint = "count them in deployment.py, with ray.util.metrics"
        yield METRICS.note("its handler counts metrics, which Ray Serve does not offer", where, hint)
