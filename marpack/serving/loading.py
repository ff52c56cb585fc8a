"""The model store, and the way of an archive to the plan of serving it: what is looked at first, whose word counts."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from msgspec import Struct
from msgspec.structs import asdict, replace

from marpack.archive.cache import Cache
from marpack.archive.names import quoted
from marpack.archive.protocol import INDEX_NAME, Archive, ArchiveForm
from marpack.errors import ArchiveError, ExitCode, UsageError
from marpack.finding_codes import PROGRAM
from marpack.findings import Finding, Severity
from marpack.inspection.facts import Inspection
from marpack.inspection.inspect import inspect
from marpack.inspection.members import UNFIT, model_config, program_findings
from marpack.inspection.pickles import PickleVerdict
from marpack.project.source import ResolvedSource
from marpack.protocol.messages import Load
from marpack.protocol.targets import Target
from marpack.runner.client import Worker
from marpack.runner.session import PreparedModel, prepare, sequence_warning
from marpack.runner.zygote import Zygote
from marpack.serving.models import ModelPlan
from marpack.serving.properties import ModelProperties, Models
from marpack.serving.settings import ModelSettings
from marpack.torchserve.http import RequestError
from marpack.torchserve.stock import BUILT_INS, HandlerName

_ALL = "all"
_SUFFIXES = (".mar", ".model", ".tar.gz", ".tgz")
_SCHEME = re.compile(r"(?:https?|file):", re.IGNORECASE)
_MOST_TOLD = 1024  # characters of a url that messages repeat


class ModelStore(Struct, frozen=True):
    """A folder of archives."""

    folder: Path

    def find(self, url: str) -> Path:
        """Return the archive, or model folder, of a bare name; raise RequestError for any other url.

        Whatever the original would look up elsewhere is refused in the words that it has for what is not there: an
        address, a path, a link that leads out of the store.
        """
        shown = url[:_MOST_TOLD]
        if not url:
            raise _not_found("empty url")
        if ".." in url:
            raise _not_found(f"Relative path is not allowed in url: {shown}")
        if _SCHEME.match(url):
            raise _not_found(f"Given URL {shown} does not match any allowed URL(s)")
        if not self._holds(url):
            raise _not_found(f"Model not found at: {shown}")
        return self.folder / url

    def _holds(self, name: str) -> bool:
        if any(letter in "/\\" or not letter.isprintable() for letter in name):
            return False
        store, place = self.folder.resolve(), self.folder / name
        try:
            return place.exists() and store in place.resolve().parents
        except (OSError, RuntimeError):  # a name that is too long, a link to itself
            return False

    def all_models(self) -> list[Path]:
        """Return whatever in the store is an archive by its name, and every folder, sorted; UsageError if unreadable.

        As at every start of the original, hidden ones are left out. Links of the store's owner are followed.
        """
        try:
            return sorted(path for path in self.folder.iterdir() if not path.name.startswith(".") and _is_model(path))
        except OSError as error:
            hint = "--model-store names a folder of archives"
            what = f"the model store cannot be read: {error.strerror}"
            raise UsageError(what, hint=hint, code="unreadable-model-store") from None

    def parse_models(self, words: Iterable[str]) -> list[tuple[str | None, Path]]:
        """Return the names that models are to have (None: their manifests') and their files, as `--models` names them.

        Args:
            words: Each `all`, `file` or `name=file`, or several of these with commas between. A file is looked up by
                the last part of its path, in the store; but a folder may lie anywhere. None of them need exist.

        Raises UsageError for a word that names no file, and for an address.
        """
        found: list[tuple[str | None, Path]] = []
        for word in (piece.strip() for text in words for piece in text.split(",")):
            if word.lower() == _ALL:
                found += [(None, path) for path in self.all_models()]
            elif word:
                found.append(self._started(word))
        return list(dict.fromkeys(found))

    def _started(self, word: str) -> tuple[str | None, Path]:
        name, equals, file = (piece.strip() for piece in word.partition("="))
        if not equals:
            name, file = "", name
        if "://" in file:
            hint = f"put it into {self.folder} first, and name the file"
            raise UsageError(f"models are served from the model store, not from {quoted(file)}", hint=hint)
        bare = Path(file).name
        if not bare or (equals and not name) or not file.isprintable():
            raise UsageError(f"{quoted(word)} names no model", hint="write all, file.mar or name=file.mar")
        here = self.folder / bare
        return name or None, Path(file) if not here.exists() and Path(file).is_dir() else here


def _is_model(path: Path) -> bool:
    return path.name.endswith(_SUFFIXES) or path.is_dir()


def _not_found(message: str) -> RequestError:
    return RequestError(message, status=404, kind="ModelNotFoundException")


_FIRST_VERSION = "1.0"  # of an archive that names none


class Door(Struct, frozen=True, kw_only=True):
    """What an archive has to be to be served."""

    require_safe: bool = False  # `inspect` finds no error in it, nothing that needs trust, and no program
    trust_native: bool = False  # with `require_safe`: programs are accepted
    digests: frozenset[str] = frozenset()  # `sha256:…`: it is one of these; none: any

    def admit(self, archive: Archive) -> tuple[Finding, ...]:
        """Look into an archive, none of which is run; return what was found. Raises ArchiveError for one to refuse."""
        if self.digests and archive.form is ArchiveForm.FOLDER:
            hint = "pack it, and serve the archive: marpack build"
            what = "a model folder can change once it was looked at"
            raise ArchiveError(what, where=archive.source, hint=hint, code="folder-without-digest")
        facts = inspect(archive, verify=bool(self.digests), parse_config=False)
        if self.digests:
            self._expect_digest(facts)
        if self.require_safe:
            _expect_safe(facts)
            if facts.programs and not self.trust_native:
                _refuse_programs(facts)
        return facts.findings

    def _expect_digest(self, facts: Inspection) -> None:
        """Refuse an archive of another content digest, and one that only claims it: its index lists other bytes."""
        if facts.content_digest is None:
            what, hint = (
                f"it has no content digest: there is no {INDEX_NAME} in it",
                "build it with marpack, or pack it again",
            )
            raise ArchiveError(what, where=facts.source, hint=hint, code="no-content-digest")
        if facts.content_digest not in self.digests:
            hint = "--require-digest allows it; if it should be another archive, fetch that again"
            what = f"its content digest is {facts.content_digest}, which is not allowed"
            raise ArchiveError(what, where=facts.source, hint=hint, code="digest-not-allowed")
        if facts.verified is None or not facts.verified.intact:
            found = [finding for finding in facts.findings if finding.code in UNFIT]
            raise _refused("its members are not those of its content digest", found, facts, code="digest-mismatch")


def _expect_safe(facts: Inspection) -> None:
    errors = [finding for finding in facts.findings if finding.severity is Severity.ERROR]
    doubts = [finding for finding in facts.findings if finding.severity is Severity.WARNING]
    if errors or facts.pickles.verdict is not PickleVerdict.SAFE:
        raise _refused("it is not safe to load", errors or doubts, facts, code="not-safe-to-load")


class ProgramsRefusedError(ArchiveError):
    """The archive holds native or generated code, which --require-safe refuses."""

    exit_code = ExitCode.SHORT
    code = PROGRAM.name
    fix = "Pass --trust-native if you trust the archive's author; otherwise, build an archive without programs."


def _refuse_programs(facts: Inspection) -> NoReturn:
    (found,) = program_findings(facts.programs, facts.source, refused=True)
    raise ProgramsRefusedError(found.message, where=found.where, hint=found.hint)


def _refused(what: str, findings: list[Finding], facts: Inspection, *, code: str) -> ArchiveError:
    """Return the refusal for the first of what was found."""
    for finding in findings:
        message, where = f"{what}: {finding.message}", finding.where or facts.source
        return ArchiveError(message, where=where, hint=finding.hint, code=code)
    hint = f"look into it: marpack inspect --verify {facts.source}"
    return ArchiveError(what, where=facts.source, hint=hint, code=code)


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
    gpus: tuple[int, ...] = ()  # that workers are dealt; none: they get what `load` says
    asked: Mapping[str, float] = {}  # fields of the settings that whoever started the server has the last word on
    spawn: Callable[[Archive], Callable[[], Worker]] = lambda _: Worker.spawn  # what starts workers for an archive
    zygote: Zygote | None = None  # forks workers
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
        warning = sequence_warning(model_config(archive))
        findings += [warning] if warning else []
        if wishes.handler is not None:
            _expect_handler(archive, wishes.handler)

    def _planned(
        self, prepared: PreparedModel, name: str | None, wishes: ModelWishes, findings: tuple[Finding, ...]
    ) -> ModelPlan:
        on_cpu = str(prepared.config.get("deviceType", "")).lower() == "cpu"
        if on_cpu:
            prepared = replace(prepared, load=replace(prepared.load, gpu_id=None))
        model = prepared.archive.manifest.model
        name, version = name or model.name, model.version or _FIRST_VERSION
        return ModelPlan(
            name=name,
            version=version,
            prepared=prepared,
            settings=self._settings(name, version, wishes, prepared.config),
            spawn=self.spawn(prepared.archive),
            zygote=self.zygote,
            findings=findings,
            gpus=() if on_cpu else _gpus(self.gpus, prepared.config),
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


def _gpus(gpus: tuple[int, ...], config: Mapping[str, Any]) -> tuple[int, ...]:  # Any: YAML as it stands
    """Return which of the GPUs there are a model's workers are dealt: those that its config names, else all."""
    named = config.get("deviceIds")
    wanted = [each for each in named if each in gpus] if isinstance(named, list) else []
    return tuple(wanted) or gpus


def _given(**values: Any) -> dict[str, Any]:  # Any: of each its own
    return {key: value for key, value in values.items() if value is not None}


def _expect_handler(archive: Archive, handler: str) -> None:
    """Raise UsageError for a handler that is neither a built-in nor a member of the archive."""
    path = HandlerName.parse(handler).path
    if path in BUILT_INS or path in archive.entries or f"{path}.py" in archive.entries:
        return
    hint = "name a built-in handler, or a file in the archive"
    what = f"the handler {quoted(handler)} is neither a built-in nor in the archive"
    raise UsageError(what, hint=hint, code="unknown-handler")
