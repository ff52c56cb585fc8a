"""The check `proved`: real requests get the expected status, one of them a 2xx, alone and in a batch.

Without requests, stand-ins are made up. They show failures, and prove nothing.
"""

import ast
import shlex
import time
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from marpack import finding_codes as codes
from marpack.errors import MarpackError, pluralize
from marpack.findings import Finding, Severity
from marpack.gate.candidate import Candidate
from marpack.gate.compare import find_status_shortfalls
from marpack.gate.verdicts import CheckOutcome, append_cause, judge, problem_of
from marpack.inspection.lint.source import MAX_SOURCE, Broken, parse
from marpack.project.scaffold.proposal import channels_of, width_of
from marpack.project.scaffold.template import templates
from marpack.runner.inputs import Input
from marpack.runner.pool import LocalPool
from marpack.runner.session import sequence_warning
from marpack.torchserve.server_modules import BUILT_INS
from marpack.weights.contents import read_contents, recognize
from marpack.weights.kind import WeightsFormat
from marpack.weights.tensors import WeightsSummary

# Code of a finding → the name by which --allow-unproved waives it.
_WAIVERS = {"no-inputs": "inputs", "no-answer": "inputs", "generated-sample": "inputs", "gpu-unproved": "gpu"}

_HEAVY = 2 << 30  # bytes of weights: another copy of them may be too much for the memory
_LARGEST_BATCH = 8
_NUMBERS = 1 << 18  # in one stand-in: a picture of 224 by 224 pixels fits
# What a module of this name connects to, where a made-up request might change something.
_OUTSIDE = {
    "the network": "aiohttp ftplib grpc http httpx paramiko requests socket telnetlib urllib urllib3"
    " websocket websockets",
    "a database": "MySQLdb asyncpg cassandra clickhouse_driver couchdb elasticsearch mysql neo4j peewee pinecone"
    " psycopg psycopg2 pymilvus pymongo pymysql qdrant_client redis snowflake sqlalchemy sqlite3 weaviate",
    "mail or messages": "confluent_kafka kafka pika smtplib twilio slack_sdk celery",
    "a cloud": "adlfs azure boto3 botocore gcsfs google minio oss2 s3fs",
}
_CONNECTS_TO = {module: what for what, modules in _OUTSIDE.items() for module in modules.split()}
# Kind of input → what the source of a handler that takes it contains. An opened picture is not decoded as text.
_TRACES = {
    "picture": (b"Image.open", b"imdecode", b"imread", b"decode_image", b"decode_jpeg"),
    "numbers": (b".loads(", b"tensor(", b"asarray(", b"np.array(", b"from_dict("),
    "text": (b".decode(", b"okenizer"),
}


def check_proof(candidate: Candidate) -> CheckOutcome:
    """Count the responses; a problem that --allow-unproved names becomes a note, which the verdict mentions."""
    proving, batch_size = candidate.sample_runner.proving, candidate.batch_size
    found = [*_find_unproved(candidate), *(_send_pair(candidate) if proving and batch_size > 1 else ())]
    if str(candidate.config.get("deviceType", "")).lower() == "gpu" and candidate.options.load.gpu_id is None:
        found.append(codes.GPU_UNPROVED.at())
    warning = sequence_warning(candidate.config)
    if warning is not None:
        found.append(replace(warning, severity=Severity.ERROR))
    for number, finding in enumerate(found):
        waiver = _WAIVERS.get(finding.code)
        if waiver in candidate.options.allow_unproved:
            found[number] = codes.ALLOWED_UNPROVED.at(reason=finding.message, name=waiver)
    seen = [f"{pluralize(len(proving), 'request')} got a 2xx"]
    if proving and batch_size > 1:
        seen.append("a batch of 2 also")
    differing = _compare_with_cpu(candidate)
    if differing is not None:
        seen.append(f"compared with the CPU, tolerance {candidate.options.tolerance:g}")
    return judge(", ".join(seen), (*found, *(differing or ()), *_try_stand_ins(candidate)))


