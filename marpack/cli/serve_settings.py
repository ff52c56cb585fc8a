"""The settings of `marpack serve`: its options and a config.properties combined, and the models of the start."""

from __future__ import annotations

import importlib.util
import math
import os
import socket
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from marpack.api.operations import cache_of
from marpack.api.session_options import ServeOptions
from marpack.api.sessions import isolated_python, load_of
from marpack.archive.protocol import MANIFEST_NAME
from marpack.cli.options import project_above
from marpack.cli.session import print_aside, show_origin
from marpack.errors import MarpackError, MissingExtraError, UsageError
from marpack.project.load import declared_metrics
from marpack.project.source import resolve
from marpack.protocol.messages import Load
from marpack.protocol.targets import Target
from marpack.render.console import byte_bar, show_findings
from marpack.render.serve import SERVER_LOG, page_renderer
from marpack.runner.client import Worker
from marpack.runner.process import Zygote
from marpack.runner.session import Device
from marpack.serving.access import Tokens
from marpack.serving.http import HttpSettings
from marpack.serving.loading import AdmissionRules, ModelLoader, ModelPlan, ModelStore, RemoteStore
from marpack.serving.management import ModelApi
from marpack.serving.metrics import ServerMetrics
from marpack.serving.models import log_failure
from marpack.serving.server import ReloadableModel, ServerOptions
from marpack.serving.settings import (
    Address,
    GrpcSettings,
    MetricsMode,
    ModelSettings,
    ModelTuning,
    ServerConfig,
    sagemaker_tuning,
)
from marpack.torchserve import MAX_BODY
from marpack.version import install_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from marpack.archive.protocol import Archive

_LOOPBACK = "127.0.0.1"
_PORTS = {"inference": 8080, "management": 8081, "metrics": 8082}
_GRPC_PORT = 7070
_GRPC_PACKAGES = ("grpc", "grpc_health", "grpc_reflection")


def _has_grpc() -> bool:
    return all(importlib.util.find_spec(name) for name in _GRPC_PACKAGES)


