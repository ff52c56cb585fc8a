"""docs/schemas: the shape of each command's `--json`, made by `python -m marpack.render.schemas docs/schemas`."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

# Command, or command-option → the structs that its JSON may be, as module:name.
REPORTS = {
    "build": ("marpack.render.build:BuildReport",),
    "check": ("marpack.gate.verdicts:GateReport", "marpack.gate.against:Comparison"),
    "diff": ("marpack.inspection.diff:Diff",),
    "inspect": ("marpack.inspection.facts:Inspection",),
    "run": ("marpack.render.run_json:RunReport", "marpack.render.run_json:RunFailure"),
    "run-jsonl": ("marpack.runner.results:Result", "marpack.render.run_json:RunFailure"),  # of each line
    "run-repeat": ("marpack.render.run:BenchmarkReport", "marpack.render.run_json:RunFailure"),
}
_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema_text(command: str) -> bytes:
    """Return the JSON Schema of one command's output."""
    shapes, components = msgspec.json.schema_components(report_types(command), ref_template="#/$defs/{name}")
    top: dict[str, Any] = dict(shapes[0]) if len(shapes) == 1 else {"anyOf": list(shapes)}  # Any: JSON
    tree = {"$schema": _DRAFT, "title": _title(command), **top, "$defs": components}
    return msgspec.json.format(msgspec.json.encode(tree, order="deterministic"), indent=2) + b"\n"


def _title(command: str) -> str:
    name, dash, option = command.partition("-")
    return f"marpack {name}{' --' if dash else ''}{option}{'' if option == 'jsonl' else ' --json'}"


def report_types(command: str) -> list[type]:
    """Import the structs that a command's JSON may be."""
    names = (name.split(":") for name in REPORTS[command])
    return [getattr(import_module(module), name) for module, name in names]


def write_schemas(folder: Path) -> None:
    """Write every schema into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for command in REPORTS:
        (folder / f"{command}.json").write_bytes(schema_text(command))


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1]))
