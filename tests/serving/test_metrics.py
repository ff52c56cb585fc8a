"""The server's metrics: what is counted, shown and logged, beside what a real server showed of the same events."""

import asyncio
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from serving.logs import recording
from serving.served import Served, free_address, pack, served

from marpack.errors import ExitCode, ProjectError, UsageError
from marpack.serving import metrics
from marpack.serving.metrics import MetricLogged, ModelMetrics, ServerMetrics
from marpack.serving.settings import Address, MetricsMode
from marpack.torchserve.metrics import (
    MODEL_METRICS,
    SERVER_METRICS,
    Declared,
    MetricTypes,
    Section,
    handlers_metric,
    sample_system,
)

RECORDED = Path(__file__).parents[1] / "data" / "serving" / "exposition.txt"  # of a TorchServe 0.12 on a CPU
MEASURED = re.compile(r"CPU|Memory|Disk|\w+Time\b|ts_\w+_microseconds")  # differ from one run to the next
COUNTER, GAUGE, HISTOGRAM = MetricTypes
OWN = ("ModelName", "Level")
TAIL = "|#hostname:host,1700000000,a-request"
LINES = [
    "HandlerTime.Milliseconds:0.51|#ModelName:probe,Level:Model|#type:GAUGE",
    "MyCount.count:2|#ModelName:probe,Level:Model|#type:COUNTER",
    "MyHist.ms:0.07|#ModelName:probe,Level:Model|#type:HISTOGRAM",
    'MyGauge.items:1.5|#Size:b"i\\\\g,ModelName:probe,Level:Model|#type:GAUGE',
    "Undeclared.Count:1|#Colour:red,ModelName:probe,Level:Model|#type:COUNTER",
    "Bare.Percent:50.0|#ModelName:probe,Level:Model|#type:GAUGE",
    "Big.Count:123456789|#ModelName:probe,Level:Model|#type:COUNTER",
    "with-dash.Count:1|#ModelName:probe,Level:Model|#type:COUNTER",
    "Colon.Count:1|#A:x:y,ModelName:probe,Level:Model|#type:COUNTER",
    "PredictionTime.Milliseconds:0.24|#ModelName:probe,Level:Model|#type:GAUGE",
]


def declared(kind: MetricTypes, name: str, *dimensions: str, unit: str = "ms") -> Declared:
    return handlers_metric(kind, name, unit, dimensions)


def values(lines: Iterable[str]) -> dict[str, float]:
    rows = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    assert len({row for row, _, _ in rows}) == len(rows)
    return {row: float(value) for row, _, value in rows}


def shown(server: ServerMetrics, *names: str) -> dict[str, float]:
    """Return the exposed samples, by name and labels."""
    return values(asyncio.run(server.exposition(names)).decode().splitlines())


def taking(*metric: Declared, auto_detect: bool = False) -> ServerMetrics:
    return ServerMetrics(hostname="host", declared=metric, auto_detect=auto_detect)


@pytest.fixture
def replayed() -> ServerMetrics:
    """Return metrics of the recorded events: four predictions, one of which failed, and one unknown model."""
    own = (declared(COUNTER, "MyCount", *OWN, unit="count"), declared(COUNTER, "NeverSeen", "A", unit="a unit"))
    own += (declared(HISTOGRAM, "MyHist", *OWN),)
    server = ServerMetrics(hostname="host", declared=SERVER_METRICS + MODEL_METRICS + own, auto_detect=True)
    model = ModelMetrics(server, "probe", "1.0")
    server.bind("WorkerLoadTime", "W-9000-probe_1.0", *server.host).put(1177.0)
    for status in (200, 200, 200, 200, 404, 503, 200, 200, 200):
        server.count_response(status)
    for named, answered in ((False, True), (True, True), (False, False), (False, True)):
        model.count_request(named_version=named)
        if answered:
            model.count_response(4.921865, 0.252187, 3.0, named_version=named)
            for line in LINES:
                server.take(line + TAIL)
    for name, value in (sample_system() | {"Unheard": 1.0}).items():
        server.bind(name, *server.host).put(value)
    return server


