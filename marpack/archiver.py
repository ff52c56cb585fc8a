"""torch-model-archiver's `model_packaging` for scripts that import it, and `python -m marpack.archiver`."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from marpack.api import operations
from marpack.api.declaring import choices, declared
from marpack.api.options import BuildOptions
from marpack.archive.manifest import Manifest
from marpack.archive.protocol import no_progress
from marpack.errors import ExitCode, MarpackError
from marpack.project.planning import Flags
from marpack.render.console import show_error, show_findings

_NAMES = (*Flags.__struct_fields__, "archive_format", "force")


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return torch-model-archiver's arguments from words, by default those of this process; exits with 2 for others."""
    parser = argparse.ArgumentParser(prog="torch-model-archiver", description="Pack a model into an archive.")
    for each in (each for each in declared(BuildOptions) if each.name in _NAMES):
        kind: Any = {"action": "store_true"} if each.type is bool else {"choices": choices(each.type) or None}
        flags = each.option.flags or (f"--{each.name.replace('_', '-')}",)
        is_required = each.name in {"model_name", "handler", "version"}
        parser.add_argument(*flags, dest=each.name, required=is_required, help=each.option.help, **kind)
    return parser.parse_args(words)


def package_model(args: object, manifest: str | None = None) -> None:
    """Write the archive that the attributes of `args` describe, which are named as torch-model-archiver's.

    `manifest` is the JSON to pack in place of a generated manifest. Warnings are printed on stderr.

    Raises MarpackError; then no file was written.
    """
    options = BuildOptions(**{key: value for key in _NAMES if (value := getattr(args, key, None)) is not None})
    found = operations.plan_build(options, no_progress)
    if manifest is not None:
        found = replace(found, plan=replace(found.plan, manifest=Manifest.from_json(manifest.encode())))
    show_findings(found.findings)
    operations.pack(found, no_progress)


def generate_model_archive(config: object | None = None) -> None:
    """Write the archive that the attributes of `config` describe, by default this process's arguments."""
    package_model(parse_arguments() if config is None else config)


if __name__ == "__main__":
    try:
        generate_model_archive()
    except MarpackError as error:
        show_error(error)
        sys.exit(ExitCode.SHORT)
