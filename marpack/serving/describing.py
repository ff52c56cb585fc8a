"""A model version as the management port describes it: the original's keys, in its order."""

from datetime import datetime
from typing import Any

from marpack.serving.models import ServedModel
from marpack.serving.workers import ServedWorker, WorkerState

# Switches of the model config, told as they stand.
_SWITCHES = ("continuousBatching", "useJobTicket", "useVenv")
_SEQUENCES = ("sequenceMaxIdleMSec", "sequenceTimeoutMSec", "maxNumSequence", "maxSequenceJobQueueSize")
_UNKNOWN_PID = -1


def description(model: ServedModel) -> dict[str, Any]:  # Any: JSON
    """Return what is known of a model version."""
    settings, prepared = model.settings, model.prepared
    uses_gpu = prepared.load.gpu_id is not None
    return {
        "modelName": model.name,
        "modelVersion": model.version,
        "modelUrl": url_of(model),
        "runtime": prepared.archive.manifest.runtime,
        "minWorkers": settings.min_workers,
        "maxWorkers": settings.max_workers,
        "batchSize": settings.batch_size,
        "maxBatchDelay": settings.max_batch_delay,
        "responseTimeout": settings.response_timeout,
        "startupTimeout": settings.startup_timeout,
        "maxRetryTimeoutInSec": settings.retry_seconds,
        "clientTimeoutInMills": settings.client_timeout,
        "parallelType": "",  # a model is in one process here
        "parallelLevel": 0,
        "deviceType": "gpu" if uses_gpu else "cpu",
        **_configured(model),
        "loadedAtStartup": model.loaded_at_start,
        "workers": [_worker(worker, uses_gpu=uses_gpu) for worker in model.workers],
        "jobQueueStatus": {
            "remainingCapacity": model.queue.capacity - len(model.queue),
            "pendingRequests": len(model.queue),
        },
    }


def url_of(model: ServedModel) -> str:
    """Return what a model was registered by: its file's name in the store, never its place on the machine."""
    return model.prepared.resolved.path.name


def _configured(model: ServedModel) -> dict[str, Any]:  # Any: JSON
    config = model.prepared.config
    switches = {key: config.get(key) is True for key in _SWITCHES}
    has_sequences = config.get("sequenceBatching") is True
    sequences = {key: _whole(config.get(key)) if has_sequences else 0 for key in _SEQUENCES}
    return {**switches, "stateful": has_sequences, **sequences}


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _worker(worker: ServedWorker, *, uses_gpu: bool) -> dict[str, Any]:  # Any: JSON
    pid = worker.pid
    return {
        "id": str(worker.number),
        "startTime": _instant(worker.started),
        "status": "READY" if worker.state is WorkerState.READY else "UNLOADING",
        "memoryUsage": worker.memory,
        "pid": _UNKNOWN_PID if pid is None else pid,
        "gpu": uses_gpu,
        "gpuUsage": "N/A",
    }


def _instant(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