def test_the_exposition_is_that_of_a_real_server_and_prometheus_reads_it(replayed: ServerMetrics):
    ours, theirs = asyncio.run(replayed.exposition()).decode().splitlines(), RECORDED.read_text().splitlines()
    comments = [sorted(line for line in lines if line.startswith("#")) for lines in (ours, theirs)]
    assert comments[0] == comments[1]
    assert values(ours).keys() == values(theirs).keys()
    exact = {row for row in values(theirs) if not MEASURED.match(row)}
    assert {row: values(ours)[row] for row in exact} == {row: values(theirs)[row] for row in exact}
    assert len(exact) > 25
    families = {family.name: family for family in text_string_to_metric_families("\n".join(ours))}
    assert families["MyGauge"].samples[0].labels["Size"] == 'b"i\\\\g'
    assert families["MyHist"].type == "histogram"
    assert families["WorkerLoadTime"].samples[0].labels["WorkerName"] == "W-9000-probe_1.0"


def test_samples_are_asked_for_by_name(replayed: ServerMetrics):
    rows = {
        ("Requests2XX", "MyHist"): ['Requests2XX{Level="Host",Hostname="host",}'],
        ("MyHist_count",): ['MyHist_count{ModelName="probe",Level="Model",Hostname="host",}'],
        ("GPUUtilization",): [],
        ("nope", ""): [],
    }
    for names, expected in rows.items():
        assert list(shown(replayed, *names)) == expected
        lines = asyncio.run(replayed.exposition(names)).splitlines()
        assert len(lines) == 3 * len(expected)  # no family without a sample that was asked for


def test_requests_are_counted_by_whether_the_path_named_the_version():
    server = ServerMetrics(hostname="host")
    model = ModelMetrics(server, "a", "1.0")
    for named in (False, True, True):
        model.count_request(named_version=named)
    model.count_response(0.01, 0.004, 0.0, named_version=True)
    model.count_response(0.005, 0.002, 0.0, named_version=True)
    other = ModelMetrics(server, "a", "2.0")
    other.count_request(named_version=False)
    assert shown(server) == {
        'ts_inference_requests_total{model_name="a",model_version="default",hostname="host",}': 2,
        'ts_inference_requests_total{model_name="a",model_version="1.0",hostname="host",}': 2,
        'ts_inference_latency_microseconds{model_name="a",model_version="1.0",hostname="host",}': 15,
        'ts_queue_latency_microseconds{model_name="a",model_version="1.0",hostname="host",}': 6,
        'QueueTime{Level="Host",Hostname="host",}': 0.002,
        'WorkerThreadTime{Level="Host",Hostname="host",}': 0.003,
    }
    for status in (200, 299, 404, 499, 500, 503, 101, 302, 777):
        server.count_response(status)
    assert shown(server, *(f"Requests{hundreds}XX" for hundreds in (2, 4, 5))) == {
        f'Requests{hundreds}XX{{Level="Host",Hostname="host",}}': count for hundreds, count in ((2, 2), (4, 2), (5, 5))
    }


def test_labels_and_units_are_escaped():
    server = ServerMetrics(hostname='a"b\\c\nd')
    server.count_response(200)
    assert 'Hostname="a\\"b\\\\c\\nd",} 1.0\n' in asyncio.run(server.exposition()).decode()
    told = asyncio.run(taking(declared(GAUGE, "G", unit="a\\b\nc")).exposition()).decode()
    assert told == "# HELP G Torchserve prometheus gauge metric with unit: a\\\\b\\nc\n# TYPE G gauge\n"
    server = taking(declared(GAUGE, "G", "A"))  # what is no Unicode does not hide the rest
    server.take(f"G.ms:5|#A:\udcff|#type:GAUGE{TAIL}")
    assert shown(server) == {'G{A="?",Hostname="host",}': 5}


def test_the_servers_own_metrics_need_the_right_declaration_and_may_be_histograms():
    own = Declared(section=Section.SERVER, kind=HISTOGRAM, name="QueueTime", unit="ms", labels=("Level", "Hostname"))
    other = Declared(section=Section.SERVER, kind=COUNTER, name="Requests4XX", unit="Count", labels=("Level",))
    server = taking(own, other)
    server.count_response(200)  # not declared
    server.count_response(404)  # declared with other labels than it has
    model = ModelMetrics(server, "m", "1.0")
    model.count_request(named_version=False)
    assert shown(server) == {}
    model.count_response(5, 3, 1, named_version=False)
    assert shown(server, "QueueTime_sum") == {'QueueTime_sum{Level="Host",Hostname="host",}': 3}


