"""Archives for the gate: a healthy one, and everything needed to break one thing in it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from conformance.forking import shared

from marpack.gate.candidate import Candidate, CheckOptions
from marpack.gate.check import DEFAULT_CHECKS, check
from marpack.gate.verdicts import CheckResult, GateReport, Verdict
from marpack.project.load import load_project
from marpack.project.plan import pack
from marpack.project.planning import plan_project
from marpack.project.schema import PROOF
from marpack.project.source import resolve
from marpack.runner.client import Worker
from marpack.runner.pool import PoolSettings
from marpack.runner.results import Result, body_of

# Two classes from the letters of a text; in the style of most handlers, and without torch.
HANDLER = """
import json
import os


class Handler:
    def initialize(self, context):
        folder = context.system_properties["model_dir"]
        with open(os.path.join(folder, "index_to_name.json")) as file:
            self.labels = json.load(file)

    def handle(self, data, context):
        return [self.answer(text, context, index) for index, text in enumerate(self.preprocess(data))]

    def preprocess(self, data):
        return [self.text_of(row.get("data") or row.get("body")) for row in data]

    def text_of(self, body):
        return body if isinstance(body, str) else bytes(body).decode()

    def answer(self, text, context, index):
        vowels = sum(letter in "aeiou" for letter in text) / len(text)
        return {self.labels["0"]: vowels, self.labels["1"]: 1 - vowels}
"""
BASE_HANDLER = """
from ts.torch_handler.base_handler import BaseHandler


class Handler(BaseHandler):
    def preprocess(self, data):
        return super().preprocess([row.get("data") or row.get("body") for row in data])
"""
SAMPLES = {"bee.txt": "a bee in summer", "sky.txt": "why try rhythm", "sea.txt": "out at sea again"}
LABELS = ["vowel", "other"]


def project(
    folder: Path,
    handler: str = HANDLER,
    *,
    samples: Mapping[str, str | bytes] | None = None,
    expect: Mapping[str, Any] | None = None,
    files: Mapping[str, str | bytes] | None = None,
    entry: str = "handler.py",
    **keys: Any,
) -> Path:
    """Write a project; `expect` is by the sample's name, `files` are packed also, `keys` are those of marpack.yaml."""
    samples = SAMPLES if samples is None else samples
    contents = {"handler.py": handler, "labels.json": json.dumps(LABELS), **(files or {})}
    contents |= {f"samples/{name}": content for name, content in samples.items()}
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    listed = [
        {"input": f"samples/{name}"} | ({"expect": expect[name]} if name in (expect or {}) else {}) for name in samples
    ]
    told = {"name": "probe", "version": "1.0", "handler": entry, "labels": "labels.json", "samples": listed}
    packed = [name for name in files or {} if name not in keys.values()]
    told |= {"config": {"batchSize": 4}, "files": packed} | keys
    (folder / "marpack.yaml").write_text(yaml.safe_dump({key: value for key, value in told.items() if value}))
    return folder


def archive(folder: Path, handler: str = HANDLER, **options: Any) -> Path:
    """Write a project and pack it without static checks."""
    return pack(plan_project(load_project(project(folder, handler, **options)), check=False).plan).path


def shapes(folder: Path, labels: Any) -> Path:
    """Pack the built-in classifier of six shapes with these labels."""
    example = Path(__file__).parents[2] / "examples" / "image_classifier"
    files = {"model.pt": (example / "shapes.pt").read_bytes(), "labels.json": json.dumps(labels)}
    samples = {"ring.jpg": (example / "samples" / "ring.jpg").read_bytes()}
    return archive(folder, samples=samples, files=files, entry="image_classifier", weights="model.pt", config=None)


def launch() -> Worker:
    """Return a worker that waits for a model, forked from a process that has torch imported."""
    return Worker(shared().launch())


def examine(source: Path, *, choice: frozenset[str] = DEFAULT_CHECKS, **options: Any) -> GateReport:
    """Check one SOURCE, with timeouts for a busy machine; handlers that hang set a shorter one."""
    pools = {name: options.pop(name) for name in PoolSettings.__struct_fields__ if name in options}
    settings = PoolSettings(**{"timeout": 30.0, "launch": launch} | pools)
    asked = CheckOptions(**{"seconds_per_check": 60.0, "settings": settings} | options)
    with Candidate(resolve(str(source)), asked) as candidate:
        return check(candidate, choice)


def failures(report: GateReport) -> dict[str, list[str]]:
    """Return the findings' codes by the check that failed."""
    return {
        checked.name: [finding.code for finding in checked.findings]
        for checked in report.checks
        if checked.verdict is Verdict.FAILED
    }


def found(report: GateReport, name: str = PROOF) -> CheckResult:
    """Return one check's result."""
    return next(checked for checked in report.checks if checked.name == name)


def result(body: str | bytes, *, status: int = 200, reset: bool = False, content_type: str | None = None) -> Result:
    told = body_of(body.encode() if isinstance(body, str) else body)
    values: dict[str, Any] = {"input": "sample", "status": status, "phrase": "", "headers": {}, "stages": {}}
    values |= {"body": told.content, "body_encoding": told.encoding, "content_type": content_type}
    return Result(**values, reset=reset, seconds=0.01)
