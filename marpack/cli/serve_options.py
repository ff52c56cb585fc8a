"""The options of `marpack serve` and what a config.properties says → how the server is set up."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from marpack.api.options import ModelOptions, Option
from marpack.errors import UsageError
from marpack.project.metrics_config import declared_metrics
from marpack.render.serve import Page
from marpack.serving.access import Tokens
from marpack.serving.config_properties import ServerConfig, read_config
from marpack.serving.http import FrontSettings
from marpack.serving.loading import ModelLoader, ModelStore
from marpack.serving.metrics import MetricsMode, ServerMetrics
from marpack.serving.server import ServerOptions
from marpack.serving.settings import Address, ModelSettings
from marpack.torchserve.messages import MAX_BODY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LOOPBACK = "127.0.0.1"
_PORTS = {"inference": 8080, "management": 8081, "metrics": 8082}
_IGNORED = {
    "log_config": "--log-config has no effect: --log-format and --log-requests say what is logged",
    "no_snapshots": "",
    "start": "",
    "foreground": "",
}


_Port = Annotated[int, Meta(ge=0, le=65535)]
_Count = Annotated[int, Meta(ge=1)]


class _ServeArguments(ModelOptions, frozen=True):
    source: Annotated[
        Sequence[str],
        Option("Archives, folders, projects or addresses, as SOURCE or NAME=SOURCE.", complete="sources"),
    ] = ()


class ServeOptions(_ServeArguments, frozen=True, kw_only=True):
    """The options of `marpack serve`. With None, the config file decides, and then the server's default."""

    host: Annotated[
        str | None,
        Option("Address to listen on; 0.0.0.0 in containers.", metavar="HOST", default="127.0.0.1", group="Addresses"),
    ] = None
    port: Annotated[
        _Port | None,
        Option("Port of predictions and of the page.", metavar="N", default="8080", group="Addresses"),
    ] = None
    management_port: Annotated[
        _Port | None,
        Option("Port to describe and scale models.", metavar="N", default="off", group="Addresses"),
    ] = None
    metrics_port: Annotated[
        _Port | None, Option("Port of Prometheus metrics.", metavar="N", default="8082", group="Addresses")
    ] = None
    enable_model_api: Annotated[
        bool, Option("Allow requests that register and unregister models.", group="Addresses")
    ] = False
    token: Annotated[
        str | None,
        Option("Require the tokens of this key_file.json; created if missing.", metavar="FILE", group="Addresses"),
    ] = None
    allowed_hosts: Annotated[
        Sequence[str],
        Option("Additional host name of this server.", ("--allowed-host",), "HOST", group="Addresses"),
    ] = ()
    cors_origins: Annotated[
        Sequence[str],
        Option("Origin of web pages that may send requests.", ("--cors-origin",), "ORIGIN", group="Addresses"),
    ] = ()
    no_page: Annotated[bool, Option("Do not serve the page for trying models.", group="Addresses")] = False

    workers: Annotated[
        _Count | None,
        Option("Number of workers per model.", metavar="N", default="the config's, or 1", group="Workers"),
    ] = None
    batch_size: Annotated[
        _Count | None,
        Option("Maximum number of requests per batch.", metavar="N", default="the config's, or 1", group="Workers"),
    ] = None
    max_batch_delay: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Option(
            "Maximum time to wait for a full batch, in milliseconds.",
            metavar="MS",
            default="the config's, or 100",
            group="Workers",
        ),
    ] = None
    timeout: Annotated[
        float | None,
        Option(
            "Batch timeout in seconds.",
            metavar="SECONDS",
            parse="seconds",
            default="the config's, or 120",
            group="Workers",
        ),
    ] = None
    startup_timeout: Annotated[
        float | None,
        Option(
            "Timeout for loading the model, in seconds.",
            metavar="SECONDS",
            parse="seconds",
            default="the config's, or 120",
            group="Workers",
        ),
    ] = None
    queue: Annotated[
        _Count | None,
        Option("Maximum number of queued requests per model.", metavar="N", default="100", group="Workers"),
    ] = None
    max_memory: Annotated[
        _Count | None,
        Option(
            "Maximum memory for data of a worker, such as 2GB.",
            metavar="SIZE",
            parse="size",
            default="no limit",
            group="Workers",
        ),
    ] = None

    max_request_size: Annotated[
        _Count | None,
        Option("Maximum size of a request body.", metavar="SIZE", parse="size", default="6553500", group="Limits"),
    ] = None
    max_response_size: Annotated[
        _Count | None,
        Option("Maximum size of a response body.", metavar="SIZE", parse="size", default="6553500", group="Limits"),
    ] = None
    max_connections: Annotated[_Count, Option("Maximum number of open connections.", metavar="N", group="Limits")] = (
        10_000
    )
    drain: Annotated[
        float,
        Option(
            "Time to finish accepted requests at the end, in seconds.",
            metavar="SECONDS",
            parse="seconds",
            group="Limits",
        ),
    ] = 30.0

    envelope: Annotated[
        Literal["body", "json", "kserve", "kservev2"] | None,
        Option("The server's service_envelope setting.", default="none", group="Model"),
    ] = None
    require_safe: Annotated[
        bool, Option("Refuse weights that need trust, and native or generated code.", group="Model")
    ] = False
    trust_native: Annotated[bool, Option("Accept native and generated code, with --require-safe.", group="Model")] = (
        False
    )
    digests: Annotated[
        Sequence[str],
        Option("Load only archives with this content digest.", ("--require-digest",), "DIGEST", group="Model"),
    ] = ()

    log_requests: Annotated[bool, Option("Log one line per request.", group="Logging and reloading")] = False
    log_format: Annotated[
        Literal["text", "json"], Option("Format of all log lines.", group="Logging and reloading")
    ] = "text"
    reload: Annotated[bool, Option("Reload a model when its files change.", group="Logging and reloading")] = False
    compat: Annotated[
        Literal["torchserve"] | None,
        Option("Imitate TorchServe also where its behavior is harmful.", group="Logging and reloading"),
    ] = None

    model_store: Annotated[
        str | None, Option("Folder of the archives that --models names.", metavar="DIR", group="TorchServe")
    ] = None
    start_models: Annotated[
        Sequence[str],
        Option(
            "Models of the store to load: FILE, NAME=FILE, lists or all.", ("--models",), "NAMES…", group="TorchServe"
        ),
    ] = ()
    ts_config: Annotated[str | None, Option("A config.properties file.", metavar="FILE", group="TorchServe")] = None
    disable_token_auth: Annotated[bool, Option("Do not require tokens, even with --token.", group="TorchServe")] = False
    start: Annotated[bool, Option("Has no effect.", hidden=True)] = False
    foreground: Annotated[bool, Option("Has no effect.", hidden=True)] = False
    no_snapshots: Annotated[bool, Option("Has no effect.", ("--no-config-snapshots", "--ncs"), hidden=True)] = False
    log_config: Annotated[str | None, Option("Has no effect.", metavar="FILE", hidden=True)] = None
    stop: Annotated[bool, Option("Show how to stop the server.", group="TorchServe")] = False


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
