"""docs/reference/serve-differences.md: the differences between marpack serve and TorchServe."""

from enum import Enum

from tools.reference.page import NOTE, page


class ServerDifference(Enum):
    """One point of difference: (what, the original, marpack serve, why), and whether the option brings it back.

    What is safety is never brought back.
    """

    PING = (
        "`/ping`",
        "200 while models load, after a crash, and as long as a lost worker is tried again (300 s)",
        "200 once every model has loaded, 500 while one has no living worker",
        "a load balancer sends requests where they would fail",
        True,
    )
    DRAIN = (
        "SIGTERM",
        "running and queued requests are reset",
        "no more is accepted, what was is answered within `--drain` (30 s), exit code 0",
        "every rollout fails requests",
        True,
    )
    CLOSE_HONOURED = (
        "`Connection: close` and HTTP/1.0",
        "ignored: the connection stays open; a stream is chunked for HTTP/1.0, too",
        "the connection is closed, a stream for HTTP/1.0 ends with it",
        "such clients wait for an end that does not come",
    )
    KEPT_TOO_LONG = (
        "connections that are silent, or send or read too slowly",
        "kept for ever, in any number",
        "closed in time; `--max-connections` bounds their number",
        "a few slow clients take the server away from all others",
    )
    CLIENT_GONE = (
        "a client that goes away",
        "its request is answered by the handler all the same",
        "its request leaves the queue",
        "a queue of requests that nobody waits for delays those that somebody does",
    )
    GIVEN_UP = (
        "a model whose workers were given up",
        "500 Worker died., or no answer at all",
        "503 at once, as for a model without workers",
        "clients hang",
    )
    ANSWERED_LATE = (
        "an answer later than `clientTimeoutInMills`",
        "the client is left without any",
        "500 Worker died. once that time is over",
        "clients hang",
    )
    LOST_ANSWERS = (
        "answers that the original loses (under asyncCommunication, and streams that end before they began)",
        "none, however long the client waits",
        "500 Worker died., or a reset where a stream was announced",
        "clients hang",
    )
    ONE_WORKER = (
        "workers of a model whose number nobody set",
        "as many as there are GPUs, else cores",
        "one",
        "each has its own copy of the model: memory for a dozen where one was asked for",
    )
    METRICS_SHOWN = (
        "`/metrics` where no `metrics_mode` is set",
        "200 with an empty body: metrics go to a log file",
        "Prometheus' text",
        "nobody who scrapes it wants nothing",
    )
    LOGS = (
        "logs",
        "six files below logs/, in lines of log4j's",
        "stderr, as text or, with `--log-format json`, an object a line with id, status and milliseconds",
        "containers collect stderr; an id finds a request again",
    )
    SNAPSHOTS = (
        "what the management API has changed",
        "is kept in logs/config, and brought back by the next start without a config file",
        "lasts as long as the server",
        "a start line says all that is served",
    )
    SNAPSHOT_MODELS = (
        "a model that comes from `model_snapshot`",
        "`/invocations` has to name it, though it is the only one: it does not count as loaded at the start",
        "it counts as any other that is served from the start",
        "it makes no difference to a client where the name of a model stood",
    )
    DOCUMENTS = (
        "the OpenAPI documents",
        "a fixed one; that of a model has `/prediction/M`, which is no route",
        "made from the routes that there are, for the models that are served",
        "clients are generated from them",
    )
    VAIN_WAITS = (
        "a handler that waits for what cannot come: for stdin, for a stage of MicroBatching that has raised",
        "500 Worker died. once `responseTimeout` is over (120 s)",
        "500 Worker died. at once",
        "all others wait for the same worker",
    )
    KSERVE = (
        "KServe's `/v1/models`, `/v1/models/M`, `/v2/models/M` and what is below it (ready, versions)",
        "404",
        "readiness, and what is known of a model",
        "KServe's clients ask for them first",
        True,
    )
    KSERVE_SERVER = (
        "KServe's `/v2` and `/v2/health/…`",
        "404 without `ts_open_inference_protocol=true`; ready whatever the models are",
        "there always; ready once every model is",
        "KServe's clients ask for them first",
        True,
    )
    CLOSED_MANAGEMENT = (
        "the management port where nothing asks for it",
        "8081, though nothing can be registered there",
        "none: `--management-port`, `--enable-model-api` or the config's `management_address` asks for it",
        "who reaches it changes what is served",
    )
    STORE_ONLY = (
        "registering a model",
        "from any URL, and from any folder of the machine",
        "by its bare name in the model store",
        "who reaches the port has code of theirs run",
    )
    STRANGERS = (
        "management and the page's calls from other sites' pages",
        "answered",
        "403 for a Host that is not the server's and an Origin that is not its own",
        "any page that an operator looks at reaches ports on the loopback",
    )
    OPEN_MANAGEMENT = (
        "a management address that other machines reach, without tokens, as container images have it",
        "listens there",
        "listens on 127.0.0.1; none where predictions have the same port. A line says so; `--token FILE` opens it",
        "who reaches it changes what is served",
    )
    UNSET_TOKENS = (
        "tokens where nothing asks for them",
        "on, in a key_file.json in the working directory",
        "off: `--token FILE` asks for them, and a config that does needs it",
        "on the loopback, clients of years fail for want of a key that nobody made for them",
    )
    TOKEN_STATUS = (
        "a token that is missing, wrong or too old",
        "400",
        "401 without one, 403 with another",
        "clients ask for a new token where they are told that it is the token",
        True,
    )
    UNKNOWN_METHODS = (
        "methods that no standard has",
        "taken for a POST",
        "400",
        "nobody sends them to be answered",
    )
    STRICT_HTTP = (
        "requests that HTTP forbids: no Host or two, a length beside chunks, folded headers, bare line feeds",
        "answered",
        "400, and the connection ends",
        "a proxy may read them in another way: that smuggles requests past it",
    )
    REFUSED_UNREAD = (
        "a request refused before its body has come (with `Expect`: 413, 417)",
        "the connection stays open",
        "the connection ends",
        "what comes next on it may be that body",
    )
    SENDABLE_HEADERS = (
        "headers of a handler with control characters, and a body under status 101",
        "sent",
        "left out",
        "HTTP forbids them: proxies answer 502",
    )

    def __init__(self, what: str, original: str, ours: str, why: str, brought_back: bool = False) -> None:
        self.what = what
        self.original = original
        self.ours = ours
        self.why = why
        self.brought_back = brought_back


def server_differences() -> str:
    """Return every point in which marpack serve differs from the original server."""
    return page(
        "# `marpack serve` and TorchServe",
        "A TorchServe's clients, its start line, its config.properties and its model store find the same server:"
        " routes, statuses, bodies, headers and batches are those of TorchServe 0.12. Where the original harms whoever"
        " runs it, `marpack serve` does better. These are all the differences.",
        "`--compat torchserve` brings some of them back, for clients that depend on them; never one that is safety.",
        _table(),
        "How the rest was compared with a real server is told in [Conformance](../conformance.md). " + NOTE,
    )


def _table() -> str:
    rows = (
        f"| {each.what} | {each.original} | {each.ours} | {each.why} | {'back' if each.brought_back else ''} |"
        for each in ServerDifference
    )
    return "\n".join(("| | TorchServe 0.12 | `marpack serve` | why | `--compat` |\n|---|---|---|---|---|", *rows))
