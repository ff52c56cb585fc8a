"""An archive → the plan of serving it: what is looked at first, and whose word counts for how it is served."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from marpack.archive.cache import Cache
from marpack.archive.names import quoted
from marpack.archive.protocol import INDEX_NAME, Archive, ArchiveForm
from marpack.errors import ArchiveError, UsageError
from marpack.findings import Finding, Severity
from marpack.inspection.facts import Inspection
from marpack.inspection.inspect import inspect
from marpack.inspection.pickles import PickleVerdict
from marpack.inspection.verify import UNFIT
from marpack.project.source import ResolvedSource
from marpack.runner.client import Worker
from marpack.runner.session import PreparedModel, prepare
from marpack.serving.model_properties import ModelProperties, Models
from marpack.serving.models import ModelPlan, ModelSettings
from marpack.torchserve.messages import Load
from marpack.torchserve.stock import BUILT_INS, HandlerName
from marpack.torchserve.targets import Target

_FIRST_VERSION = "1.0"  # of an archive that names none


class Door(Struct, frozen=True, kw_only=True):
    """What an archive has to be to be served."""

    require_safe: bool = False  # `inspect` finds no error in it, and nothing that needs trust
    digests: frozenset[str] = frozenset()  # `sha256:…`: it is one of these; none: any

    def admit(self, archive: Archive) -> tuple[Finding, ...]:
        """Look into an archive, none of which is run; return what was found. Raises ArchiveError for one to refuse."""
        if self.digests and archive.form is ArchiveForm.FOLDER:
            hint = "pack it, and serve the archive: marpack build"
            raise ArchiveError("a model folder can change after its digest was taken", where=archive.source, hint=hint)
        facts = inspect(archive, verify=bool(self.digests), parse_config=False)
        if self.digests:
            self._expect_digest(facts)
        if self.require_safe:
            _expect_safe(facts)
        return facts.findings

    def _expect_digest(self, facts: Inspection) -> None:
        """Refuse an archive of another digest, and one that only claims the digest: its index lists other bytes."""
        if facts.digest is None:
            what, hint = f"it has no digest: there is no {INDEX_NAME} in it", "build it with marpack, or pack it again"
            raise ArchiveError(what, where=facts.source, hint=hint)
        if facts.digest not in self.digests:
            hint = "--require-digest allows it; if it should be another archive, fetch that again"
            raise ArchiveError(f"its digest is {facts.digest}, which is not allowed", where=facts.source, hint=hint)
        if facts.verified is None or not facts.verified.intact:
            found = [finding for finding in facts.findings if finding.code in UNFIT]
            raise _refused("its members are not those of its digest", found, facts)


def _expect_safe(facts: Inspection) -> None:
    errors = [finding for finding in facts.findings if finding.severity is Severity.ERROR]
    doubts = [finding for finding in facts.findings if finding.severity is Severity.WARNING]
    if errors or facts.pickles.verdict is not PickleVerdict.SAFE:
        raise _refused("it is not safe to load", errors or doubts, facts)


def _refused(what: str, findings: list[Finding], facts: Inspection) -> ArchiveError:
    """Return the refusal for the first of what was found."""
    for finding in findings:
        return ArchiveError(f"{what}: {finding.message}", where=finding.where or facts.source, hint=finding.hint)
    return ArchiveError(what, where=facts.source, hint=f"look into it: marpack inspect --verify {facts.source}")


class ModelWishes(Struct, frozen=True, kw_only=True):
    """What is asked for one model when it is registered; None where nothing is."""

    handler: str | None = None  # in place of the manifest's
    workers: int | None = None  # the model config's count comes first
    batch_size: int | None = None  # comes before the model config's
    max_batch_delay: int | None = None  # ms; as above
    response_timeout: int | None = None  # s; the model config's comes first
    startup_timeout: int | None = None  # s; as above


_NONE = ModelWishes()


class ModelLoader(Struct, frozen=True, kw_only=True):
    """Plans the serving of archives, all of them the same way."""

    load: Load  # its folder, names and requirements are filled in
    settings: ModelSettings = ModelSettings()
    models: Models = {}  # what the server's config says of versions of models
    target: Target | None = None  # None: what the archive was made for
    door: Door = Door()
    asked: Mapping[str, int] = {}  # fields of the settings that whoever started the server has the last word on
    spawn: Callable[[Archive], Callable[[], Worker]] = lambda _: Worker.spawn  # what starts workers for an archive
    cache: Callable[[], Cache] = Cache  # makes one for each archive

    def plan(self, resolved: ResolvedSource, *, name: str | None = None, wishes: ModelWishes = _NONE) -> ModelPlan:
        """Look into an archive, lay its files out and return how it is to be served; takes as long as that takes.

        Args:
            resolved: The archive.
            name: Of the model; None: its manifest's.
            wishes: What is asked for this model alone; nothing by default.

        Raises ArchiveError for what cannot be served or may not be, UsageError for what is asked of it, ProjectError
        and ExtractionError.
        """
        findings: list[Finding] = []
        prepared = prepare(
            resolved,
            options=replace(self.load, model_name=name, handler=wishes.handler or self.load.handler),
            target=self.target,
            cache=self.cache(),
            opened=partial(self._look, wishes, findings),
        )
        return self._planned(prepared, name, wishes, tuple(findings))

    def _look(self, wishes: ModelWishes, findings: list[Finding], _: ResolvedSource, archive: Archive) -> None:
        findings += self.door.admit(archive)
        if wishes.handler is not None:
            _expect_handler(archive, wishes.handler)

    def _planned(
        self, prepared: PreparedModel, name: str | None, wishes: ModelWishes, findings: tuple[Finding, ...]
    ) -> ModelPlan:
        model = prepared.archive.manifest.model
        name, version = name or model.name, model.version or _FIRST_VERSION
        return ModelPlan(
            name=name,
            version=version,
            prepared=prepared,
            settings=self._settings(name, version, wishes, prepared.config),
            spawn=self.spawn(prepared.archive),
            findings=findings,
            is_default=self._said(name, version).default_version is True,
        )

    def _said(self, name: str, version: str) -> ModelProperties:
        """Return what the server's config says of a version of a model."""
        return self.models.get(name, {}).get(version, ModelProperties())

    def _settings(
        self,
        name: str,
        version: str,
        wishes: ModelWishes,
        config: Mapping[str, Any],  # Any: YAML as it stands
    ) -> ModelSettings:
        """Put together who has a say, from the one that counts least to the one that has the last word."""
        timeouts = _given(response_timeout=wishes.response_timeout, startup_timeout=wishes.startup_timeout)
        said = asdict(self._said(name, version))
        tunes = _given(**{key: value for key, value in said.items() if key in ModelSettings.__struct_fields__})
        workers = _given(min_workers=wishes.workers, max_workers=wishes.workers)
        tuned = replace(self.settings, **{**timeouts, **tunes, **workers}).tuned(config)
        tuned = replace(tuned, **self.asked)
        return replace(tuned, **_given(batch_size=wishes.batch_size, max_batch_delay=wishes.max_batch_delay))


def _given(**values: Any) -> dict[str, Any]:  # Any: of each its own
    return {key: value for key, value in values.items() if value is not None}


def _expect_handler(archive: Archive, handler: str) -> None:
    """Raise UsageError for a handler that is neither a built-in nor a member of the archive."""
    path = HandlerName.parse(handler).path
    if path in BUILT_INS or path in archive.entries or f"{path}.py" in archive.entries:
        return
    hint = "name a built-in handler, or a file in the archive"
    raise UsageError(f"the handler {quoted(handler)} is neither a built-in nor in the archive", hint=hint)
