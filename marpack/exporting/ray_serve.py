"""The ray-serve target: an application around the archive, for `serve run` and AWS's containers of Ray Serve."""

import shlex

from marpack.exporting.findings import ray_serve_findings
from marpack.exporting.image import render, wheel
from marpack.exporting.plan import Export, Folder
from marpack.project.scaffold.template import templates
from marpack.version import __version__

_RAY = "ray[serve]>=2.54"  # as in the first of AWS's containers
_WHEELS = "--find-links ."  # pip and uv read it as the folder of this file


def ray_serve(export: Export) -> Folder:
    """Return the folder's files."""
    settings = export.settings
    wheel_name, wheel_data = wheel(export.options.wheel)
    url = shlex.quote(f"http://127.0.0.1:8000/predictions/{export.slug}")
    commands = ("python -m pip install -r code/requirements.txt", "serve run config.yaml", f"curl {url} -T FILE")
    requirements = (_WHEELS, f"marpack=={__version__}", _RAY, *export.requirements.lines)
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
    readme = render("ray-serve/README.md.j2", model=export.name, archive=export.file, commands=commands)
    return Folder(
        files={
            "README.md": readme,
            "config.yaml": config,
            "deployment.py": templates() / "export" / "ray-serve" / "deployment.py",
            "code/requirements.txt": "".join(f"{line}\n" for line in requirements).encode(),
            f"code/{wheel_name}": wheel_data,
            export.file: export.archive,
        },
        commands=commands,
        findings=tuple(ray_serve_findings(export)),
    )
