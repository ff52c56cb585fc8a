"""Stand-ins: requests made up where nobody gave any. They show what fails, and prove nothing."""

import ast
import time
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import msgspec

from marpack.findings import Finding, Severity
from marpack.gate.candidate import Candidate
from marpack.inspection.lint.source import Broken, parse
from marpack.project.scaffold.proposal import channels_of, width_of
from marpack.project.scaffold.template import templates
from marpack.runner.inputs import Input
from marpack.runner.pool import LocalPool
from marpack.runner.results import Result
from marpack.torchserve.stock import BUILT_INS, BuiltIn
from marpack.weights.contents import WeightsSummary, read_contents
from marpack.weights.detect import recognize
from marpack.weights.kind import WeightsFormat

_HEAVY = 2 << 30  # bytes of weights: a further copy of them in memory may be one too many
_LARGEST_BATCH = 8
_NUMBERS = 1 << 18  # in one stand-in: a picture of 224 by 224 pixels fits
# What a module of this name talks to, by which a made-up request might leave something behind.
_OUTSIDE = {
    "the network": "aiohttp ftplib grpc http httpx paramiko requests socket telnetlib urllib urllib3"
    " websocket websockets",
    "a database": "MySQLdb asyncpg cassandra clickhouse_driver couchdb elasticsearch mysql neo4j peewee pinecone"
    " psycopg psycopg2 pymilvus pymongo pymysql qdrant_client redis snowflake sqlalchemy sqlite3 weaviate",
    "mail or messages": "confluent_kafka kafka pika smtplib twilio slack_sdk celery",
    "a cloud": "adlfs azure boto3 botocore gcsfs google minio oss2 s3fs",
}
_TALKS_TO = {module: what for what, modules in _OUTSIDE.items() for module in modules.split()}
# What a handler's sources speak of, by what it then takes; a picture that is opened is no text that is decoded.
_TRACES = {
    "picture": (b"Image.open", b"imdecode", b"imread", b"decode_image", b"decode_jpeg"),
    "numbers": (b".loads(", b"tensor(", b"asarray(", b"np.array(", b"from_dict("),
    "text": (b".decode(", b"okenizer"),
}


def withheld(candidate: Candidate) -> str | None:
    """Return why no stand-in should be sent on its own accord, as the end of a sentence; None if nothing forbids it."""
    modules = sorted({name for source in candidate.sources.values() for name in _imported(source)} & _TALKS_TO.keys())
    if modules:
        return f"the handler imports {modules[0]}, and may reach {_TALKS_TO[modules[0]]}"
    if sum(weights.bytes for weights in candidate.inspection.weights) > _HEAVY:
        return f"the weights are over {_HEAVY >> 30} GB"
    return None


def _imported(source: bytes) -> Iterator[str]:
    """Yield the top-level names that a module imports, wherever in it."""
    tree = parse(source)
    for node in () if isinstance(tree, Broken) else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def stand_ins(candidate: Candidate) -> tuple[Input, ...]:
    """Return three requests at most, of the kinds that the handler seems to take: a picture, a JSON list, a text."""
    contents = _contents(candidate)
    made = {
        "picture": ("a picture", "image/png", _picture(contents)),
        "numbers": ("a JSON list", "application/json", msgspec.json.encode(_numbers(contents))),
        "text": ("a text", "text/plain", b"a text to stand in for one"),
    }
    kinds = [made[kind] for kind in _taken(candidate, contents)]
    return tuple(
        candidate.options.shape.input(name, number, content_type, body)
        for number, (name, content_type, body) in enumerate(kinds)
    )


def _taken(candidate: Candidate, contents: WeightsSummary | None) -> list[str]:
    """Return the kinds of requests that fit what is known; those that fit most handlers where nothing is."""
    row = _built_in(candidate)
    if row is not None and (row.pictures or row.name.startswith("text")):
        return ["picture" if row.pictures else "text"]
    sources = candidate.sources.values()
    found = [kind for kind, traces in _TRACES.items() if any(trace in source for source in sources for trace in traces)]
    if not found and contents is not None and channels_of(contents) in (1, 3):
        return ["picture"]
    return [kind for kind in found if kind != "text" or "picture" not in found] or ["numbers", "text"]


