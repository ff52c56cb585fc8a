"""A model folder → an initialised service, step by step as the server's worker takes them (contract §2)."""

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from marpack.errors import DeviceUnavailableError
from marpack.protocol import diagnostics
from marpack.protocol.diagnostics import drain_timings
from marpack.protocol.messages import UNAVAILABLE, Load, Loaded, LoadFailed, Trouble
from marpack.protocol.targets import HandlerSettings, TargetDifference, keep_settings
from marpack.torchserve.context import SERVER_VERSION, Context, Handle
from marpack.torchserve.envelopes import envelope_of
from marpack.torchserve.metrics_cache import SERVERS_OWN, MetricsCacheYamlImpl
from marpack.torchserve.model_config import Sequences, batch_size_of, read_config, read_manifest
from marpack.torchserve.ts import finder
from marpack.torchserve.ts.entry_point import HandlerEntry, find_entry
from marpack.worker import startup
from marpack.worker.prints import print_line, shown
from marpack.worker.service import InferenceService, ServiceMode
from marpack.worker.trouble import flatten, message_of

R = TypeVar("R")
During = Callable[[str], AbstractContextManager[None]]  # what a stage of the author's code is entered with, by its name


def unwatched(_stage: str) -> AbstractContextManager[None]:
    """Enter a stage that nobody watches."""
    return nullcontext()


class HandlerLoader:
    """Loads one model, keeping the time and the name of each step, so that a failure can say where it was."""

    def __init__(self, load: Load, *, tell: Callable[[str], None] = print_line, during: During = unwatched) -> None:
        """Take what is to be loaded, where lines of `--show-data` go, and what author's code is run within."""
        self._load = load
        self._tell = tell
        self._during = during
        self._stage = "manifest"
        self._stages: dict[str, float] = {}

    def run(self) -> tuple[InferenceService, Loaded]:
        """Load and initialise; raises whatever the author's code raises."""
        if self._load.device is not None:
            from marpack.worker.loaders.device import expect_usable  # noqa: PLC0415 - few runs name a device

            expect_usable(self._load.device, os.environ)
        manifest = self._timed("manifest", lambda: read_manifest(self._load.model_dir))
        config = self._timed("config", lambda: self._config(manifest))
        with self._during("import"):
            self._timed("import", lambda: self._prepare_imports(manifest, config))
            entry = self._timed("import", lambda: find_entry(self._handler(manifest)))
        handle = self._timed("import", lambda: envelope_of(self._envelope(manifest), self._shown(entry.handle)))
        context = self._timed("config", lambda: self._context(manifest, config))
        mode = self._conduct(config)  # now: the handler may change the config
        with self._during("initialize"):
            self._timed("initialize", lambda: entry.initialize(context))
        service = InferenceService(entry, context, handle, mode, max_response_size=self._load.max_response_size)
        return service, self._loaded(entry, loses_answers=mode.loses_answers)

    def _conduct(self, config: dict[str, Any]) -> ServiceMode:
        asynchronous = config.get("asyncCommunication") is True  # the frontend takes nothing else for yes
        return ServiceMode(
            asynchronous=asynchronous,
            loses_answers=asynchronous and not self._load.target.has(TargetDifference.LOST_ANSWERS),
            continuous=config.get("continuousBatching") is True,
            sequences=Sequences.of(config),
        )

    def _shown(self, handle: Handle) -> Handle:
        return shown(handle, self._tell) if self._load.show_data else handle

    def failure(self, error: BaseException) -> LoadFailed:
        """Return what the parent is told of an error that `run` raised."""
        if isinstance(error, DeviceUnavailableError):
            trouble = Trouble(kind=UNAVAILABLE, message=error.what, stage=self._stage, hint=error.hint)
            return LoadFailed(trouble=trouble)
        flat = flatten(error, stage=self._stage, model_dir=self._load.model_dir, required=self._load.required)
        trouble = diagnostics.explained(flat)
        if trouble is flat and isinstance(error, Exception):
            from marpack.worker.loaders.diagnosis import note_own_load  # noqa: PLC0415 - what loads needs none of it

            diagnostics.explain(error, note_own_load)
            trouble = diagnostics.explained(flat)
        exhausted = isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "CUDA" in message_of(error))
        return LoadFailed(trouble=trouble, status=507 if exhausted else 503)

    def _timed(self, stage: str, step: Callable[[], R]) -> R:
        self._stage = stage
        start = time.perf_counter()
        try:
            return step()
        finally:
            self._stages[stage] = self._stages.get(stage, 0.0) + diagnostics.milliseconds_since(start)

    def _config(self, manifest: dict[str, Any]) -> dict[str, Any]:
        model = manifest["model"]
        return read_config(self._load.model_dir, model["configFile"]) if "configFile" in model else {}

    def _prepare_imports(self, manifest: dict[str, Any], config: dict[str, Any]) -> None:
        startup.prepare(self._load.model_dir, self._handler(manifest), with_ts=not self._load.torchserve)
        startup.set_torchrun_environment(config, self._name(manifest))
        finder.install(installed_torchserve=self._load.torchserve)

    def _handler(self, manifest: dict[str, Any]) -> str:
        return self._load.handler or str(manifest["model"]["handler"])

    def _envelope(self, manifest: dict[str, Any]) -> str | None:
        named = manifest["model"].get("envelope")
        if self._load.envelope or not named or self._load.target.has(TargetDifference.MANIFEST_ENVELOPE):
            return self._load.envelope or named
        diagnostics.note(
            "envelope-ignored",
            f"the manifest names the envelope {named}, which the server ignores",
            stage="import",
            hint=f"the server takes it from its own setting service_envelope; try it here with --envelope {named}",
        )
        return None

    def _name(self, manifest: dict[str, Any]) -> str:
        return self._load.model_name or str(manifest["model"]["modelName"])

    def _context(self, manifest: dict[str, Any], config: dict[str, Any]) -> Context:
        name = self._name(manifest)
        metrics = MetricsCacheYamlImpl(self._load.metrics_config or SERVERS_OWN)
        metrics.initialize_cache()
        metrics.model_name = name
        metrics.set_request_ids("loading")
        context = Context(
            name,
            self._load.model_dir,
            manifest,
            self._load.batch_size or batch_size_of(config),
            self._load.gpu_id,
            SERVER_VERSION,
            self._load.limit_max_image_pixels,
            metrics,
            config,
        )
        keep_settings(context, HandlerSettings(self._load.target, self._load.compile, self._load.trust_pickle))
        return context

    def _loaded(self, entry: HandlerEntry, *, loses_answers: bool) -> Loaded:
        device = getattr(entry.instance, "device", None)
        return Loaded(
            handler=entry.name,
            stages=self._stages | drain_timings(),
            pid=os.getpid(),
            troubles=diagnostics.drain_notes(),
            device=None if device is None else str(device),
            loses_answers=loses_answers,
        )
