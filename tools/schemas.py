"""docs/schemas and docs/marpack.schema.json, made from the types: `python -m tools.schemas docs`."""

import sys
from pathlib import Path
from typing import Any

import msgspec

from marpack.archive.reader import Unpacked
from marpack.exporting.export import Exported
from marpack.gate.verdicts import Comparison, GateReport
from marpack.inspection.diff import Diff
from marpack.inspection.facts import Inspection
from marpack.project.schema import FILE_NAME, ProjectFile
from marpack.render.build import BuildPlan, BuildReport, InitReport
from marpack.render.doctor import DoctorReport
from marpack.render.failure import Failure
from marpack.render.migrate import Migration
from marpack.render.run import BenchmarkReport, RunReport
from marpack.runner.results import Result
from marpack.scoring.local import ScoreSummary
from marpack.trust import Signed, Verification

# Command, or command-option → the structs that its JSON may be.
REPORTS: dict[str, tuple[type, ...]] = {
    "build": (BuildReport, Failure),
    "build-dry-run": (BuildPlan, Failure),
    "check": (GateReport, Comparison, Failure),
    "diff": (Diff, Failure),
    "doctor": (DoctorReport, Failure),
    "export": (Exported, Failure),
    "init": (InitReport, Failure),
    "inspect": (Inspection, Failure),
    "migrate": (Migration, Failure),
    "run": (RunReport, Failure),
    "run-jsonl": (Result, Failure),  # of each line
    "run-repeat": (BenchmarkReport, Failure),
    "score": (ScoreSummary, Failure),
    "sign": (Signed, Failure),
    "unpack": (Unpacked, Failure),
    "verify": (Verification, Failure),
}
_DRAFT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
_NULL = {"type": "null"}


def report_schema(command: str) -> bytes:
    """Return the JSON Schema of one command's output."""
    shapes, components = msgspec.json.schema_components(REPORTS[command], ref_template="#/$defs/{name}")
    top: dict[str, Any] = dict(shapes[0]) if len(shapes) == 1 else {"anyOf": list(shapes)}  # Any: JSON
    tree = _DRAFT | {"title": _title(command)} | top | {"$defs": components}
    return msgspec.json.format(msgspec.json.encode(tree, order="deterministic"), indent=2) + b"\n"


def _title(command: str) -> str:
    name, dash, option = command.partition("-")
    return f"marpack {name}{' --' if dash else ''}{option}{'' if option == 'jsonl' else ' --json'}"


def project_schema() -> bytes:
    """Return the JSON Schema of marpack.yaml, for editors."""
    _, made = msgspec.json.schema_components([ProjectFile], ref_template="#/$defs/{name}")
    components = {name: _without_null(made[name]) for name in sorted(made)}
    top = components.pop(ProjectFile.__name__)
    top["properties"]["version"]["type"] = ["string", "number"]  # taken as it is written: 1.10 stays 1.10
    tree = _DRAFT | top | {"title": FILE_NAME, "$defs": components}
    return msgspec.json.format(msgspec.json.encode(tree), indent=2) + b"\n"


def _without_null(schema: Any) -> Any:  # Any: JSON
    """Return a schema in which an optional key is one that may be left out, never one that is empty."""
    if isinstance(schema, list):
        return [_without_null(item) for item in schema if item != _NULL]
    if not isinstance(schema, dict):
        return schema
    inner = {key: _without_null(value) for key, value in schema.items() if (key, value) != ("default", None)}
    if len(inner.get("anyOf", ())) != 1:
        return inner
    (only,) = inner.pop("anyOf")
    return inner | only


def write_schemas(docs: Path) -> None:
    """Write every schema into the folder of the documents."""
    (docs / "schemas").mkdir(parents=True, exist_ok=True)
    (docs / "marpack.schema.json").write_bytes(project_schema())
    for command in REPORTS:
        (docs / "schemas" / f"{command}.json").write_bytes(report_schema(command))


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1]))