def test_a_histogram_counts_up_to_each_bound():
    server = taking(declared(HISTOGRAM, "H"))
    for value in ("0.005", "0.3", "10", "11", "-1"):
        server.take(f"H.ms:{value}|#|#type:HISTOGRAM{TAIL}")
    rows = shown(server)
    counts = {bound: rows[f'H_bucket{{Hostname="host",le="{bound}",}}'] for bound in ("0.005", "0.25", "0.5", "10.0")}
    assert counts == {"0.005": 2, "0.25": 2, "0.5": 3, "10.0": 4}
    assert rows['H_bucket{Hostname="host",le="+Inf",}'] == 5
    assert rows['H_sum{Hostname="host",}'] == pytest.approx(20.305)
    assert rows['H_count{Hostname="host",}'] == 5
    assert len(rows) == 17


def test_gauges_and_counters_are_those_of_the_declaration():
    server = taking(declared(GAUGE, "G", *OWN), declared(COUNTER, "C", *OWN), declared(GAUGE, "H", "Color"))
    for name, value in (("G", 5), ("G", -2), ("C", 5), ("C", -2), ("C", "1e3")):
        server.take(f"{name}.ms:{value}|#ModelName:m,Level:Model|#type:GAUGE{TAIL}")
    labels = '{ModelName="m",Level="Model",Hostname="host",}'
    assert shown(server, "G", "C") == {f"G{labels}": -2, f"C{labels}": 1005}
    for host in ("a", "b"):  # of the line
        server.take(f"H.unit:5|#Size:big|#type:COUNTER|#hostname:{host},1700000000")
    assert shown(server, "H") == {'H{Color="big",Hostname="a",}': 5, 'H{Color="big",Hostname="b",}': 5}


HOST = "|#hostname:host,1"
IGNORED = [
    *("", "G", "G.ms:5", "G.ms:5|#A:b", "G.ms:5|#A:b,", "G.ms:5|#A:b|#hostname:host", "G.ms:5|#A:b|#hostname:,1"),
    *(f"G.ms:5|#A:b|#type:METER{HOST}", f"G.ms:5|#A:b|#type:GAUGE|#more{HOST}", f"G.ms:5|#A:b,C:d{HOST}"),
    *(f"G.ms:5|#{HOST}", f"G.ms:5|#A:x:y{HOST}", f"G.ms:|#A:b{HOST}", f"G.ms:five|#A:b{HOST}", f"G.ms:nan|#A:b{HOST}"),
    *(f"G.ms:inf|#A:b{HOST}", f"G:5|#A:b{HOST}", f"Other.ms:5|#A:b{HOST}", f"Requests2XX.Count:5|#Level:Host{HOST}"),
]


def test_lines_that_say_nothing_of_a_declared_metric_are_ignored():
    server = ServerMetrics(hostname="host", declared=(*SERVER_METRICS, declared(GAUGE, "G", "A")))
    for line in IGNORED:
        server.take(line)
        assert shown(server) == {}, line
    server.take(f" G.ms:5|#A:b{HOST}")
    assert shown(server) == {'G{A="b",Hostname="host",}': 5}


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("New.ms:5|#A:b|#type:GAUGE|#hostname:host,1", "gauge"),
        ("New.ms:5|#A:b|#hostname:host,1", "counter"),
        ("2New.ms:5|#A:b|#type:GAUGE|#hostname:host,1", None),
        ("New.ms:5|#__A:b|#type:GAUGE|#hostname:host,1", None),
        ("New.ms:5|#A:b,A:c|#type:GAUGE|#hostname:host,1", None),
        ("New.ms:5|#Hostname:b|#type:GAUGE|#hostname:host,1", None),
        ("New.ms:5|#le:b|#type:HISTOGRAM|#hostname:host,1", None),
        ("Requests2XX.ms:5|#A:b|#type:GAUGE|#hostname:host,1", None),
    ],
)
def test_metrics_are_detected_where_prometheus_can_read_them(line: str, kind: str | None):
    server = ServerMetrics(hostname="host", auto_detect=True)
    before = asyncio.run(server.exposition())
    server.take(line)
    told = asyncio.run(server.exposition()).removeprefix(before).decode()
    help_line = f"# HELP New Torchserve prometheus {kind} metric with unit: ms\n"
    expected = f'{help_line}# TYPE New {kind}\nNew{{A="b",Hostname="host",}} 5.0\n'
    assert told == (expected if kind else "")


