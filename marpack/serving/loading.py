"""From an archive to the plan of serving it: the model store, admission rules, settings, and loading threads."""

import asyncio
import hashlib
import logging
import os
import re
import socket
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from marpack.archive.addresses import is_http, is_public, public_address
from marpack.archive.cache import Cache, fetch_whole
from marpack.archive.protocol import INDEX_NAME, Archive, ArchiveForm, Limits, quoted
from marpack.archive.sagemaker import has_adapter
from marpack.errors import ArchiveError, ExitCode, UsageError, describe_os_error
from marpack.finding_codes import PROGRAM
from marpack.findings import Finding, Severity
from marpack.inspection.facts import Inspection
from marpack.inspection.inspect import inspect
from marpack.inspection.members import UNFIT, model_config, program_findings
from marpack.project.source import ResolvedSource
from marpack.protocol.messages import Load
from marpack.protocol.targets import Target
from marpack.runner.client import Worker
from marpack.runner.process import Zygote
from marpack.runner.session import PreparedModel, prepare, sequence_warning
from marpack.serving.settings import ModelProperties, Models, ModelSettings, ModelTuning
from marpack.torchserve.http import RequestError
from marpack.torchserve.server_modules import BUILT_INS, HandlerName

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
_SUFFIXES = (".mar", ".model", ".tar.gz", ".tgz")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.IGNORECASE)
_VISIBLE = re.compile(r"[!-~]{1,4096}")
# The host of an allowed URL, if it is written without a wildcard.
_LITERAL_HOST = re.compile(
    r"(?:http|https|https\?|http\(s\)\?)://((?:[a-z0-9-]|\\?\.(?![*+?{]))+)(?=[:/]|\Z)", re.IGNORECASE
)
_MAX_SHOWN = 1024  # characters of a url in a message
_FIRST_VERSION = "1.0"  # of an archive without a version


class ModelStore(Struct, frozen=True):
    """A folder of archives, and other folders to which its links may lead and from which models may be registered."""

    folder: Path
    roots: tuple[Path, ...] = ()  # the other folders

    def find(self, url: str) -> Path:
        """Return the real path of an archive or model folder by its name in the store, or by its path below a root.

        Raises RequestError with TorchServe's messages for missing models for any other url, and for a link to a file
        outside the store and the roots.
        """
        shown, is_path = url[:_MAX_SHOWN], url.startswith("/")
        message = f"Model not found at: {shown}"
        if not url:
            message = "empty url"
        elif ".." in url:
            message = f"Relative path is not allowed in url: {shown}"
        elif is_http(url):
            message = f"Given URL {shown} is not in the model store, and only --allow-remote-register permits addresses"
        elif url.isprintable() and "\\" not in url and (is_path or "/" not in url):
            with suppress(OSError, RuntimeError):  # it does not exist, the name is too long, or a link to itself
                place = (self.folder / url).resolve(strict=True)
                if _is_below(place, self.roots if is_path else (self.folder, *self.roots)):
                    return place
                _LOG.warning("%s is neither in the model store nor in a folder of --store-root", quoted(shown))
        raise RequestError(message, status=404, kind="ModelNotFoundException")

    def follow(self, path: Path) -> Path:
        """Return the real path of a file; raise ArchiveError for a link of the store that leaves it and the roots."""
        place = Path(os.path.realpath(path))
        if path.parent == self.folder and not _is_below(place, (self.folder, *self.roots)):
            hint = f"Copy the file into the store, or add --store-root {place.parent}"
            what = f"the link leads out of the model store, to {place}"
            raise ArchiveError(what, where=str(path), hint=hint, code="link-out-of-store")
        return place

    def all_models(self) -> list[Path]:
        """Return the archives (by their suffix), folders and links of the store, sorted, without hidden ones.

        Raises UsageError if the store is unreadable.
        """
        try:
            return sorted(
                path
                for path in self.folder.iterdir()
                if not path.name.startswith(".") and (path.name.endswith(_SUFFIXES) or path.is_dir())
            )
        except OSError as error:
            hint = "Set --model-store to a folder of archives."
            what = f"the model store cannot be read: {describe_os_error(error)}"
            raise UsageError(what, hint=hint, code="unreadable-model-store") from None

    def parse_models(self, words: Iterable[str]) -> list[tuple[str | None, Path]]:
        """Return the names of models (None: their manifests') and their files from the values of `--models`.

        Each is `all`, `file` or `name=file`, or several of these separated by commas. Only the last part of a file's
        path counts, in the store; a folder may be anywhere. They need not exist. Raises UsageError for another form.
        """
        found: list[tuple[str | None, Path]] = []
        for word in filter(None, (piece.strip() for text in words for piece in text.split(","))):
            if word.lower() == "all":
                found += [(None, path) for path in self.all_models()]
                continue
            name, equals, file = (piece.strip() for piece in word.partition("="))
            if not equals:
                name, file = "", name
            if "://" in file:
                hint = f"Copy the archive into {self.folder}, and pass its file name."
                what = f"models are served from the model store, not from {quoted(file)}"
                raise UsageError(what, where="--models", hint=hint)
            bare = Path(file).name
            if not bare or (equals and not name) or not file.isprintable():
                hint = "Write all, FILE.mar or NAME=FILE.mar."
                raise UsageError(f"{quoted(word)} does not name a model", where="--models", hint=hint)
            is_elsewhere = not (self.folder / bare).exists() and Path(file).is_dir()
            found.append((name or None, Path(file) if is_elsewhere else self.folder / bare))
        return list(dict.fromkeys(found))


