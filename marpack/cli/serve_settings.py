"""How `marpack serve` is set up: its options and a config.properties → settings, and plans of models."""

from __future__ import annotations

import os
import socket
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from marpack.api.sessions import Consent, isolated_python, load_of
from marpack.cli.serve_options import ServeOptions
from marpack.cli.session import cache_of, tell_aside, tell_built
from marpack.errors import MarpackError, UsageError
from marpack.project.load import declared_metrics
from marpack.project.source import resolve
from marpack.protocol.messages import Load
from marpack.protocol.targets import Target
from marpack.render.console import show_findings, talk
from marpack.render.progress import byte_bar
from marpack.render.serve import Page
from marpack.runner.client import Worker
from marpack.runner.session import Device
from marpack.runner.zygote import Zygote
from marpack.serving.access import Tokens
from marpack.serving.config_properties import ServerConfig, read_config
from marpack.serving.http import FrontSettings
from marpack.serving.loading import Door, ModelLoader, ModelStore
from marpack.serving.metrics import MetricsMode, ServerMetrics
from marpack.serving.models import ModelPlan
from marpack.serving.reloading import Reloadable, Reloader
from marpack.serving.server import Beside, ServerOptions
from marpack.serving.settings import Address, ModelSettings
from marpack.torchserve.http import MAX_BODY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from marpack.archive.protocol import Archive
    from marpack.serving.listener import ServerListener

_LOOPBACK = "127.0.0.1"
_PORTS = {"inference": 8080, "management": 8081, "metrics": 8082}
_IGNORED = {
    "log_config": "--log-config has no effect: --log-format and --log-requests say what is logged",
    "no_snapshots": "",
    "start": "",
    "foreground": "",
}