class ServeSettings(Struct, frozen=True, kw_only=True):
    """The options of the command line, which take precedence, and a config file."""

    options: ServeOptions
    config: ServerConfig
    token_file: Path | None  # if tokens are required
    store: ModelStore | None
    has_model_api: bool  # requests may register and unregister models

    @classmethod
    def of(cls, options: ServeOptions) -> ServeSettings:
        """Read the config file, if there is one.

        Raises UsageError for contradictory options, and for settings that would be less safe than requested.
        """
        file = os.environ.get("TS_CONFIG_FILE") or options.ts_config
        config = ServerConfig.read(Path(file), os.environ) if file else ServerConfig()
        token_file = Path(options.token) if options.token and not options.disable_token_auth else None
        folder, roots = options.model_store or config.model_store, tuple(Path(root) for root in options.store_roots)
        store = ModelStore(Path(folder), roots) if folder else None
        has_model_api = bool(options.enable_model_api or config.enable_model_api)
        if config.disable_token_authorization is False and not token_file and not options.disable_token_auth:
            hint = "Add --token key_file.json, which is created if it is missing, or set it to true."
            where = "disable_token_authorization=false"
            raise UsageError("the config requires tokens, and the token file is not set", where=where, hint=hint)
        if options.rotate_token and not options.token:
            raise UsageError("--rotate-token has no effect without --token", hint="Add --token FILE.")
        if roots and store is None:
            raise UsageError("--store-root has no effect without a model store", hint="Add --model-store DIR.")
        if options.allow_remote_register and not (has_model_api and config.allowed_urls):
            hint = "Add --enable-model-api, and set allowed_urls in the config, such as https://models.example.com/.*"
            raise UsageError("--allow-remote-register needs allowed URLs and the model API", hint=hint)
        if options.trust_native and not options.require_safe:
            raise UsageError("--trust-native has no effect without --require-safe", hint="Add --require-safe.")
        if options.grpc_port is not None and not _has_grpc():
            raise MissingExtraError("grpcio", "grpc", "--grpc-port")
        settings = cls(options=options, config=config, token_file=token_file, store=store, has_model_api=has_model_api)
        if config.enable_grpc_ssl and settings.grpc is not None:
            hint = "End TLS in a proxy in front of marpack, and set enable_grpc_ssl=false."
            where = "enable_grpc_ssl=true"
            raise UsageError("gRPC with TLS is not supported", where=where, hint=hint, code="tls-not-supported")
        if store is not None and not store.folder.is_dir():
            hint = "Create the folder, or name another one."
            raise UsageError("the folder does not exist", where=f"--model-store {folder}", hint=hint)
        if has_model_api and store is None:
            raise UsageError("registering models requires a model store", hint="Add --model-store DIR.")
        return settings

    def notes(self) -> Iterator[str]:
        """Yield a sentence for each setting that may be unexpected."""
        yield from self.config.notes
        if self.config.allowed_urls and not self.options.allow_remote_register:
            yield "allowed_urls has no effect without --allow-remote-register: models come from the model store only"
        if self.options.log_config:
            yield "--log-config has no effect; use --log-format and --log-requests"
        if not self.token_file:
            yield "requests need no token; require one with --token FILE"
        elif not self.options.no_page:
            yield "the page to try models is off because it cannot send tokens"
        inference, wanted, address = self._wanted("inference"), self._wanted("management"), self.management_address
        for reachable in (inference, self.grpc.address if self.grpc is not None else None):
            if reachable is not None and not reachable.is_loopback:
                yield f"other machines can reach {reachable.place}"
        if self._configures_grpc and not _has_grpc():
            yield f"gRPC is off, because grpcio is not installed. {install_hint('grpc')}"
        if address is not None and not address.is_loopback and not self.token_file:
            yield f"everyone who can reach {address} can change the models: tokens are off"
        if wanted is not None and wanted != address:
            state = "is off" if address is None else f"listens on {address}"
            yield f"management {state}: without tokens, anyone could change the models on {wanted}; add --token FILE"

    # --- Addresses

    @property
    def management_address(self) -> Address | None:
        """Where the management port listens; None: nowhere.

        Without tokens or --open-management, only on this machine, and not on the port of predictions if others can
        reach that.
        """
        wanted = self._wanted("management")
        if wanted is None or wanted.is_loopback or self.token_file or self.options.open_management:
            return wanted
        inference = self._wanted("inference")
        is_taken = inference is not None and not inference.is_loopback and wanted.port == inference.port != 0
        return None if is_taken else replace(wanted, host=_LOOPBACK)

    def _wanted(self, what: Literal["inference", "management", "metrics"]) -> Address | None:
        """Return the address that the options and the config file set for a port."""
        options, config = self.options, self.config
        port, configured = {
            "inference": (options.port, config.inference_address),
            "management": (options.management_port, config.management_address),
            "metrics": (options.metrics_port, config.metrics_address),
        }[what]
        if what == "management" and port is None and configured is None and not self.has_model_api:
            return None
        if what == "metrics" and port is None and config.enable_metrics_api is False:
            return None
        address = configured or Address(_LOOPBACK, _PORTS[what])
        if port is not None:
            address = replace(address, port=port, path=None, host=address.host or _LOOPBACK)
        if options.host is not None and what != "management":
            address = replace(address, host=options.host, path=None, port=address.port or _PORTS[what])
        return address

    @property
    def _configures_grpc(self) -> bool:
        config = self.config
        return config.grpc_inference_port is not None or config.grpc_inference_address is not None

    @property
    def grpc(self) -> GrpcSettings | None:
        """How the gRPC services listen; None: not at all, without a setting for them or without their packages."""
        options, config = self.options, self.config
        if not (self._configures_grpc and _has_grpc()) and options.grpc_port is None:
            return None
        ports = (options.grpc_port, config.grpc_inference_port, _GRPC_PORT)
        host = options.host or config.grpc_inference_address or _LOOPBACK
        return GrpcSettings(
            address=Address(host.strip("[] "), next(port for port in ports if port is not None)),
            max_connection_age=config.grpc_inference_max_connection_age_ms,
            max_connection_age_grace=config.grpc_inference_max_connection_age_grace_ms,
        )

    # --- The server

    def server_options(self, loader: ModelLoader) -> ServerOptions:
        """Return the options of the server; `loader` plans registered models."""
        options, config = self.options, self.config
        inference = self._wanted("inference")
        assert inference is not None  # noqa: S101 - it always listens there
        file = self.token_file
        cors = {
            "access-control-allow-origin": ", ".join(options.cors_origins) or config.cors_allowed_origin,
            "access-control-allow-methods": config.cors_allowed_methods,
            "access-control-allow-headers": config.cors_allowed_headers,
        }
        return ServerOptions(
            inference=inference,
            management=self.management_address,
            metrics=self._wanted("metrics"),
            metrics_may_fail=options.metrics_port is None and config.metrics_address is None,
            http=HttpSettings(
                max_request_size=options.max_request_size or config.max_request_size or MAX_BODY,
                max_connections=options.max_connections,
                drain=options.drain,
                headers=tuple((name, value) for name, value in cors.items() if value),
            ),
            grpc=self.grpc,
            compat=options.compat is not None,
            open_inference=bool(config.ts_open_inference_protocol),
            sample_seconds=None if config.disable_system_metrics else config.metric_time_interval or 60,
            log_requests=options.log_requests,
            log_slow=options.log_slow or math.inf,
            model_api=self._model_api(loader),
            tokens=None
            if file is None
            else Tokens(file, config.token_expiration_min or 60, rotate=options.rotate_token),
            page=None if options.no_page or file is not None else page_renderer(),
            allowed_hosts=tuple(options.allowed_hosts),
            origins=tuple(options.cors_origins),
        )

    def _model_api(self, loader: ModelLoader) -> ModelApi | None:
        """Return how requests register models; None if they cannot."""
        if self.store is None or not self.has_model_api:
            return None
        workers, remote = self.config.default_workers_per_model or 0, None
        if self.options.allow_remote_register:
            remote = RemoteStore(allowed=self.config.allowed_urls, cache=loader.cache)
        return ModelApi(store=self.store, loader=loader, default_workers=workers, remote=remote)

    def metrics(self) -> ServerMetrics:
        """Return the server's metrics, without values."""
        file = self.options.metrics_config or self.config.metrics_config
        return ServerMetrics(
            hostname=socket.gethostname(),
            mode=self.config.metrics_mode or MetricsMode.PROMETHEUS,
            declared=declared_metrics(Path(file) if file else None),
            auto_detect=bool(self.config.model_metrics_auto_detect),
        )

    # --- The models

    def loader(self) -> ModelLoader:
        """Return what plans models, those that are registered later included."""
        options, config, device = self.options, self.config, Device.available(self.options.device)
        environment = self._environment(device)
        zygote = None if options.env == "isolated" else Zygote(environment)

        def spawn(archive: Archive) -> Callable[[], Worker]:
            python = isolated_python(archive, print_aside) if options.env == "isolated" else sys.executable
            memory = options.max_memory
            return partial(Worker.spawn, environment=environment, python=python, max_memory=memory, zygote=zygote)

        workers = config.default_workers_per_model
        if workers == 0:
            workers = config.number_of_gpu or os.cpu_count()
        defaults = ModelTuning(
            min_workers=workers,
            max_workers=workers,
            response_timeout=config.default_response_timeout,
            startup_timeout=config.default_startup_timeout,
            queue_size=config.job_queue_size,
            leave_timeout=config.unregister_model_timeout,
        )
        overrides = ModelTuning(
            min_workers=options.workers,
            max_workers=options.workers,
            batch_size=options.batch_size,
            max_batch_delay=options.max_batch_delay,
            response_timeout=options.timeout,
            startup_timeout=options.startup_timeout,
            queue_size=options.queue,
        )
        return ModelLoader(
            load=self._load(device),
            settings=ModelSettings().with_tuning(defaults),
            models=config.models | config.model_snapshot,
            target=Target(options.target) if options.target else None,
            rules=AdmissionRules(
                require_safe=options.require_safe,
                trust_native=options.trust_native,
                digests=frozenset(options.digests),
            ),
            gpus=device.gpu_ids()[: config.number_of_gpu],
            overrides=overrides,
            sagemaker=partial(sagemaker_tuning, os.environ),
            spawn=spawn,
            zygote=zygote,
            cache=partial(cache_of, byte_bar),
        )

    def _load(self, device: Device) -> Load:
        """Return how all models are loaded."""
        options, config = self.options, self.config
        metrics_config = options.metrics_config or config.metrics_config
        load = replace(
            load_of(replace(options, metrics_config=metrics_config), device),
            envelope=options.envelope or config.service_envelope,
            max_response_size=options.max_response_size or config.max_response_size or MAX_BODY,
        )
        if config.number_of_gpu == 0:
            load = replace(load, gpu_id=None)
        limits = config.limit_max_image_pixels
        return load if limits is None else replace(load, limit_max_image_pixels=limits)

    def _environment(self, device: Device) -> Mapping[str, str]:
        """Return the environment of workers."""
        environment = dict(device.environment() or os.environ)
        hidden = self.config.blacklist_env_vars
        if hidden is not None:
            environment = {name: value for name, value in environment.items() if not hidden.fullmatch(name)}
        if self.config.decode_input_request is False:
            environment["TS_DECODE_INPUT_REQUEST"] = "false"
        return environment

    def start_models(self, loader: ModelLoader) -> list[ReloadableModel]:
        """Plan the models of the command line and the config file.

        A SOURCE that cannot be served ends the start; a model of the store that cannot is logged and left out, as on
        TorchServe. Raises UsageError, ProjectError and ArchiveError.
        """
        options, config, store = self.options, self.config, self.store
        snapshot = config.model_snapshot.items()
        named = (f"{name}={each.mar_name}" for name, versions in snapshot for each in versions.values())
        words = tuple(options.start_models) or tuple(named) or config.load_models
        sources: list[tuple[str | None, str | None]] = []
        for text in options.source:  # NAME=SOURCE, or a SOURCE, which may contain "="
            before, equals, after = text.partition("=")
            is_named = equals and not Path(text).exists() and "/" not in before
            sources.append((before, after) if is_named else (None, text))
        if not sources and not words:
            if store is None:
                sources = [(None, project_above())]
            else:
                SERVER_LOG.info("no models are loaded; load those of the model store with --models all")
        if words and store is None:
            hint = "Add --model-store DIR, or serve a file itself: marpack serve model.mar."
            raise UsageError("--models and load_models name files of a model store", hint=hint)
        models: list[ReloadableModel] = []
        for name, source in sources:
            plan_again = partial(self._plan, loader, source, name, trust_url=options.trust_url)
            models.append(ReloadableModel(plan_again(), Path(source or "."), plan_again))
        for name, file in store.parse_models(words) if store is not None else ():
            plan_again = partial(self._plan_stored, loader, file, name)
            try:
                models.append(ReloadableModel(plan_again(), file, plan_again))
            except MarpackError as error:
                self._refuse_default_handler(file)
                log_failure(name or file.name, error)
        seen: dict[tuple[str, str], str] = {}
        for plan in (model.plan for model in models):
            path, version = plan.prepared.archive.source, (plan.name, plan.version)
            if version in seen:
                what = f"{seen[version]} and {path} are both {plan.name} {plan.version}"
                raise UsageError(what, hint=f"Give one another name: other={path}.")
            seen[version] = path
        return models

    def _refuse_default_handler(self, file: Path) -> None:
        """Raise UsageError for a folder whose handler is the default_service_handler of the config file."""
        if self.config.default_service_handler and file.is_dir() and not (file / MANIFEST_NAME).exists():
            what = f"the folder has no {MANIFEST_NAME}, and marpack does not use default_service_handler"
            hint = "Build an archive that names its handler: marpack build --help lists the options."
            raise UsageError(what, where=str(file), hint=hint, code="folder-without-manifest")

    def _plan_stored(self, loader: ModelLoader, file: Path, name: str | None) -> ModelPlan:
        """Plan a file of the model store."""
        assert self.store is not None  # noqa: S101 - it has the file
        return replace(self._plan(loader, str(self.store.follow(file)), name), url=file.name)

    def _plan(self, loader: ModelLoader, source: str | None, name: str | None, *, trust_url: bool = False) -> ModelPlan:
        """Plan a source, after building the archive of a project."""
        outside = self.options.allow_outside
        resolved = resolve(source, bar=byte_bar, cache=cache_of(byte_bar), trust_url=trust_url, allow_outside=outside)
        show_origin(resolved)
        show_findings(resolved.findings)
        return loader.plan(resolved, name=name)