def _is_below(place: Path, folders: Iterable[Path]) -> bool:
    """Return whether a real path is below one of the folders."""
    return any(folder.resolve() in place.parents for folder in folders)


class RemoteStore(Struct, frozen=True, kw_only=True):
    """The addresses from which models may be registered."""

    allowed: tuple[re.Pattern[str], ...]  # one of them has to match the whole address, and that of each redirect
    cache: Callable[[], Cache] = Cache
    maximum: int = Limits().total  # bytes of an archive

    def fetch(self, url: str, digest: str | None) -> Path:
        """Fetch an archive into the cache, log its digest, and return its path.

        `digest` is "sha256:<hex>" of the file, which http requires. Connections are made to public IP addresses only,
        and to those of hosts that an allowed URL names literally. Raises RequestError; ExtractionError if the cache
        cannot be written.
        """
        from marpack.archive.http import HttpClient  # noqa: PLC0415 - few servers fetch archives

        shown = public_address(url[:_MAX_SHOWN])
        if not self._allows(url):
            message = f"Given URL {shown} does not match any allowed URL(s)"
            raise RequestError(message, status=404, kind="ModelNotFoundException")
        if digest is not None and not _DIGEST.fullmatch(digest):
            raise RequestError("Parameter digest is not sha256: and 64 hexadecimal digits.")
        if digest is None and not url.lower().startswith("https:"):
            raise RequestError("Parameter digest is required for an http URL, such as digest=sha256:…")
        sha256 = digest.partition(":")[2].lower() if digest else None
        client = HttpClient(proxies=False, is_allowed=self._allows_connection, may_redirect=self._allows)
        try:
            path = fetch_whole(url, self.cache(), sha256=sha256, maximum=self.maximum, client=client)
        except ArchiveError as error:
            message = f"Failed to download archive from: {shown}: {error.what}"
            raise RequestError(message, kind="DownloadArchiveException") from None
        if sha256 is None:
            with path.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        _LOG.info("fetched %s with the digest sha256:%s", shown, sha256)
        return path

    def _allows(self, url: str) -> bool:
        """Return whether an address is allowed; one that clients read in different ways is not."""
        try:
            parts = urlsplit(url)
        except ValueError:
            return False
        is_plain = is_http(url) and url.isascii() and not {*url} & {*"\\#"} and "@" not in parts.netloc
        return is_plain and _VISIBLE.fullmatch(url) is not None and any(each.fullmatch(url) for each in self.allowed)

    def _allows_connection(self, ip: str) -> bool:
        hosts = {found[1].replace("\\", "") for each in self.allowed if (found := _LITERAL_HOST.match(each.pattern))}
        return is_public(ip) or any(ip in _addresses(host) for host in hosts)


def _addresses(host: str) -> set[str]:
    """Return the IP addresses of a host."""
    try:
        return {str(place[0]) for *_, place in socket.getaddrinfo(host.strip("[]"), None)}
    except OSError:
        return set()