def test_requests_get_their_turn_while_many_samples_are_written():
    server = taking(declared(GAUGE, "G", "Number"))
    for number in range(1000):
        server.take(f"G.ms:{number}|#Number:{number}|#type:GAUGE|#hostname:host,1")
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def main() -> bytes:
        task = asyncio.create_task(count_turns())
        text = await server.exposition()
        task.cancel()
        return text

    assert asyncio.run(main()).count(b"\nG{") == 1000
    assert turns >= 1000 / metrics._BLOCK


def test_neither_samples_nor_families_grow_without_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metrics, "MAX_SAMPLES", 3)
    monkeypatch.setattr(metrics, "MAX_DETECTED", 2)
    server = taking(auto_detect=True)
    for _ in range(2):
        for index in range(5):
            server.take(f"New.ms:1|#Id:{index}|#type:COUNTER{TAIL}")
            server.take(f"New{index}.ms:1|#|#type:COUNTER{TAIL}")
        server.take(f"New0.ms:1|#Id:{'x' * 5000}|#type:COUNTER{TAIL}")
    assert shown(server) == {
        **{f'New{{Id="{index}",Hostname="host",}}': 2 for index in range(3)},
        'New0{Hostname="host",}': 2,
    }
    assert len(server._taken) <= 3


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        (declared(GAUGE, "my-gauge"), "name"),
        (declared(GAUGE, "G", "a b"), "dimension a b"),
        (declared(HISTOGRAM, "H", "le"), "le"),
        (declared(GAUGE, "G", "A", "A"), "twice"),
        (declared(COUNTER, "Requests2XX"), "another metric"),
    ],
)
def test_a_declared_metric_that_prometheus_cannot_read_stops_the_start(metric: Declared, reason: str):
    with pytest.raises(ProjectError, match=rf" {metric.name}: .*\b{reason}\b") as caught:
        ServerMetrics(hostname="host", declared=(*SERVER_METRICS, metric))
    assert (caught.value.exit_code, caught.value.code) == (ExitCode.USAGE, "invalid-metric")
    assert caught.value.where == f"metrics_config: model_metrics.{metric.kind.value}"
    ServerMetrics(hostname="host", declared=(*SERVER_METRICS, metric), mode=MetricsMode.LOG)


def logged(mode: MetricsMode, *, auto_detect: bool = False) -> tuple[list[str], ServerMetrics]:
    with recording() as log:
        server = ServerMetrics(hostname="host", mode=mode, auto_detect=auto_detect)
        server.count_response(200)
        model = ModelMetrics(server, "probe", "1.0")
        model.count_request(named_version=False)
        server.bind("WorkerLoadTime", "W-9000-probe_1.0", *server.host).put(
            999
        )  # an int, shown as the original shows it
        server.take("HandlerTime.Milliseconds:0.51|#ModelName:probe,Level:Model|#type:GAUGE" + TAIL)
        server.take("New.Count:1|#Color:red,Level:Model|#type:COUNTER|#hostname:h,1700000000")
        server.take("Unitless:1|#Color:red,Level:Model|#type:COUNTER|#hostname:h,1700000000")
    lines = [event.line for event in log.events if isinstance(event, MetricLogged)]
    return [re.sub(r"timestamp:\d{10}$", "timestamp:*", line) for line in lines], server