def _built_in(candidate: Candidate) -> BuiltIn | None:
    """Return the server's handler that this one is, or is made from."""
    bases = {base.rpartition(".")[2] for base in candidate.inspection.handler.bases}
    name = candidate.archive.manifest.model.handler
    return BUILT_INS.get(name) or next((row for row in BUILT_INS.values() if row.cls in bases), None)


def _contents(candidate: Candidate) -> WeightsSummary | None:
    """Return what the headers of the weights say."""
    name = candidate.archive.manifest.model.serialized_file
    if name is None or name not in candidate.archive.entries:
        return None
    with candidate.archive.open(name) as file:
        found = recognize(file)
        return None if found.kind is WeightsFormat.UNKNOWN else read_contents(file, found)


def _picture(contents: WeightsSummary | None) -> bytes:
    gray = contents is not None and channels_of(contents) == 1
    return (templates() / "init" / ("gray.png" if gray else "red.png")).read_bytes()


def _numbers(contents: WeightsSummary | None) -> Any:  # Any: JSON
    """Return one row of what the model says it takes: nested lists by its first input's shape, else by its width."""
    ports = [port.shape for port in contents.inputs if port.shape] if contents else []
    shape = [size if isinstance(size, int) and size > 0 else 1 for size in ports[0][1:]] if ports else []
    value: Any = 0.5  # Any: as above
    total = 1
    for size in reversed(shape or [(contents and width_of(contents)) or 4]):
        total *= size
        value = list(repeat(value, size if total <= _NUMBERS else 1))
    return value


def send(candidate: Candidate, inputs: tuple[Input, ...]) -> Iterator[Finding]:
    """Send stand-ins alone and in batches, in a worker of their own, and yield what came of each.

    Raises LoadError and WorkerError if that worker cannot be started, or not again.
    """
    sample_runner = candidate.sample_runner
    end = time.monotonic() + sample_runner.seconds_per_check
    with sample_runner.other(timeout=sample_runner.seconds_per_check) as pool:
        for each in inputs:
            if time.monotonic() > end:
                return
            yield _outcome(candidate, pool, each)


def _outcome(candidate: Candidate, pool: LocalPool, each: Input) -> Finding:
    """Return how far a stand-in gets: to the first batch that is not answered."""
    answered = []
    for size in sorted({1, min(2, candidate.batch_size), min(_LARGEST_BATCH, candidate.batch_size)}):
        way = "alone" if size == 1 else f"in a batch of {size}"
        results = candidate.sample_runner.send([(each.name, each.request)] * size, size=size, pool=pool)
        short = next((result for result in results if not result.ok), None)
        if short is not None:
            return _failure(candidate, f"{each.name}, made up and sent {way}, gets {short.status}", short)
        answered.append(way)
    message = f"{each.name}, made up, is answered {' and '.join(answered)}"
    return Finding(code="stand-in-answered", severity=Severity.NOTE, message=message)


def _failure(candidate: Candidate, message: str, result: Result) -> Finding:
    """Return a failure with the handler's own traceback on one line, outermost call first."""
    trouble = result.troubles[0] if result.troubles else None
    if trouble is None:
        return Finding(code="stand-in-failed", severity=Severity.WARNING, message=message)
    frames = [frame for frame in trouble.frames if frame.user]
    calls = " > ".join(f"{frame.function}:{frame.line}" for frame in frames)
    return Finding(
        code="stand-in-failed",
        severity=Severity.WARNING,
        message=f"{message}: {trouble.kind}: {trouble.message}{f' ({calls})' if calls else ''}",
        where=candidate.place(trouble.frames),
        hint=trouble.hint,
    )