class ServeSettings(Struct, frozen=True, kw_only=True):
    """What the command line and the config file say together; the command line has the last word."""

    options: ServeOptions
    config: ServerConfig

    @classmethod
    def of(cls, options: ServeOptions) -> ServeSettings:
        """Read the config file that is named, if one is; raises UsageError for what would be unsafe to pass over."""
        named = os.environ.get("TS_CONFIG_FILE") or options.ts_config
        config = read_config(Path(named), os.environ) if named else ServerConfig()
        settings = cls(options=options, config=config)
        settings.check()
        return settings

    def check(self) -> None:
        """Raise UsageError for what does not go together, or would be less safe than it was asked to be."""
        if self.config.disable_token_authorization is False and not self.tokens:
            raise UsageError(
                "the config asks for token authorization, and no file of tokens is named",
                where="disable_token_authorization=false",
                hint="add --token key_file.json, which is made if it is missing, or set it to true",
            )
        if self.options.trust_native and not self.options.require_safe:
            raise UsageError("--trust-native has no effect without --require-safe", hint="add --require-safe")
        if self.store is not None and not self.store.is_dir():
            raise UsageError("there is no such folder", where=f"--model-store {self.store}")
        if self.has_model_api and self.store is None:
            hint = "name it: --model-store DIR"
            raise UsageError("models are registered from a model store, and none is named", hint=hint)

    @property
    def tokens(self) -> Path | None:
        """The file of tokens, if they are asked for."""
        named = self.options.token
        return Path(named) if named and not self.options.disable_token_auth else None

    @property
    def store(self) -> Path | None:
        """The model store."""
        named = self.options.model_store
        return Path(named) if named else self.config.model_store

    @property
    def start_words(self) -> tuple[str, ...]:
        """The words that name the models of the store that are served from the start."""
        snapshot = self.config.model_snapshot.items()
        named = (f"{name}={each.mar_name}" for name, versions in snapshot for each in versions.values())
        return tuple(self.options.start_models) or tuple(named) or self.config.load_models

    def stored_models(self) -> list[tuple[str | None, Path]]:
        """Return those models: the name each is to have (None: its manifest's), and its file; raises UsageError."""
        words = self.start_words
        if not words:
            return []
        if self.store is None:
            hint = "name it: --model-store DIR; or serve a file itself: marpack serve model.mar"
            raise UsageError("--models and load_models name files of a model store", hint=hint)
        return ModelStore(self.store).parse_models(words)

    @property
    def has_model_api(self) -> bool:
        """Whether models may be registered and unregistered."""
        return bool(self.options.enable_model_api or self.config.enable_model_api)

    @property
    def notes(self) -> tuple[str, ...]:
        """What whoever starts the server should know, a sentence each."""
        return tuple(self._notes())

    def _notes(self) -> Iterator[str]:
        yield from self.config.notes
        for name, text in _IGNORED.items():
            if getattr(self.options, name) and text:
                yield text
        inference = self.address("inference")
        if not self.tokens:
            yield "no tokens are asked for; --token FILE asks for them"
        elif not self.options.no_page:
            yield "there is no page to try models on: it has no way to carry a token"
        if inference is not None and not inference.is_loopback:
            yield f"{inference} can be reached from other machines"
        asked, kept = self._asked_address("management"), self.address("management")
        if asked is not None and asked != kept:
            where = "is off" if kept is None else f"listens on {kept}"
            yield f"management {where}: on {asked} others could change what is served; --token FILE opens it there"

    def address(self, what: str) -> Address | None:
        """Return where a port listens; None: it does not.

        Without tokens, management stays on this machine, and off a port that others reach for predictions.
        """
        asked = self._asked_address(what)
        if what != "management" or asked is None or asked.is_loopback or self.tokens:
            return asked
        inference = self._asked_address("inference")
        is_taken = inference is not None and not inference.is_loopback and asked.port == inference.port != 0
        return None if is_taken else replace(asked, host=_LOOPBACK)

    def _asked_address(self, what: str) -> Address | None:
        configured: Address | None = getattr(self.config, f"{what}_address")
        ports = {"inference": self.options.port, "management": self.options.management_port}
        port = ports.get(what, self.options.metrics_port)
        host = self.options.host
        if what == "management" and port is None and configured is None and not self.has_model_api:
            return None
        if what == "metrics" and port is None and self.config.enable_metrics_api is False:
            return None
        address = configured or Address(_LOOPBACK, _PORTS[what])
        if port is not None:
            address = replace(address, port=port, path=None, host=address.host or _LOOPBACK)
        if host is not None and what != "management":
            address = replace(address, host=host, path=None, port=address.port or _PORTS[what])
        return address

    def server(self, loader: ModelLoader) -> ServerOptions:
        """Return how the server listens and what it bounds; `loader` plans what is registered."""
        inference = self.address("inference")
        assert inference is not None  # noqa: S101 - it always listens there
        return ServerOptions(
            inference=inference,
            management=self.address("management"),
            metrics=self.address("metrics"),
            metrics_may_fail=self.options.metrics_port is None and self.config.metrics_address is None,
            front=FrontSettings(
                max_request_size=self.options.max_request_size or self.config.max_request_size or MAX_BODY,
                max_connections=self.options.max_connections,
                drain=self.options.drain,
            ),
            compat=self.options.compat is not None,
            open_inference=bool(self.config.ts_open_inference_protocol),
            sample_seconds=None if self.config.disable_system_metrics else self.config.metric_time_interval or 60,
            log_requests=bool(self.options.log_requests),
            cors=self._cors(),
            model_store=self.store,
            model_api=self.has_model_api,
            loader=loader,
            default_workers=self.config.default_workers_per_model or 0,
            tokens=None if self.tokens is None else Tokens.start(self.tokens, self.config.token_expiration_min or 60),
            page=Page() if self.has_page else None,
            allowed_hosts=tuple(self.options.allowed_hosts),
            origins=tuple(self.options.cors_origins),
        )

    @property
    def has_page(self) -> bool:
        """Whether there is a page to try models on: it has no way to carry a token."""
        return not self.options.no_page and self.tokens is None

    def _cors(self) -> tuple[tuple[str, str], ...]:
        named = self.options.cors_origins
        origin = ", ".join(named) if named else self.config.cors_allowed_origin
        given = {
            "access-control-allow-origin": origin,
            "access-control-allow-methods": self.config.cors_allowed_methods,
            "access-control-allow-headers": self.config.cors_allowed_headers,
        }
        return tuple((name, value) for name, value in given.items() if value)

    def metrics(self, write: Callable[[str], None]) -> ServerMetrics:
        """Return the server's metrics, before the first; `write` takes lines where they go to the log."""
        named = self.options.metrics_config or self.config.metrics_config
        return ServerMetrics(
            hostname=socket.gethostname(),
            mode=self.config.metrics_mode or MetricsMode.PROMETHEUS,
            declared=declared_metrics(Path(named) if named else None),
            auto_detect=bool(self.config.model_metrics_auto_detect),
            write=write,
        )

    def base(self) -> ModelSettings:
        """Return how models are served as far as the config file says of all of them."""
        config = self.config
        workers = config.default_workers_per_model
        if workers == 0:
            workers = config.number_of_gpu or os.cpu_count()
        given = {
            "min_workers": workers,
            "max_workers": workers,
            "response_timeout": config.default_response_timeout,
            "startup_timeout": config.default_startup_timeout,
            "queue_size": config.job_queue_size,
            "leave_timeout": config.unregister_model_timeout,
        }
        return replace(ModelSettings(), **{name: value for name, value in given.items() if value is not None})

    def asked(self) -> dict[str, float]:
        """Return what the command line asks for, which has the last word."""
        options = self.options
        given = {
            "min_workers": options.workers,
            "max_workers": options.workers,
            "batch_size": options.batch_size,
            "max_batch_delay": options.max_batch_delay,
            "response_timeout": options.timeout,
            "startup_timeout": options.startup_timeout,
            "queue_size": options.queue,
        }
        return {name: value for name, value in given.items() if value is not None}