def test_metrics_are_logged_as_the_original_logs_them():
    lines, server = logged(MetricsMode.LOG, auto_detect=True)
    assert lines == [
        "Requests2XX.Count:1.0|#Level:Host|#hostname:host,timestamp:*",
        "ts_inference_requests_total.Count:1.0|#model_name:probe,model_version:default|#hostname:host,timestamp:*",
        "WorkerLoadTime.Milliseconds:999.0|#WorkerName:W-9000-probe_1.0,Level:Host|#hostname:host,timestamp:*",
        "HandlerTime.ms:0.51|#ModelName:probe,Level:Model|#hostname:host,requestID:a-request,timestamp:*",
        "New.Count:1.0|#Color:red,Level:Model|#hostname:h,timestamp:*",
    ]
    assert asyncio.run(server.exposition()) == b""


def test_the_legacy_mode_shows_three_and_logs_the_others():
    lines, server = logged(MetricsMode.LEGACY)  # which does not detect New
    assert [line.partition(".")[0] for line in lines] == ["Requests2XX", "WorkerLoadTime", "HandlerTime"]
    assert shown(server) == {
        'ts_inference_requests_total{model_name="probe",model_version="default",hostname="host",}': 1
    }
    told = [line for line in asyncio.run(server.exposition()).decode().splitlines() if line.startswith("# TYPE")]
    assert told == [f"# TYPE {name} counter" for name in metrics._LEGACY]


HANDLER = """
def handle(data, context):
    if data is None:
        print("labels read")
        context.metrics.add_time("HandlerTime", 7.5)
    return data and ["x"] * len(data)
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return a server that has answered once."""
    with served(pack(tmp_path_factory.mktemp("models"), "m.mar", HANDLER)) as server:
        lines = server.request("GET", "/metrics", at=server.metrics)[2].decode().splitlines()
        assert [line.rpartition(" ")[2] for line in lines if line.startswith("HandlerTime{")] == ["7.5"]
        assert server.log.lines == ["labels read"]
        assert server.request("POST", "/predictions/m", b"x")[0] == 200
        assert server.request("GET", "/nothing")[0] == 404
        yield server


def test_requests_for_metrics(running: Served) -> None:
    for method, path in (("GET", "/metrics"), ("POST", "/metrics/"), ("DELETE", "/metrics/any/thing")):
        code, headers, body = running.request(method, path, at=running.metrics)
        assert (code, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert b'ts_inference_requests_total{model_name="m",model_version="default",' in body
    queries = {
        "name[]=Requests2XX": {"Requests2XX"},
        "name%5B%5D=Requests2XX&name[]=Requests4XX": {"Requests2XX", "Requests4XX"},
        "name[]=Nope": set(),
        "name[]=": set(),
    }
    for query, names in queries.items():
        code, _, body = running.request("GET", f"/metrics?{query}", at=running.metrics)
        found = {line.split()[2] for line in body.decode().splitlines() if line.startswith("# TYPE")}
        assert (code, found) == (200, names)
    codes = {"OPTIONS /": 200, "GET /api-description": 200, "GET /": 405}
    codes |= dict.fromkeys(("GET /ping", "GET /models", "POST /predictions/m", "GET /metric"), 404)
    assert {line: running.request(*line.split(), at=running.metrics)[0] for line in codes} == codes


def test_metrics_have_the_address_of_management_or_none() -> None:
    shared = free_address("127.0.0.2")
    with served(management=shared, metrics=shared) as server:
        assert b"Requests2XX" in server.request("GET", "/metrics", at=server.management)[2]
        assert server.request("GET", "/metrics")[0] == 404
    with served(metrics=None, management=None) as server:
        assert list(server.log.addresses) == ["inference"]
        assert server.request("GET", "/metrics")[0] == 404
        assert server.request("GET", "/models")[0] == 404


def test_an_address_for_metrics_that_was_not_requested_may_be_in_use() -> None:
    with served(metrics=None) as first:
        taken = Address.parse(f"http://{first.inference}", 0)
        with served(metrics=taken, metrics_may_fail=True, loaded=False) as second:
            assert second.request("GET", "/ping")[0] == 200
            (note,) = second.log.notes
            assert taken.place in note
        with pytest.raises(UsageError) as caught, served(metrics=taken):
            pass
        assert caught.value.code == "address-in-use"