class ProgramsRefusedError(ArchiveError):
    """The archive has native or generated code, or unknown weights, which --require-safe refuses."""

    exit_code = ExitCode.SHORT
    code = PROGRAM.name
    fix = "Pass --trust-native if you trust the archive's author; otherwise, build an archive without programs."


class AdmissionRules(Struct, frozen=True, kw_only=True):
    """What an archive must be to be served."""

    require_safe: bool = False  # no errors, nothing that needs trust, and no programs
    trust_native: bool = False  # with `require_safe`: allow programs
    digests: frozenset[str] = frozenset()  # allowed content digests, `sha256:…`; empty: any

    def check(self, archive: Archive) -> tuple[Finding, ...]:
        """Inspect an archive and return the findings; raise ArchiveError for one that the rules refuse."""
        if self.digests and archive.form is ArchiveForm.FOLDER:
            hint = "Pack the folder, and serve the archive: marpack build"
            what = "a model folder can change after its inspection"
            raise ArchiveError(what, where=archive.source, hint=hint, code="folder-without-digest")
        facts = inspect(archive, verify=bool(self.digests), parse_config=False)
        if self.digests and facts.content_digest is None:
            what = f"the archive has no content digest: {INDEX_NAME} is missing"
            hint = "Build the archive again: marpack build"
            raise ArchiveError(what, where=facts.source, hint=hint, code="no-content-digest")
        if self.digests and facts.content_digest not in self.digests:
            hint = "Add the digest with --require-digest if you approve the archive; otherwise, fetch the approved one."
            what = f"the content digest {facts.content_digest} is not allowed"
            raise ArchiveError(what, where=facts.source, hint=hint, code="digest-not-allowed")
        if self.digests and (facts.verified is None or not facts.verified.intact):
            unfit = [finding for finding in facts.findings if finding.code in UNFIT]
            raise _first_problem("the members do not match the content digest", unfit, facts, code="digest-mismatch")
        if self.require_safe:
            errors = [finding for finding in facts.findings if finding.severity is Severity.ERROR]
            doubts = [finding for finding in facts.findings if finding.severity is Severity.WARNING]
            if errors or facts.pickles.needs_trust_pickle:
                what = "the archive is not safe to load"
                raise _first_problem(what, errors or doubts, facts, code="not-safe-to-load")
            unknown = facts.pickles.unknown_weights
            refused = program_findings(facts.programs, facts.source, refused=True, unknown_weights=unknown)
            if refused and not self.trust_native:
                found = refused[0]
                raise ProgramsRefusedError(found.message, where=found.where, hint=found.hint, code=found.code)
        return facts.findings


def _first_problem(what: str, findings: list[Finding], facts: Inspection, *, code: str) -> ArchiveError:
    """Return an error with the first of the findings."""
    if findings:
        first = findings[0]
        return ArchiveError(f"{what}: {first.message}", where=first.where or facts.source, hint=first.hint, code=code)
    return ArchiveError(what, where=facts.source, hint=f"Run marpack inspect --verify {facts.source}", code=code)


class ModelPlan(Struct, frozen=True, kw_only=True):
    """A model version to serve."""

    name: str
    version: str
    prepared: PreparedModel
    settings: ModelSettings
    spawn: Callable[[], Worker]  # starts a worker process
    zygote: Zygote | None = None  # forks workers once it is started
    findings: tuple[Finding, ...] = ()  # of the archive's inspection
    gpus: tuple[int, ...] = ()  # for its workers in turn; empty: the GPU of `prepared.load`
    is_default: bool = False  # answers requests without a version, also when another version was first
    url: str = ""  # from which it was registered; empty: the name of its file


_NO_TUNING = ModelTuning()