def _find_unproved(candidate: Candidate) -> Iterator[Finding]:
    """Yield why the responses to the samples prove nothing."""
    runner, unsent = candidate.sample_runner, len(candidate.packed.problems)
    total = len(runner.samples) + unsent
    missed = unsent + sum(
        bool(find_status_shortfalls(sample.expected.status, runner.result_of(sample))) for sample in runner.samples
    )
    name = shlex.quote(str(candidate.resolved.project.folder if candidate.resolved.project else candidate.source))
    hint = f"Name an input, or record one as a sample: marpack run {name} --input FILE --record"
    if not total:
        yield codes.NO_INPUTS.at(hint=hint)
    elif missed:
        yield codes.UNEXPECTED_STATUS.at(missed=missed, requests=pluralize(total, "request"))
    elif not runner.successful:
        yield codes.NO_ANSWER.at(hint=hint)
    elif not runner.proving:
        names = ", ".join(sample.short_name for sample in runner.successful)
        yield codes.GENERATED_SAMPLE.at(names=names, command=f"marpack run {name} --input FILE --record")


def _send_pair(candidate: Candidate) -> Iterator[Finding]:
    """Send one batch of two; the check of batches tries more sizes, and compares the responses."""
    pair = candidate.sample_runner.proving[:2]
    results = candidate.sample_runner.replay(pair * (3 - len(pair)), size=2)
    refused = next((result for result in results if not result.ok), None)
    if refused is not None:
        yield codes.BATCH_UNPROVED.at(status=refused.status, reason=append_cause(refused.troubles))
    elif len(pair) == 1:
        yield codes.ONE_INPUT.at()


def _compare_with_cpu(candidate: Candidate) -> list[Finding] | None:
    """Return where the CPU responds otherwise than a GPU did; None without a GPU, or if the model needs it."""
    runner = candidate.sample_runner
    if runner.loaded is None or runner.loaded.device in (None, "cpu") or not runner.successful:
        return None
    try:
        with runner.other(gpu_id=None) as on_cpu:
            results = runner.replay(runner.comparable, pool=on_cpu)
    except MarpackError:
        return None
    return [
        codes.CPU_DIFFERS.at(sample=sample.short_name, difference=sentence, tolerance=candidate.options.tolerance)
        for sample, sentence in runner.deviations(runner.comparable, results)
    ]


def _try_stand_ins(candidate: Candidate) -> Iterator[Finding]:
    """Without samples and inputs, send stand-ins in a worker of their own, and yield the results."""
    if not candidate.uses_stand_ins:
        return
    why = find_stand_in_risk(candidate) if candidate.stand_ins is None else None
    if why is not None:
        yield codes.NO_STAND_IN.at(reason=why)
        return
    inputs = make_stand_ins(candidate)
    names = " and ".join(each.name for each in inputs)
    candidate.options.announce(f"no input was given, so {names} will be made up (--stand-ins off sends none)")
    seconds = candidate.sample_runner.seconds_per_check
    end = time.monotonic() + seconds
    try:
        with candidate.sample_runner.other(timeout=seconds) as pool:
            for each in inputs:
                if time.monotonic() > end:
                    return
                yield _send_stand_in(candidate, pool, each)
    except MarpackError as error:
        yield replace(problem_of(error), severity=Severity.WARNING)


def find_stand_in_risk(candidate: Candidate) -> str | None:
    """Return why no stand-in should be sent by default, as the end of a sentence; None if nothing speaks against it."""
    imported = set()
    for name, entry in candidate.archive.entries.items():
        if not name.endswith(".py"):
            continue
        tree = parse(candidate.read(name)) if entry.size <= MAX_SOURCE else Broken("it is too large", certain=False)
        if isinstance(tree, Broken) and not tree.certain:
            return f"{name} was not read, and may connect to anything"
        for node in () if isinstance(tree, Broken) else ast.walk(tree):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.partition(".")[0])
    modules = sorted(imported & _CONNECTS_TO.keys())
    if modules:
        return f"the handler imports {modules[0]}, and may connect to {_CONNECTS_TO[modules[0]]}"
    if sum(weights.bytes for weights in candidate.inspection.weights) > _HEAVY:
        return f"the weights are over {_HEAVY >> 30} GB"
    return None


