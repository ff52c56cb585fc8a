"""A model folder → an initialized service, step by step as the server's worker takes them (contract §2)."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from marpack.errors import DeviceUnavailableError
from marpack.protocol import messages
from marpack.protocol.messages import Load, Loaded, LoadFailed, Trouble
from marpack.protocol.targets import HandlerSettings, TargetDifference, keep_settings
from marpack.torchserve.context import SERVER_VERSION, Context
from marpack.torchserve.entry_point import envelope_of, find_entry
from marpack.torchserve.metrics import SERVERS_OWN, MetricsCacheYamlImpl
from marpack.torchserve.model_config import Sequences, batch_size_of, read_config, read_manifest
from marpack.worker import notes, startup, ts_names
from marpack.worker.captured_output import print_line, show_data
from marpack.worker.service import InferenceService, ServiceMode
from marpack.worker.trouble import flatten, message_of

During = Callable[[str], AbstractContextManager[object]]  # wraps a stage of the author's code, by its name


class HandlerLoader:
    """Loads one model, keeping the time and the name of each step for a failure's report."""

    def __init__(self, load: Load, *, show: Callable[[str], None] = print_line, during: During = nullcontext) -> None:
        self._load = load
        self._show = show
        self._during = during
        self._stage = "manifest"
        self._stages: dict[str, float] = {}

    def run(self) -> tuple[InferenceService, Loaded]:
        """Load and initialize; raises the exceptions of the author's code."""
        load, target = self._load, self._load.target
        if load.device is not None:
            from marpack.worker.loaders.device import expect_usable  # noqa: PLC0415 - few runs name a device

            expect_usable(load.device, os.environ)
        with self._step("manifest"):
            manifest = read_manifest(load.model_dir)
            model = manifest["model"]
        with self._step("config"):
            config = read_config(load.model_dir, model["configFile"]) if "configFile" in model else {}
        with self._during("import"), self._step("import"):
            handler = load.handler or str(model["handler"])
            name = load.model_name or str(model["modelName"])
            startup.prepare(load.model_dir, handler, with_ts=not load.torchserve)
            startup.set_torchrun_environment(config, name)
            ts_names.install(installed_torchserve=load.torchserve)
            entry = find_entry(handler)
        with self._step("import"):
            envelope = load.envelope or model.get("envelope")
            if envelope and not load.envelope and not target.has(TargetDifference.MANIFEST_ENVELOPE):
                message = f"the manifest names the envelope {envelope}, which the server ignores"
                hint = (
                    f"Set service_envelope={envelope} in config.properties. To try it here, pass --envelope {envelope}."
                )
                notes.note("envelope-ignored", message, stage="import", hint=hint)
                envelope = None
            handle = envelope_of(envelope, show_data(entry.handle, self._show) if load.show_data else entry.handle)
        with self._step("config"):
            metrics = MetricsCacheYamlImpl(load.metrics_config or SERVERS_OWN)
            metrics.initialize_cache()
            metrics.model_name = name
            metrics.set_request_ids("loading")
            batch_size = load.batch_size or batch_size_of(config)
            limited, gpu = load.limit_max_image_pixels, load.gpu_id
            context = Context(name, load.model_dir, manifest, batch_size, gpu, SERVER_VERSION, limited, metrics, config)
            keep_settings(context, HandlerSettings(load.target, load.compile, load.trust_pickle))
            asynchronous = config.get("asyncCommunication") is True  # the frontend takes nothing else for yes
            mode = ServiceMode(  # now: the handler may change the config
                asynchronous=asynchronous,
                loses_answers=asynchronous and not target.has(TargetDifference.LOST_ANSWERS),
                continuous=config.get("continuousBatching") is True,
                sequences=Sequences.of(config),
            )
        with self._during("initialize"), self._step("initialize"):
            entry.initialize(context)
        service = InferenceService(entry, context, handle, mode, load.max_response_size)
        device = getattr(entry.instance, "device", None)
        return service, Loaded(
            handler=entry.name,
            stages=self._stages | notes.drain_timings(),
            pid=os.getpid(),
            troubles=notes.drain_notes(),
            device=None if device is None else str(device),
            loses_answers=mode.loses_answers,
        )

    def failure(self, error: BaseException) -> LoadFailed:
        """Return the message to the parent about an error that `run` raised."""
        if isinstance(error, DeviceUnavailableError):
            trouble = Trouble(kind=messages.UNAVAILABLE, message=error.what, stage=self._stage, hint=error.hint)
            return LoadFailed(trouble=trouble)
        flat = flatten(error, stage=self._stage, model_dir=self._load.model_dir, required=self._load.required)
        trouble = notes.explained(flat)
        if trouble is flat and isinstance(error, Exception):
            from marpack.worker.loaders.diagnosis import note_own_load  # noqa: PLC0415 - only failures need it

            notes.explain(error, note_own_load)
            trouble = notes.explained(flat)
        exhausted = isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "CUDA" in message_of(error))
        return LoadFailed(trouble=trouble, status=507 if exhausted else 503)

    @contextmanager
    def _step(self, stage: str) -> Iterator[None]:
        self._stage = stage
        start = time.perf_counter()
        try:
            yield
        finally:
            self._stages[stage] = self._stages.get(stage, 0.0) + notes.milliseconds_since(start)
