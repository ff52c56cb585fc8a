"""What the functions return: what `--json` writes, as frozen structs that also show themselves in a notebook."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import msgspec
from msgspec import Struct
from msgspec.structs import asdict
from rich.filesize import decimal

from marpack import trust as outcomes
from marpack.archive import extraction, oci
from marpack.errors import shortened
from marpack.exporting import export
from marpack.gate import verdicts
from marpack.inspection import diff, facts
from marpack.json_text import to_json
from marpack.render import build, check, notebook
from marpack.render import doctor as health
from marpack.render import run as run_results
from marpack.render.console import clean, fit_end
from marpack.render.run import summarize_body
from marpack.runner import results
from marpack.runner.inputs import Input
from marpack.runner.results import AnsweredInput
from marpack.torchserve.http import Request

_SHOWN = 60  # characters of an answer


class Shown:
    """What every result can do beside holding its fields."""

    __slots__ = ()

    @classmethod
    def of(cls, reported: Any) -> Self:  # Any: the struct that this is a subclass of
        """Return the same result, which shows itself."""
        return cls(**asdict(reported))

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Return what the command writes with `--json`, as Python reads it."""
        made: dict[str, Any] = msgspec.json.decode(to_json(self))
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._briefly())})"

    def _briefly(self) -> tuple[str, ...]:
        """Return what stands in its one line of text."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return notebook.shown(self)


def _quoted(path: str) -> str:
    """Return a path, cut at its beginning: the end tells more."""
    return f"'{fit_end(clean(path[-_SHOWN:] if len(path) <= _SHOWN else f'…{path[1 - _SHOWN :]}'), _SHOWN).rstrip()}'"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


class BuildReport(Shown, build.BuildReport, frozen=True, kw_only=True, omit_defaults=True):
    """What `build` wrote, the fields of `marpack build --json`."""

    def _briefly(self) -> tuple[str, ...]:
        return _quoted(self.path), _counted(self.members, "member"), decimal(self.size)


class InitReport(Shown, build.InitReport, frozen=True, kw_only=True):
    """What `init` wrote and left alone, the fields of `marpack init --json`."""

    def _briefly(self) -> tuple[str, ...]:
        return _quoted(self.folder), f"{_counted(len(self.written) + len(self.replaced), 'file')} written"


class Inspection(Shown, facts.Inspection, frozen=True, kw_only=True):
    """What `inspect` saw, the fields of `marpack inspect --json`."""

    def _briefly(self) -> tuple[str, ...]:
        return (
            _quoted(self.source),
            _counted(len(self.members), "member"),
            f"pickles {self.pickles.verdict}",
            _counted(len(self.findings), "finding"),
        )


class Diff(Shown, diff.Diff, frozen=True, kw_only=True):
    """What `diff` compared, the fields of `marpack diff --json`."""

    def _briefly(self) -> tuple[str, ...]:
        lists = (self.manifest, self.recorded, self.members, self.config, self.labels)
        count = sum(map(len, lists)) + sum(len(each.differences) for each in self.tensors)
        return _quoted(self.before), _quoted(self.after), "the same" if self.same else _counted(count, "difference")


class Unpacked(Shown, extraction.Unpacked, frozen=True, kw_only=True):
    """What `unpack` wrote, the fields of `marpack unpack --json`."""

    def _briefly(self) -> tuple[str, ...]:
        return _quoted(self.folder), _counted(len(self.files), "file"), decimal(self.bytes)


class Exported(Shown, export.Exported, frozen=True, kw_only=True):
    """What `export` wrote, the fields of `marpack export --json`."""

    def _briefly(self) -> tuple[str, ...]:
        return _quoted(self.folder), _counted(len(self.files), "file"), _counted(len(self.findings), "finding")


class PushReport(Shown, oci.PushReport, frozen=True, kw_only=True):
    """What `push` sent, the fields of `marpack push --json`."""

    def _briefly(self) -> tuple[str, ...]:
        return _quoted(self.reference), decimal(self.size), f"{len(self.attached)} attached"


class PullReport(Shown, oci.PullReport, frozen=True, kw_only=True):
    """What `pull` fetched, the fields of `marpack pull --json`."""

    def _briefly(self) -> tuple[str, ...]:
        return _quoted(self.file), decimal(self.size), f"{len(self.attached)} attached"


class GateReport(Shown, verdicts.GateReport, frozen=True, kw_only=True):
    """What `check` says, the fields of `marpack check --json`."""

    def _briefly(self) -> tuple[str, ...]:
        verdict = shortened(clean(check.describe_verdict(self)), 2 * _SHOWN)
        return _quoted(self.archive), verdict, check.count_checks(self)


@dataclass(frozen=True, kw_only=True, repr=False)
class DoctorReport(Shown, health.DoctorReport):
    """What `doctor` found, the fields of `marpack doctor --json`."""

    @classmethod
    def of(cls, reported: health.DoctorReport) -> Self:
        """Return the same result, which shows itself."""
        return cls(**vars(reported))

    def _briefly(self) -> tuple[str, ...]:
        broken = [line.name for line in self.lines if line.health is health.Health.BROKEN]
        return (f"broken: {', '.join(broken)}" if broken else "healthy", _quoted(self.cache))


class Signed(Shown, outcomes.Signed, frozen=True, kw_only=True):
    """What `sign` made, the fields of `marpack sign --json`."""

    def _briefly(self) -> tuple[str, ...]:
        return _quoted(self.signature), shortened(clean(str(self.signer)), _SHOWN)


class Verification(Shown, outcomes.Verification, frozen=True, kw_only=True):
    """Who vouches for an archive, the fields of `marpack verify --json`."""

    def _briefly(self) -> tuple[str, ...]:
        checked = "not asked for a check" if self.check is None else "checked"
        return _quoted(self.archive), shortened(clean(str(self.signer or "unsigned")), _SHOWN), checked


class AnswerContext(Struct, frozen=True):
    """What an answer is shown with: what was asked, and the model's labels and handler."""

    asked: Input = Input("", Request(id="", parts=()))
    labels: Mapping[str, str] = {}
    handler: str = ""


class Answer(Shown, results.Result, frozen=True, kw_only=True, dict=True, gc=True):
    """One input's answer, the fields of a line of `marpack run --jsonl`."""

    @classmethod
    def to(cls, answered: AnsweredInput, labels: Mapping[str, str], handler: str) -> Self:
        """Return an answer that shows itself beside what was asked, which is no field of it."""
        answer = cls.of(answered.result)
        answer.__dict__["context"] = AnswerContext(answered.input, labels, handler)
        return answer

    def _briefly(self) -> tuple[str, ...]:
        return str(self.status), clean(summarize_body(self, _SHOWN))

    def _repr_html_(self) -> str:
        context: AnswerContext = self.__dict__.get("context") or AnswerContext()
        return notebook.answer(AnsweredInput(context.asked, self), context.labels, context.handler)


class RunReport(Shown, run_results.RunReport, frozen=True, kw_only=True):
    """What a run adds up to and every answer, the fields of `marpack run --json`."""

    def _briefly(self) -> tuple[str, ...]:
        count, short = self.summary.inputs, self.summary.short
        return _quoted(self.archive), _counted(count, "input"), f"{short:,} failed" if short else "all succeeded"