def make_stand_ins(candidate: Candidate) -> tuple[Input, ...]:
    """Return three requests at most, of the kinds that the handler seems to take: a picture, a JSON list, a text."""
    contents = None  # what the headers of the weights contain
    weights = candidate.archive.manifest.model.serialized_file
    if weights is not None and weights in candidate.archive.entries:
        with candidate.archive.open(weights) as file:
            found = recognize(file)
            contents = None if found.kind is WeightsFormat.UNKNOWN else read_contents(file, found)
    channels = channels_of(contents) if contents else None
    picture = templates() / "init" / ("gray.png" if channels == 1 else "red.png")
    made = {
        "picture": ("a picture", "image/png", picture.read_bytes()),
        "numbers": ("a JSON list", "application/json", msgspec.json.encode(_make_numbers(contents))),
        "text": ("a text", "text/plain", b"a text to stand in for one"),
    }
    return tuple(
        candidate.options.shape.input(name, number, content_type, body)
        for number, (name, content_type, body) in enumerate(made[kind] for kind in _list_kinds(candidate, channels))
    )


def _list_kinds(candidate: Candidate, channels: int | None) -> list[str]:
    """Return the kinds of requests that seem to fit the handler, by default those that fit most handlers."""
    # The server's handler that this one is, or is made from.
    bases = {base.rpartition(".")[2] for base in candidate.inspection.handler.bases}
    name = candidate.archive.manifest.model.handler
    row = BUILT_INS.get(name) or next((row for row in BUILT_INS.values() if row.cls in bases), None)
    if row is not None and (row.pictures or row.name.startswith("text")):
        return ["picture" if row.pictures else "text"]
    sources = candidate.sources.values()
    found = [kind for kind, traces in _TRACES.items() if any(trace in source for source in sources for trace in traces)]
    if not found and channels in (1, 3):
        return ["picture"]
    return [kind for kind in found if kind != "text" or "picture" not in found] or ["numbers", "text"]


def _make_numbers(contents: WeightsSummary | None) -> object:
    """Return one row of input for the model: nested lists of its first input's shape, otherwise of its width."""
    ports = [port.shape for port in contents.inputs if port.shape] if contents else []
    shape = [size if isinstance(size, int) and size > 0 else 1 for size in ports[0][1:]] if ports else []
    value: object = 0.5
    total = 1
    for size in reversed(shape or [(contents and width_of(contents)) or 4]):
        total *= size
        value = [value] * (size if total <= _NUMBERS else 1)
    return value


def _send_stand_in(candidate: Candidate, pool: LocalPool, each: Input) -> Finding:
    """Send a stand-in alone and in batches; return how far it gets: to the first batch that fails."""
    seen = []
    for size in sorted({1, min(2, candidate.batch_size), min(_LARGEST_BATCH, candidate.batch_size)}):
        way = "alone" if size == 1 else f"in a batch of {size}"
        results = candidate.sample_runner.send([(each.name, each.request)] * size, size=size, pool=pool)
        failure = next((result for result in results if not result.ok), None)
        if failure is None:
            seen.append(way)
            continue
        reason, place, hint = "", None, None
        if failure.troubles:
            trouble = failure.troubles[0]
            # The handler's own traceback on one line, outermost call first.
            calls = " > ".join(f"{frame.function}:{frame.line}" for frame in trouble.frames if frame.user)
            reason = f": {trouble.kind}: {trouble.message}{f' ({calls})' if calls else ''}"
            place, hint = candidate.place(trouble.frames), trouble.hint
        return codes.STAND_IN_FAILED.at(
            place, hint=hint, input=each.name, way=way, status=failure.status, reason=reason
        )
    return codes.STAND_IN_ANSWERED.at(input=each.name, ways=" and ".join(seen))