class ModelLoader(Struct, frozen=True, kw_only=True):
    """Plans how archives are served."""

    load: Load  # without the folder, names and requirements of an archive
    settings: ModelSettings = ModelSettings()
    models: Models = {}  # settings of config.properties
    target: Target | None = None  # None: the archive's
    rules: AdmissionRules = AdmissionRules()
    gpus: tuple[int, ...] = ()  # for workers in turn; empty: the GPU of `load`
    overrides: ModelTuning = _NO_TUNING  # settings of the command line
    sagemaker: Callable[[], ModelTuning] = ModelTuning  # returns the settings of models in SageMaker's layout
    spawn: Callable[[Archive], Callable[[], Worker]] = lambda _: Worker.spawn  # returns what starts workers
    zygote: Zygote | None = None  # forks workers
    cache: Callable[[], Cache] = Cache  # makes one for each archive

    def plan(
        self,
        resolved: ResolvedSource,
        *,
        name: str | None = None,
        handler: str | None = None,
        tuning: ModelTuning = _NO_TUNING,
    ) -> ModelPlan:
        """Inspect and extract an archive, and return how to serve it.

        `name` and `handler` replace those of its manifest; `tuning` has the settings of a request to register it.
        Raises ArchiveError for an archive that cannot be served or that the rules refuse, UsageError for a handler
        that is neither built in nor a member of the archive, ProjectError and ExtractionError.
        """
        findings: list[Finding] = []

        def inspect_first(_: ResolvedSource, archive: Archive) -> None:
            findings.extend(self.rules.check(archive))
            warning = sequence_warning(model_config(archive))
            findings.extend([warning] if warning else [])
            path = HandlerName.parse(handler).path if handler is not None else None
            if path is not None and path not in BUILT_INS and not {path, f"{path}.py"} & archive.entries.keys():
                what = f"the handler {quoted(handler or '')} is neither a built-in nor in the archive"
                raise UsageError(what, hint="Use a built-in handler, or a file of the archive.", code="unknown-handler")

        prepared = prepare(
            resolved,
            options=replace(self.load, model_name=name, handler=handler or self.load.handler),
            target=self.target,
            cache=self.cache(),
            opened=inspect_first,
        )
        config, wanted = prepared.config, prepared.config.get("deviceIds")
        gpus = tuple([each for each in wanted if each in self.gpus]) if isinstance(wanted, list) else ()
        gpus = gpus or self.gpus
        if str(config.get("deviceType", "")).lower() == "cpu":
            gpus, prepared = (), replace(prepared, load=replace(prepared.load, gpu_id=None))
        model = prepared.archive.manifest.model
        name, version = name or model.name, model.version or _FIRST_VERSION
        properties = self.models.get(name, {}).get(version, ModelProperties())
        with ExitStack() as on_error:
            on_error.callback(prepared.archive.close)
            plan = ModelPlan(
                name=name,
                version=version,
                prepared=prepared,
                settings=self._combine_settings(prepared, properties, tuning),
                spawn=self.spawn(prepared.archive),
                zygote=self.zygote,
                findings=tuple(findings),
                gpus=gpus,
                is_default=properties.default_version is True,
            )
            on_error.pop_all()
        return plan

    def _combine_settings(
        self, prepared: PreparedModel, properties: ModelProperties, tuning: ModelTuning
    ) -> ModelSettings:
        """Return the settings of a model from all sources; raise UsageError for an invalid one of SageMaker's."""
        timeouts = ModelTuning(response_timeout=tuning.response_timeout, startup_timeout=tuning.startup_timeout)
        workers = ModelTuning(min_workers=tuning.min_workers, max_workers=tuning.max_workers)
        batching = ModelTuning(batch_size=tuning.batch_size, max_batch_delay=tuning.max_batch_delay)
        is_sagemaker = has_adapter(prepared.archive.manifest.model.handler, prepared.archive.open)
        # Each replaces the settings before it, in TorchServe's order.
        settings = self.settings.with_tuning(self.sagemaker() if is_sagemaker else _NO_TUNING)
        settings = settings.with_tuning(timeouts).with_tuning(properties).with_tuning(workers)
        return settings.with_config(prepared.config).with_tuning(self.overrides).with_tuning(batching)


async def run_in_loading_thread(work: Callable[[], T]) -> T:
    """Return the result of `work`, or raise its error, from a thread of its own.

    The event loop's executor has few threads, which a few slow archives would fill, and the loop waits for all of them
    before it ends. The end of the process does not wait for these threads.
    """
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()  # a caller that stops waiting must not cancel it under the thread

    def run() -> None:
        try:
            outcome.set_result(work())
        except Exception as error:  # noqa: BLE001 - raised again where the result is awaited
            outcome.set_exception(error)

    threading.Thread(target=run, name="marpack-loading", daemon=True).start()
    return await asyncio.wrap_future(outcome)
