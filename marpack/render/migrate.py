"""The result of `marpack migrate`, and its page."""

from typing import Literal

from msgspec import Struct

from marpack.findings import Finding
from marpack.migrating.deployment import Setting
from marpack.render.pages import Cell, Fact, Page, Row, Table


class MovedModel(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model of the deployment, and what became of it."""

    name: str
    archive: str
    project: str = ""  # the folder of its project; empty if it was not moved
    at_start: bool = True  # whether the start line loads it
    verdict: Literal["deployable", "refused", "not-proved", "partial", "interrupted"] | None = None  # with --check
    exported: str | None = None  # the folder of its export
    problem: str | None = None  # why it was not moved, or failed
    hint: str | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def result(self) -> str:
        """The result in a few words."""
        if self.problem is not None:
            return "failed" if self.project else "not moved"
        verdict = {"deployable": ", ready to deploy", "not-proved": ", not proved", None: ""}.get(self.verdict, "")
        return f"moved{verdict}" + ("" if self.at_start else ", not loaded at the start")


class Migration(Struct, frozen=True, kw_only=True):
    """The result of `marpack migrate --json`."""

    source: str
    kind: str  # of the source: "model store", "Dockerfile", …
    folder: str
    models: tuple[MovedModel, ...]
    settings: tuple[Setting, ...]
    outside: tuple[str, ...]  # archives that were read outside the source
    command: tuple[str, ...]  # the words of the start line

    @property
    def decisions(self) -> list[Setting]:
        """The settings that need a decision."""
        return [each for each in self.settings if each.outcome == "needs a decision"]

    @property
    def complete(self) -> bool:
        """Whether every model was moved and none failed."""
        return bool(self.models) and not any(model.problem for model in self.models)


def migration_page(found: Migration) -> Page:
    """Return the page of `marpack migrate`."""

    def row(name: str, cell: str | Cell, below: str | None) -> Row:
        return Row.of(Cell(name, kind="name"), cell, below=below or "")

    rows = [row(each.name, Cell(each.result, "bad" if each.problem else "good"), each.problem) for each in found.models]
    decisions = [row(each.name, each.origin, each.reason) for each in found.decisions]
    tables = (Table(title="models", rows=tuple(rows)), Table(title="decide", rows=tuple(decisions)))
    return Page(
        title=f"{found.source}, {found.kind}",
        verdict=Cell("moved", "good") if found.complete else Cell("incomplete", "bad"),
        facts=(
            Fact("report", f"{found.folder}/MIGRATION.md", kind="name"),
            Fact("start", f"sh {found.folder}/marpack-serve.sh", kind="name"),
        ),
        tables=tuple(each for each in tables if each.rows),
    )