class NamedSource(Struct, frozen=True):
    """A SOURCE, and the name it is served under; None: the manifest's."""

    source: str | None  # None: the project in the current folder
    name: str | None = None

    @classmethod
    def parse(cls, text: str) -> NamedSource:
        """Read `NAME=SOURCE` or `SOURCE`; what is there under the whole text is a SOURCE."""
        name, equals, source = text.partition("=")
        named = equals and not Path(text).exists() and "/" not in name
        return cls(source, name) if named else cls(text)


def loader_of(options: ServeOptions, settings: ServeSettings) -> ModelLoader:
    """Return what plans the serving of archives, those that are registered later among them."""
    config, device = settings.config, Device.available(options.device)
    environment = _environment(config, device)
    zygote = None if options.env == "isolated" else Zygote(environment)

    def spawn(archive: Archive) -> Callable[[], Worker]:
        # No question on the terminal: archives are loaded beside requests, at any time.
        consent = Consent(options.yes, ask=lambda _: None)
        python = isolated_python(archive, tell_aside, consent) if options.env == "isolated" else sys.executable
        memory = options.max_memory
        return partial(Worker.spawn, environment=environment, python=python, max_memory=memory, zygote=zygote)

    return ModelLoader(
        load=_load(options, config, device),
        settings=settings.base(),
        models=config.models | config.model_snapshot,
        target=Target(options.target) if options.target else None,
        door=Door(
            require_safe=options.require_safe,
            trust_native=options.trust_native,
            digests=frozenset(options.digests),
        ),
        gpus=device.gpu_ids()[: config.number_of_gpu],
        asked=settings.asked(),
        spawn=spawn,
        zygote=zygote,
        cache=cache_of,
    )


def _load(options: ServeOptions, config: ServerConfig, device: Device) -> Load:
    metrics = options.metrics_config or (config.metrics_config and str(config.metrics_config))
    load = load_of(
        replace(options, metrics_config=metrics),
        device,
        envelope=options.envelope or config.service_envelope,
        max_response_size=options.max_response_size or config.max_response_size or MAX_BODY,
    )
    if config.number_of_gpu == 0:
        load = replace(load, gpu_id=None)
    limits = config.limit_max_image_pixels
    return load if limits is None else replace(load, limit_max_image_pixels=limits)


def _environment(config: ServerConfig, device: Device) -> Mapping[str, str]:
    environment = dict(device.environment() or os.environ)
    hidden = config.blacklist_env_vars
    if hidden is not None:
        environment = {name: value for name, value in environment.items() if not hidden.fullmatch(name)}
    if config.decode_input_request is False:
        environment["TS_DECODE_INPUT_REQUEST"] = "false"
    return environment


class StartModels(Struct, frozen=True):
    """What is served from the start, and what watches over its files."""

    plans: list[ModelPlan]
    beside: Beside | None = None


def start_models(
    options: ServeOptions, settings: ServeSettings, loader: ModelLoader, log: ServerListener
) -> StartModels:
    """Plan what the command line and the config file name: nothing, where they name but a model store.

    A SOURCE that cannot be served ends the start; a model of the store that cannot is told and left out, as on the
    original.

    Raises UsageError, ProjectError and ArchiveError.
    """
    named = [NamedSource.parse(text) for text in options.source]
    if not named and not settings.start_words:
        if settings.store is None:
            named = [NamedSource(None)]
        else:
            log.noted("no model is served from the start: --models all serves those of the model store")
    planned = [
        (partial(_plan, each, loader, options, trust_url=options.trust_url), Path(each.source or ".")) for each in named
    ]
    plans = [again() for again, _ in planned]
    for name, file in settings.stored_models():
        again = partial(_plan, NamedSource(str(file), name), loader, options)
        try:
            plans.append(again())
        except MarpackError as error:
            log.failed(name or file.name, None, error, given_up=True)
            continue
        planned.append((again, file))
    _refuse_same(plans)
    if not options.reload:
        return StartModels(plans)
    watched = zip(plans, planned, strict=True)
    return StartModels(plans, Reloader(Reloadable(plan, (path,), again) for plan, (again, path) in watched).run)


def _plan(named: NamedSource, loader: ModelLoader, options: ServeOptions, *, trust_url: bool = False) -> ModelPlan:
    """Return how a source is served, its archive built first where it is a project's."""
    outside = options.allow_outside
    resolved = resolve(named.source, bar=byte_bar, cache=cache_of(), trust_url=trust_url, allow_outside=outside)
    tell_built(resolved)
    show_findings(resolved.findings, talk())
    return loader.plan(resolved, name=named.name)


def _refuse_same(plans: Sequence[ModelPlan]) -> None:
    """Raise UsageError for a version of a model that is named twice."""
    seen: dict[tuple[str, str], str] = {}
    for plan in plans:
        source, model = plan.prepared.archive.source, (plan.name, plan.version)
        if model in seen:
            message = f"{seen[model]} and {source} are both {plan.name} {plan.version}"
            raise UsageError(message, hint=f"give one another name: other={source}")
        seen[model] = source
