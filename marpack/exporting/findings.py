"""Features of an archive that a platform does not support, as findings."""

import sys
from collections.abc import Iterator

from marpack import finding_codes as codes
from marpack.exporting.plan import Export
from marpack.findings import Finding, Severity

_SETS_HEADERS = frozenset({"set_response_header", "set_response_headers"})
_READS_HEADERS = frozenset(
    {"get_request_header", "get_all_request_header", "get_request_property", "get_request_properties"}
)
_COUNTS_METRICS = frozenset(
    {"add_counter", "add_time", "add_size", "add_percent", "add_error", "add_metric", "get_metric"}
)
_SETS_STATUS = frozenset({"set_response_status", "set_all_response_status"})
_STREAMS = frozenset({"send_intermediate_predict_response"})
_MAX_SAGEMAKER_RESPONSE = 60  # seconds
_GPU_KEYS = ("deviceIds", "parallelType", "torchrun")
NAMES = {"image": "--image", "storage_uri": "--storage-uri", "role": "--role"}  # options with placeholders


def common_findings(export: Export) -> Iterator[Finding]:
    """Yield the features that no platform supports."""
    where, version = str(export.archive), "{}.{}".format(*sys.version_info)
    if export.needs_trust:
        yield codes.EXPORT_NEEDS_TRUST.at(where)
    for line in export.requirements.left_out:
        yield codes.EXPORT_REQUIREMENT_LEFT_OUT.at(f"{where}!{export.requirements.file}", line=line)
    for wheel in export.foreign:
        yield codes.EXPORT_VENDORED.at(where, wheel=wheel, version=version)
    config = export.config
    wants_gpu = str(config.get("deviceType")).lower() == "gpu" or any(config.get(key) for key in _GPU_KEYS)
    if wants_gpu and export.options.device == "cpu":
        yield codes.EXPORT_NO_GPU.at(where)
    if export.image is not None and export.image.lock is None:
        yield codes.EXPORT_REQUIREMENTS_UNHASHED.at(where, unlocked=export.image.unlocked)


def _http_findings(export: Export) -> Iterator[Finding]:
    """Yield the features that reach no client through another HTTP server than marpack's."""
    where = str(export.archive)
    if export.used & _SETS_STATUS:
        yield codes.EXPORT_REASON_PHRASE.at(where)
    if export.used & _STREAMS:
        yield codes.EXPORT_STREAMING.at(where)


def _front_end_findings(export: Export) -> Iterator[Finding]:
    """Yield the features that a platform's front end does not pass on."""
    yield from _http_findings(export)
    if "jobQueueSize" in export.config:
        message = f"its jobQueueSize of {export.settings.queue_size} is not the only queue there"
        yield codes.EXPORT_QUEUE.at(str(export.archive), message=message)


def kserve_findings(export: Export) -> Iterator[Finding]:
    """Yield the features that KServe does not support."""
    yield from _front_end_findings(export)
    where = str(export.archive)
    if export.envelope:
        yield codes.EXPORT_OWN_ENVELOPE.at(where, envelope=export.envelope)
    elif export.settings.batch_size > 1:
        yield codes.EXPORT_BATCHES.at(where, batch_size=export.settings.batch_size)
    yield from _placeholders(export, "image", "storage_uri")


def sagemaker_findings(export: Export) -> Iterator[Finding]:
    """Yield the features that SageMaker does not support."""
    yield from _front_end_findings(export)
    where, seconds = str(export.archive), export.settings.response_timeout
    if export.used & _SETS_HEADERS:
        yield codes.EXPORT_RESPONSE_HEADERS.at(
            where, message="its handler sets response headers, most of which clients do not get"
        )
    if export.used & _COUNTS_METRICS:
        yield codes.EXPORT_METRICS.at(where, message="its handler counts metrics that SageMaker does not read")
    if "responseTimeout" in export.config and seconds > _MAX_SAGEMAKER_RESPONSE:
        yield codes.EXPORT_SLOW_ANSWERS.at(where, seconds=seconds, max_sagemaker_response=_MAX_SAGEMAKER_RESPONSE)
    yield from _placeholders(export, "image", "storage_uri", "role")


def ray_serve_findings(export: Export) -> Iterator[Finding]:
    """Yield the features that Ray Serve does not support."""
    where = str(export.archive)
    yield from _http_findings(export)
    if export.used & _READS_HEADERS:
        yield codes.EXPORT_REQUEST_HEADERS.at(where)
    if export.used & _SETS_HEADERS:
        hint = "put what clients behind SageMaker need into the body"
        yield codes.EXPORT_RESPONSE_HEADERS.at(
            where,
            severity=Severity.NOTE,
            hint=hint,
            message="its handler sets response headers, which AWS's containers drop",
        )
    if export.used & _COUNTS_METRICS:
        hint = "count them in deployment.py, with ray.util.metrics"
        yield codes.EXPORT_METRICS.at(
            where, hint=hint, message="its handler counts metrics, which Ray Serve does not offer"
        )


def _placeholders(export: Export, *names: str) -> Iterator[Finding]:
    """Yield the options with placeholders that are missing."""
    missing = [NAMES[name] for name in names if getattr(export.options, name) is None]
    if missing:
        hint = f"pass {', '.join(missing)}; or edit the files"
        yield codes.EXPORT_PLACEHOLDER.at(str(export.archive), hint=hint)
