"""The results of the Python functions: the structs of `--json`, which also show themselves in a notebook."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import msgspec
from msgspec import Struct
from msgspec.structs import asdict
from rich.filesize import decimal

from marpack import trust
from marpack.archive import reader
from marpack.errors import pluralize, printable, shortened
from marpack.exporting import export
from marpack.gate import verdicts
from marpack.inspection import diff, facts
from marpack.json_text import to_json
from marpack.render import build, check, doctor, notebook, run
from marpack.render.console import fit_end
from marpack.runner import results
from marpack.runner.inputs import Input
from marpack.runner.results import AnsweredInput
from marpack.torchserve.http import Request

_SHOWN = 60  # characters of a response


class Shown:
    """Methods that every result has."""

    __slots__ = ()

    @classmethod
    def of(cls, reported: Any) -> Self:  # Any: the struct that this is a subclass of
        """Return the same result, which shows itself."""
        return cls(**(asdict(reported) if isinstance(reported, Struct) else vars(reported)))

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Return the JSON of the command, as Python reads it."""
        made: dict[str, Any] = msgspec.json.decode(to_json(self))
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(_SUMMARIES[type(self)](self))})"

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook."""
        return notebook.shown(self)


class BuildReport(Shown, build.BuildReport, frozen=True, kw_only=True, omit_defaults=True):
    """The result of `build`, with the fields of `marpack build --json`."""


class BuildPlan(Shown, build.BuildPlan, frozen=True, kw_only=True, omit_defaults=True):
    """The result of `plan_build`, with the fields of `marpack build --dry-run --json`."""


class InitReport(Shown, build.InitReport, frozen=True, kw_only=True):
    """The result of `init`, with the fields of `marpack init --json`."""


class Inspection(Shown, facts.Inspection, frozen=True, kw_only=True):
    """The result of `inspect`, with the fields of `marpack inspect --json`."""


class Diff(Shown, diff.Diff, frozen=True, kw_only=True):
    """The result of `diff`, with the fields of `marpack diff --json`."""


class Unpacked(Shown, reader.Unpacked, frozen=True, kw_only=True):
    """The result of `unpack`, with the fields of `marpack unpack --json`."""


class Exported(Shown, export.Exported, frozen=True, kw_only=True):
    """The result of `export`, with the fields of `marpack export --json`."""


class GateReport(Shown, verdicts.GateReport, frozen=True, kw_only=True):
    """The result of `check`, with the fields of `marpack check --json`."""


@dataclass(frozen=True, kw_only=True, repr=False)
class DoctorReport(Shown, doctor.DoctorReport):
    """The result of `doctor`, with the fields of `marpack doctor --json`."""


class Signed(Shown, trust.Signed, frozen=True, kw_only=True):
    """The result of `sign`, with the fields of `marpack sign --json`."""


class Verification(Shown, trust.Verification, frozen=True, kw_only=True):
    """The result of `verify`, with the fields of `marpack verify --json`."""


class RunReport(Shown, run.RunReport, frozen=True, kw_only=True):
    """The summary of a run with every response, the fields of `marpack run --json`."""


class Answer(Shown, results.Result, frozen=True, kw_only=True, dict=True, gc=True):
    """The response to one input, with the fields of a line of `marpack run --jsonl`."""

    @classmethod
    def to(cls, answered: AnsweredInput, labels: Mapping[str, str], handler: str) -> Self:
        """Return a response that shows itself together with its input, which is not one of its fields."""
        answer = cls.of(answered.result)
        answer.__dict__["context"] = answered.input, labels, handler
        return answer

    def _repr_html_(self) -> str:
        shown, labels, handler = self.__dict__.get("context") or (Input("", Request(id="", parts=())), {}, "")
        return notebook.answer(AnsweredInput(shown, self), labels, handler)


def _quote(path: str) -> str:
    """Return a path, cut at its beginning, as its end says more."""
    return f"'{fit_end(printable(path[-2 * _SHOWN :]), _SHOWN).rstrip()}'"


def _summarize_diff(report: Diff) -> tuple[str, ...]:
    lists = (report.manifest, report.recorded, report.members, report.config, report.labels)
    count = sum(map(len, lists)) + sum(len(each.differences) for each in report.tensors)
    return _quote(report.before), _quote(report.after), "the same" if report.same else pluralize(count, "difference")


def _summarize_health(report: DoctorReport) -> tuple[str, ...]:
    broken = [line.name for line in report.lines if line.health is doctor.Health.BROKEN]
    return f"broken: {', '.join(broken)}" if broken else "healthy", _quote(report.cache)


# The parts of each result's line of text.
_SUMMARIES: dict[type, Callable[[Any], tuple[str, ...]]] = {  # Any: a result of that type
    BuildReport: lambda it: (_quote(it.path), pluralize(it.members, "member"), decimal(it.size)),
    BuildPlan: lambda it: (_quote(it.path), pluralize(len(it.members), "member"), decimal(it.size)),
    InitReport: lambda it: (_quote(it.folder), f"{pluralize(len(it.written) + len(it.replaced), 'file')} written"),
    Inspection: lambda it: (
        _quote(it.source),
        pluralize(len(it.members), "member"),
        f"pickles {it.pickles.verdict}",
        pluralize(len(it.findings), "finding"),
    ),
    Diff: _summarize_diff,
    Unpacked: lambda it: (_quote(it.folder), pluralize(len(it.files), "file"), decimal(it.bytes)),
    Exported: lambda it: (_quote(it.folder), pluralize(len(it.files), "file"), pluralize(len(it.findings), "finding")),
    GateReport: lambda it: (
        _quote(it.archive),
        shortened(printable(check.describe_verdict(it)), 2 * _SHOWN),
        check.count_checks(it),
    ),
    DoctorReport: _summarize_health,
    Signed: lambda it: (_quote(it.signature), shortened(printable(str(it.signer)), _SHOWN)),
    Verification: lambda it: (
        _quote(it.archive),
        shortened(printable(str(it.signer)), _SHOWN),
    ),
    RunReport: lambda it: (
        _quote(it.archive),
        pluralize(it.summary.inputs, "input"),
        f"{it.summary.short:,} failed" if it.summary.short else "all succeeded",
    ),
    Answer: lambda it: (str(it.status), printable(run.summarize_body(it, _SHOWN))),
}
