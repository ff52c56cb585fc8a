"""Features of an archive that a platform does not support, as findings."""

import sys
from collections.abc import Iterator

from marpack.exporting.plan import Export
from marpack.findings import Finding
from marpack.inspection.lint.codes import Code

NEEDS_TRUST = Code(
    "export-needs-trust",
    "The archive's pickles can run code when loaded, and the exported server does not allow that.",
    "Save a state_dict or safetensors; or start the server with --trust-pickle.",
)
REQUIREMENT_LEFT_OUT = Code(
    "export-requirement-left-out",
    "A line of requirements.txt names a file of the archive, or an option of pip, and is not installed.",
    "Name the package and its version, from an index that the platform reaches.",
)
VENDORED = Code(
    "export-vendored",
    "A vendored package has native code for another Python than the image's.",
    "Vendor for the Python that exports, in a copy of the project: marpack build --vendor --vendor-python X.Y.",
)
UNHASHED = Code(
    "export-requirements-unhashed",
    "The image installs the requirements without hashes: whatever the index has on the day of the build.",
    "Export where pip reaches the index, or pass a lock that was made there: --lock requirements.lock.",
)
NO_GPU = Code(
    "export-no-gpu",
    "The model config requires GPUs, and the exported torch does not support them.",
    "Export for GPUs: --device cuda.",
)
PLACEHOLDER = Code(
    "export-placeholder",
    "The files contain a placeholder for a name that only you know.",
    "Pass the name, or edit the files.",
)
REASON_PHRASE = Code(
    "export-reason-phrase",
    "The handler sets a status. The platform keeps its code and replaces its reason phrase.",
    "Put the reason into the body.",
)
HEADERS = Code(
    "export-response-headers",
    "The handler sets response headers; SageMaker keeps only the content type and X-Amzn-SageMaker-Custom-Attributes.",
    "Put what clients need into the body, or into that header.",
)
REQUEST_HEADERS = Code(
    "export-request-headers",
    "The handler reads request headers. Ray Serve spells every name like Content-Type, and AWS's containers forward"
    " Content-Type and Accept only.",
    "Look X-Api-Key up by that spelling; with AWS's containers, put the values into the body.",
)
STREAMING = Code(
    "export-streaming",
    "The handler streams its responses; clients of this platform get them in one piece, if at all.",
    "On SageMaker, call InvokeEndpointWithResponseStream; on KServe, request /predictions/NAME of the predictor.",
)
QUEUE = Code(
    "export-queue",
    "The archive limits the number of waiting requests; the platform's front end has its own queue and timeout.",
    "Also set the platform's concurrency and timeout.",
)
METRICS = Code(
    "export-metrics",
    "The handler counts its own metrics, which the server offers on port 8082, where SageMaker does not read them.",
    "Log the values instead.",
)
SLOW = Code(
    "export-slow-answers",
    "SageMaker ends a request of a real-time endpoint after 60 s, whatever the archive's responseTimeout says.",
    "Use an asynchronous endpoint, or make responses faster.",
)
BATCHES = Code(
    "export-batches",
    "KServe's envelopes answer the first request of a batch only, so the export serves batches of one.",
    "Let requests carry several instances, or export with --to docker and send requests in TorchServe's form.",
)
OWN_ENVELOPE = Code(
    "export-own-envelope",
    "The archive's own envelope replaces KServe's; requests and responses have its form in both protocols.",
    "Build the archive without the envelope.",
)
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
        yield NEEDS_TRUST.warning("its pickles need --trust-pickle, which the exported server does not have", where)
    for line in export.requirements.left_out:
        yield REQUIREMENT_LEFT_OUT.warning(f"'{line}' is not installed there", f"{where}!{export.requirements.file}")
    for wheel in export.foreign:
        yield VENDORED.warning(f"{wheel} is not for Python {version}, the image's", where)
    config = export.config
    wants_gpu = str(config.get("deviceType")).lower() == "gpu" or any(config.get(key) for key in _GPU_KEYS)
    if wants_gpu and export.options.device == "cpu":
        yield NO_GPU.warning("its model config requires GPUs", where)
    if export.image is not None and export.image.lock is None:
        yield UNHASHED.warning(f"its requirements have no hashes: {export.image.unlocked}", where)


def _http_findings(export: Export) -> Iterator[Finding]:
    """Yield the features that reach no client through another HTTP server than marpack's."""
    where = str(export.archive)
    if export.used & _SETS_STATUS:
        yield REASON_PHRASE.note("its handler sets a status; clients do not get its reason phrase", where)
    if export.used & _STREAMS:
        yield STREAMING.warning("its handler streams; clients get the response in one piece", where)


def _front_end_findings(export: Export) -> Iterator[Finding]:
    """Yield the features that a platform's front end does not pass on."""
    yield from _http_findings(export)
    if "jobQueueSize" in export.config:
        message = f"its jobQueueSize of {export.settings.queue_size} is not the only queue there"
        yield QUEUE.note(message, str(export.archive))


def kserve_findings(export: Export) -> Iterator[Finding]:
    """Yield the features that KServe does not support."""
    yield from _front_end_findings(export)
    where = str(export.archive)
    if export.envelope:
        yield OWN_ENVELOPE.warning(f"it keeps its own envelope '{export.envelope}'", where)
    elif export.settings.batch_size > 1:
        yield BATCHES.warning(f"its batchSize of {export.settings.batch_size} becomes 1", where)
    yield from _placeholders(export, "image", "storage_uri")


def sagemaker_findings(export: Export) -> Iterator[Finding]:
    """Yield the features that SageMaker does not support."""
    yield from _front_end_findings(export)
    where, seconds = str(export.archive), export.settings.response_timeout
    if export.used & _SETS_HEADERS:
        yield HEADERS.warning("its handler sets response headers, most of which clients do not get", where)
    if export.used & _COUNTS_METRICS:
        yield METRICS.note("its handler counts metrics that SageMaker does not read", where)
    if "responseTimeout" in export.config and seconds > _MAX_SAGEMAKER_RESPONSE:
        yield SLOW.note(f"its batches may take {seconds} s, and requests end after {_MAX_SAGEMAKER_RESPONSE} s", where)
    yield from _placeholders(export, "image", "storage_uri", "role")


def ray_serve_findings(export: Export) -> Iterator[Finding]:
    """Yield the features that Ray Serve does not support."""
    where = str(export.archive)
    yield from _http_findings(export)
    if export.used & _READS_HEADERS:
        yield REQUEST_HEADERS.note("its handler reads request headers, some of which do not arrive", where)
    if export.used & _SETS_HEADERS:
        hint = "put what clients behind SageMaker need into the body"
        yield HEADERS.note("its handler sets response headers, which AWS's containers drop", where, hint)
    if export.used & _COUNTS_METRICS:
        hint = "count them in deployment.py, with ray.util.metrics"
        yield METRICS.note("its handler counts metrics, which Ray Serve does not offer", where, hint)


def _placeholders(export: Export, *names: str) -> Iterator[Finding]:
    """Yield the options with placeholders that are missing."""
    missing = [NAMES[name] for name in names if getattr(export.options, name) is None]
    if missing:
        hint = f"pass {', '.join(missing)}; or edit the files"
        yield PLACEHOLDER.note("replace the placeholders in the files", str(export.archive), hint)
