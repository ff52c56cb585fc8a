"""What of an archive does not carry over, as findings; each target adds its own."""

import sys
from collections.abc import Iterator

from marpack.exporting.plan import Export
from marpack.findings import Finding
from marpack.inspection.lint.codes import Code

NEEDS_TRUST = Code(
    "export-needs-trust",
    "The archive's pickles load only for those who trust their maker as they trust code; the export does not.",
    "Save a state_dict or safetensors; or say it where the server is started: --trust-pickle.",
)
REQUIREMENT_LEFT_OUT = Code(
    "export-requirement-left-out",
    "A line of requirements.txt names a file of the archive, or an option of pip's, and stays behind.",
    "Name the package and its version, from an index that is reached there.",
)
VENDORED = Code(
    "export-vendored",
    "A package that the archive brings along has native code for another Python than the image's.",
    "Vendor for the Python that exports, in a copy of the project: marpack build --vendor --vendor-python X.Y.",
)
NO_GPU = Code(
    "export-no-gpu",
    "The model config asks for GPUs, and what is exported has a torch that knows none.",
    "Export for GPUs: --device cuda.",
)
PLACEHOLDER = Code(
    "export-placeholder",
    "A name that only you know stands in the files as a placeholder.",
    "Give it, or edit the files.",
)
REASON_PHRASE = Code(
    "export-reason-phrase",
    "The handler sets a status; its code arrives, but the platform's front replaces a reason phrase by the usual one.",
    "Put the reason into the body.",
)
HEADERS = Code(
    "export-response-headers",
    "The handler sets response headers; SageMaker hands on the content type and X-Amzn-SageMaker-Custom-Attributes.",
    "Put what clients need into the body, or into that one header.",
)
STREAMING = Code(
    "export-streaming",
    "The handler streams its answers; clients of this platform get them whole, if at all.",
    "On SageMaker, call InvokeEndpointWithResponseStream; on KServe, ask /predictions/NAME of the predictor itself.",
)
QUEUE = Code(
    "export-queue",
    "The archive bounds how many requests wait; what stands in front has a queue and a time limit of its own.",
    "Set the platform's concurrency and time limits, too.",
)
METRICS = Code(
    "export-metrics",
    "The handler counts metrics of its own, which the server offers on port 8082, where SageMaker asks nobody.",
    "Log what has to be counted there.",
)
_STATUS = frozenset({"set_response_status", "set_all_response_status"})
SETS_HEADERS = frozenset({"set_response_header", "set_response_headers"})
_STREAMS = frozenset({"send_intermediate_predict_response"})
COUNTS_METRICS = frozenset(
    {"add_counter", "add_time", "add_size", "add_percent", "add_error", "add_metric", "get_metric"}
)
_GPU_KEYS = ("deviceIds", "parallelType", "torchrun")
OPTIONS = {"image": "--image", "storage_uri": "--storage-uri", "role": "--role"}  # that stand for names


def common_findings(export: Export) -> Iterator[Finding]:
    """Yield what carries over nowhere."""
    where, version = str(export.archive), "{}.{}".format(*sys.version_info)
    if export.needs_trust:
        yield NEEDS_TRUST.warning("its pickles ask for trust, and the exported server gives none", where)
    for line in export.requirements.left_out:
        yield REQUIREMENT_LEFT_OUT.warning(f"'{line}' is not installed there", f"{where}!{export.requirements.file}")
    for wheel in export.foreign:
        yield VENDORED.warning(f"{wheel} is not for Python {version}, which runs it there", where)
    config = export.config
    wants_gpu = str(config.get("deviceType")).lower() == "gpu" or any(config.get(key) for key in _GPU_KEYS)
    if wants_gpu and export.options.device == "cpu":
        yield NO_GPU.warning("its model config asks for GPUs", where)


def handler_findings(export: Export) -> Iterator[Finding]:
    """Yield what of a handler's doing reaches no client, whichever HTTP server is not marpack's."""
    where = str(export.archive)
    if export.used & _STATUS:
        yield REASON_PHRASE.note("its handler sets a status, whose reason phrase does not arrive", where)
    if export.used & _STREAMS:
        yield STREAMING.warning("its handler streams, and answers arrive whole", where)


def front_findings(export: Export) -> Iterator[Finding]:
    """Yield what does not pass a platform's front."""
    where = str(export.archive)
    yield from handler_findings(export)
    if "jobQueueSize" in export.config:
        yield QUEUE.note(f"its jobQueueSize of {export.settings.queue_size} is not the only queue there", where)


def sagemaker_findings(export: Export) -> Iterator[Finding]:
    """Yield what does not pass SageMaker's front."""
    where = str(export.archive)
    yield from front_findings(export)
    if export.used & SETS_HEADERS:
        yield HEADERS.warning("its handler sets response headers, most of which do not arrive", where)
    if export.used & COUNTS_METRICS:
        yield METRICS.note("its handler counts metrics that SageMaker does not fetch", where)


def placeholders(export: Export, *names: str) -> Iterator[Finding]:
    """Yield the options that stand for what only its user knows, as far as they are not given."""
    missing = [OPTIONS[name] for name in names if getattr(export.options, name) is None]
    if missing:
        message = "the files hold placeholders that have to be replaced"
        yield PLACEHOLDER.note(message, str(export.archive), f"give {', '.join(missing)}; or edit the files")
