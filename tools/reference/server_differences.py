"""docs/reference/serve-differences.md: the differences between marpack serve and TorchServe."""

from enum import Enum

from tools.reference.page import NOTE, page


class ServerDifference(Enum):
    """One difference: (behavior, TorchServe, marpack serve, reason), and whether `--compat torchserve` restores it.

    The option never restores behavior that is unsafe.
    """

    PING = (
        "`/ping`",
        "200 while models load, after a crash, and while a dead worker is being restarted (300 s)",
        "200 when every model is loaded, 500 while a model has no working worker",
        "otherwise a load balancer sends requests that fail",
        True,
    )
    DRAIN = (
        "SIGTERM",
        "resets running and queued requests",
        "refuses new requests and responds to accepted ones within `--drain` (30 s); exit code 0",
        "otherwise every rollout fails requests",
        True,
    )
    UNREGISTER = (
        "unregistering a model",
        "its running and queued requests get no response",
        "they get their responses within `unregister_model_timeout` (120 s)",
        "otherwise every new version fails requests",
    )
    CLOSE_HONOURED = (
        "`Connection: close` and HTTP/1.0",
        "ignored: the connection stays open; a stream is also chunked for HTTP/1.0",
        "closes the connection; a stream for HTTP/1.0 ends with it",
        "otherwise such clients wait for the end of the connection",
    )
    KEPT_TOO_LONG = (
        "idle connections, and clients that send or read too slowly",
        "kept without limit",
        "closed after a timeout; `--max-connections` limits their number",
        "otherwise a few slow clients block the server",
    )
    CLIENT_GONE = (
        "a client that disconnects",
        "the handler still runs its request",
        "its request leaves the queue",
        "abandoned requests delay all others",
    )
    GIVEN_UP = (
        "a model whose workers cannot be restarted",
        "500 Worker died., or no response",
        "503 immediately, as for a model without workers",
        "otherwise clients hang",
    )
    ANSWERED_LATE = (
        "a response later than `clientTimeoutInMills`",
        "the client gets no response",
        "500 Worker died. after that time",
        "otherwise clients hang",
    )
    LOST_ANSWERS = (
        "responses that TorchServe loses (with `asyncCommunication`, and streams that end before their first chunk)",
        "none, however long the client waits",
        "500 Worker died., or a reset if a stream was announced",
        "otherwise clients hang",
    )
    ONE_WORKER = (
        "default number of workers of a model",
        "the number of GPUs, otherwise of cores",
        "one",
        "each worker has its own copy of the model in memory",
    )
    METRICS_SHOWN = (
        "`/metrics` without `metrics_mode`",
        "200 with an empty body: metrics go to a log file",
        "Prometheus' text",
        "a scraper needs the metrics",
    )
    LOGS = (
        "logs",
        "six files in `logs/`, in log4j's format",
        "stderr, as text or JSON (`--log-format json`)",
        "containers collect stderr",
    )
    SNAPSHOTS = (
        "changes by the management API",
        "stored in `logs/config` and restored by the next start without a config file",
        "lost when the server ends",
        "the command line determines the served models",
    )
    SNAPSHOT_MODELS = (
        "a model from `model_snapshot`",
        "`/invocations` must name it even if it is the only one",
        "treated like other models that are loaded at the start",
        "clients do not see where a model was configured",
    )
    DOCUMENTS = (
        "OpenAPI documents",
        "fixed; a model's document has the wrong path `/prediction/M`",
        "generated from the routes and the served models",
        "clients are generated from them",
    )
    VAIN_WAITS = (
        "a handler that waits for stdin, or for a failed stage of `MicroBatching`",
        "500 Worker died. after `responseTimeout` (120 s)",
        "500 Worker died. immediately",
        "other requests wait for the same worker",
    )
    KSERVE = (
        "KServe's `/v1/models`, `/v1/models/M`, `/v2/models/M` and its subpaths (ready, versions)",
        "404",
        "readiness and metadata of the model",
        "KServe's clients request them first",
        True,
    )
    KSERVE_SERVER = (
        "KServe's `/v2` and `/v2/health/…`",
        "404 without `ts_open_inference_protocol=true`; otherwise always ready",
        "always available; ready when every model is ready",
        "KServe's clients request them first",
        True,
    )
    ROOT = (
        "`GET /` on the inference port",
        "405",
        "the page for a browser; for other clients, the server's name and version and the models' names",
        "a client sees which server it has reached",
        True,
    )
    CLOSED_MANAGEMENT = (
        "management port by default",
        "8081, without registration",
        "off; `--management-port`, `--enable-model-api` or `management_address` in the config enables it",
        "everyone who reaches it can change the served models",
    )
    STORE_ONLY = (
        "registering a model",
        "from any URL and any folder of the machine",
        "by its name in the store or its path below `--store-root`; from a URL only with `--allow-remote-register`",
        "otherwise everyone who reaches the port can run code",
    )
    STORE_LINKS = (
        "a link of the model store",
        "followed",
        "followed within the store and `--store-root` folders; otherwise left out at the start, 404 on registration",
        "otherwise writers of the store can load any file of the machine",
    )
    UNKNOWN_HANDLER = (
        "registering with a `handler` that is neither built in nor in the archive",
        "200 without workers, otherwise 500",
        "400",
        "the error is found before the model is registered",
    )
    REMOTE_FILES = (
        "the file of a model that was registered from a URL",
        "copied into the model store, and deleted with the model",
        "kept in the cache",
        "the store changes only by its owner",
    )
    ZERO_TIMEOUT = (
        "registering with `startup_timeout=0`",
        "500, and the model stays registered without workers",
        "counts as missing",
        "no model loads in 0 seconds",
    )
    NEGATIVE_WORKERS = (
        "scaling with `min_worker=-1`",
        "500 IndexOutOfBoundsException, and the model loses its workers",
        "400",
        "a mistake does not change the model",
    )
    STRANGERS = (
        "management and page requests from other sites",
        "accepted",
        "403 for a Host or an Origin other than the server's own",
        "every page in an operator's browser can reach loopback ports",
    )
    OPEN_MANAGEMENT = (
        "a public management address without tokens",
        "listens there",
        "listens on 127.0.0.1, or is off if predictions have the same port; `--token` or `--open-management` opens it",
        "everyone who reaches it can change the served models",
    )
    UNSET_TOKENS = (
        "tokens by default",
        "on, in `key_file.json` in the working directory",
        "off; `--token FILE` enables them, and a config that requires tokens needs it",
        "existing clients on the loopback address have no token",
    )
    TOKEN_STATUS = (
        "a missing, wrong or expired token",
        "400",
        "401 for a missing token, 403 for another one",
        "clients request a new token for these statuses",
        True,
    )
    UNKNOWN_METHODS = (
        "unknown HTTP methods",
        "handled like POST",
        "400",
        "no client needs them",
    )
    STRICT_HTTP = (
        "requests that violate HTTP: no Host or two, a length with chunks, folded headers, bare line feeds",
        "accepted",
        "400, and the connection is closed",
        "a proxy can read them differently (request smuggling)",
    )
    REFUSED_UNREAD = (
        "a request that is refused before its body arrives (with `Expect`: 413, 417)",
        "the connection stays open",
        "the connection is closed",
        "the body could be read as the next request",
    )
    SENDABLE_HEADERS = (
        "handler headers with control characters, and a body with status 101",
        "sent",
        "not sent",
        "HTTP forbids them, and proxies respond with 502",
    )
    GRPC_OFF = (
        "gRPC by default",
        "on, on 7070 for inference and on 7071 for management",
        "off; `--grpc-port`, `grpc_inference_port` or `grpc_inference_address` enables inference; no management",
        "most clients use HTTP, and gRPC needs `marpack[grpc]`",
    )
    GRPC_KSERVE = (
        "gRPC services",
        "`GRPCInferenceService` with `ts_open_inference_protocol=true`, without `ServerMetadata`",
        "always, also in the package `inference`; also health and reflection, which need no token",
        "clients of KServe and Triton, and probes, call them",
    )
    GRPC_SEQUENCES = (
        "gRPC `StreamPredictions2`",
        "sequences of requests",
        "UNIMPLEMENTED",
        "sequences are not supported",
    )
    GRPC_STREAMS = (
        "gRPC `StreamPredictions` of a handler that does not stream; `Predictions` of one that does",
        "the worker dies after the response; the first piece, and the worker hangs",
        "the response; all pieces together",
        "otherwise other requests wait for the worker",
    )
    GRPC_TENSORS = (
        "gRPC `ModelInfer` with `raw_input_contents`, or with elements that contradict the datatype",
        "ignored: the handler gets no data",
        "decoded, and the response is raw as well; INVALID_ARGUMENT",
        "Triton's client sends raw tensors",
    )
    GRPC_TOO_LARGE = (
        "gRPC requests above `max_request_size`",
        "CANCELLED",
        "RESOURCE_EXHAUSTED",
        "clients see the cause",
    )
    GRPC_413 = (
        "`PredictionException` with code 413 over gRPC",
        "RESOURCE_EXHAUSTED",
        "INTERNAL, as for 507",
        "over HTTP, it is 507 on both",
    )

    def __init__(self, behavior: str, original: str, ours: str, reason: str, is_restored: bool = False) -> None:
        self.behavior = behavior
        self.original = original
        self.ours = ours
        self.reason = reason
        self.is_restored = is_restored


def server_differences() -> str:
    """Return every difference between marpack serve and TorchServe."""
    return page(
        "# `marpack serve` and TorchServe",
        "Before you replace a TorchServe, check this table: it lists all differences of `marpack serve`. Routes,"
        " statuses, bodies, headers, batches, command line, config.properties and model store are those of TorchServe"
        " 0.12. `--compat torchserve` restores TorchServe's behavior in rows that are marked with (\\*).",
        _table(),
        "[Conformance](../conformance.md) describes the comparison with a real server. " + NOTE,
    )


def _table() -> str:
    rows = ["| behavior | TorchServe 0.12 | `marpack serve` | reason |", "|---|---|---|---|"]
    for each in ServerDifference:
        ours = f"{each.ours} (\\*)" if each.is_restored else each.ours
        rows.append(f"| {each.behavior} | {each.original} | {ours} | {each.reason} |")
    return "\n".join(rows)
