import io
import logging
import os
import re

import pytest

from marpack.torchserve import metrics as module
from marpack.torchserve.metrics import (
    SERVER_METRICS,
    SERVERS_OWN,
    Dimension,
    GeneralMetricsCacheError,
    LogHandler,
    Metric,
    MetricsCacheIOError,
    MetricsCacheKeyError,
    MetricsCachePyYamlError,
    MetricsCacheTypeError,
    MetricsCacheValueError,
    MetricsCacheYamlImpl,
    MetricsStore,
    MetricTypes,
    emit,
)


@pytest.fixture
def metrics(caplog: pytest.LogCaptureFixture) -> MetricsCacheYamlImpl:
    caplog.set_level(logging.INFO)
    cache = MetricsCacheYamlImpl(SERVERS_OWN)
    cache.initialize_cache()
    cache.model_name = "digits"
    cache.request_ids = {0: "id-0", 1: "id-1"}
    return cache


def test_a_line_is_in_the_servers_form(metrics: MetricsCacheYamlImpl, caplog: pytest.LogCaptureFixture):
    metrics.add_time("HandlerTime", 1.5, None, "ms")
    pattern = (
        r"\[METRICS\]HandlerTime\.Milliseconds:1\.5\|#ModelName:digits,Level:Model\|#type:GAUGE"
        r"\|#hostname:[^,]+,\d+,id-0,id-1"
    )
    assert re.fullmatch(pattern, caplog.messages[-1])


@pytest.mark.parametrize(
    ("call", "start"),
    [
        (lambda m: m.add_counter("C", 2, 1), "[METRICS]C.Count:2|#ModelName:digits,Level:Model|#type:COUNTER|"),
        (lambda m: m.add_size("S", 3, unit="kB"), "[METRICS]S.Kilobytes:3|"),
        (lambda m: m.add_percent("P", 50), "[METRICS]P.Percent:50|"),
        (lambda m: m.add_error("E", 1), "[METRICS]E.unit:1|#Level:Error|"),
        (lambda m: m.add_metric("M", 7, "furlongs"), "[METRICS]M.furlongs:7|"),
        (lambda m: m.add_counter("D", 1, 0, [Dimension("Kind", "x")]), "[METRICS]D.Count:1|#Kind:x,ModelName:digits,"),
    ],
)
def test_every_kind_emits_its_line(metrics: MetricsCacheYamlImpl, caplog: pytest.LogCaptureFixture, call, start: str):
    call(metrics)
    assert caplog.messages[-1].startswith(start)


def test_wrong_units_raise_and_errors_take_no_text(metrics: MetricsCacheYamlImpl):
    with pytest.raises(MetricsCacheValueError):
        metrics.add_time("T", 1, unit="min")
    with pytest.raises(ValueError, match="MB"):
        metrics.add_size("S", 1, unit="TB")
    with pytest.raises(TypeError):
        metrics.add_error("E", "what happened")
    with pytest.raises(TypeError):
        metrics.add_counter("C", 1, None, None)  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        metrics.add_counter("C", 1, None, ())  # type: ignore[arg-type]


def test_a_negative_counter_and_wrong_dimensions_are_only_logged(metrics: MetricsCacheYamlImpl, caplog):
    metrics.add_counter("C", -1)
    metrics.add_counter("D", 1)
    metrics.add_counter("D", 1, dimensions=[Dimension("extra", "x")])
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO", "ERROR"]
    assert [message[:10] for message in caplog.messages] == ["[METRICS]C", "[METRICS]D", "[METRICS]D"]
    assert "-1" in caplog.messages[0]


@pytest.mark.parametrize(
    ("add", "given"),
    [
        ("metric", ("ms", None)),
        ("counter", (None,)),
        ("percent", (None,)),
        ("time", (None, "ms")),
        ("size", (None, "MB")),
    ],
)
def test_the_default_dimensions_are_added_to_the_callers_list(metrics, caplog, add, given):
    own = [Dimension("Kind", "x")]
    for _ in range(2):
        getattr(metrics, f"add_{add}")("C", 1, *given, own)
        assert [str(each) for each in own] == ["Kind:x", "ModelName:digits", "Level:Model"]
        assert "|#Kind:x,ModelName:digits,Level:Model|" in caplog.messages[-1]
    metrics.add_counter("D", 1)
    assert "Kind" not in caplog.messages[-1]
    errors: list[Dimension] = []
    metrics.add_error("E", 1, errors)
    assert [str(each) for each in errors] == ["Level:Error"]


def test_a_metrics_file_that_cannot_be_read_fails_the_constructor(tmp_path):
    path = tmp_path / "metrics.yaml"
    with pytest.raises(MetricsCacheIOError):
        MetricsCacheYamlImpl(str(path))
    for content, error in ((b"a: [", MetricsCachePyYamlError), (b"\xff", GeneralMetricsCacheError)):
        path.write_bytes(content)
        with pytest.raises(error):
            MetricsCacheYamlImpl(str(path))
    for name in (None, "", []):
        with pytest.raises(MetricsCacheTypeError):
            MetricsCacheYamlImpl(name)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: 1", MetricsCacheKeyError),
        ("", TypeError),
        ("model_metrics:", MetricsCacheValueError),
        ("model_metrics: {meter: []}", MetricsCacheKeyError),
        ("model_metrics: {gauge: [{name: a, unit: ms}]}", MetricsCacheKeyError),
        ("model_metrics: {gauge: [{name: a, unit: 1, dimensions: []}]}", MetricsCacheTypeError),
    ],
)
def test_a_metrics_file_that_declares_nothing_whole_fails_the_cache(tmp_path, text: str, error):
    (tmp_path / "metrics.yaml").write_text(text)
    cache = MetricsCacheYamlImpl(str(tmp_path / "metrics.yaml"))
    with pytest.raises(error):
        cache.initialize_cache()
    (tmp_path / "metrics.yaml").write_text("model_metrics: {counter: [{name: a, unit: ms, dimensions: [x]}]}")
    cache = MetricsCacheYamlImpl(str(tmp_path / "metrics.yaml"))
    cache.initialize_cache()
    assert cache.cache_keys() == ["counter:a"]


def test_metrics_are_found_by_name_and_type(metrics: MetricsCacheYamlImpl):
    metric = metrics.add_metric_to_cache("X", "count", ["A"], MetricTypes.HISTOGRAM)
    assert metrics.get_metric("X", MetricTypes.HISTOGRAM) is metric
    assert "histogram:X" in metrics.cache_keys()
    with pytest.raises(MetricsCacheKeyError):
        metrics.get_metric("X")
    with pytest.raises(MetricsCacheTypeError):
        metrics.add_metric_to_cache(1, "count")  # type: ignore[arg-type]


def test_the_older_store_knows_units_and_lists_of_dimensions():
    store = MetricsStore({0: "id"}, "m")
    wrong = [("add_time", {"unit": "MB"}), ("add_size", {"unit": "ms"}), ("add_counter", {"dimensions": ()})]
    for (add, options), words in zip(wrong, ("'ms' or 's'", "'GB' or 'B'", r"\bdimensions\b.*\blist\b"), strict=True):
        with pytest.raises(ValueError, match=words):
            getattr(store, add)("X", 1, **options)
    for unit in ("MB", "kB", "GB", "B"):
        store.add_size("S", 1, unit=unit)
    store.add_time("T", 1, unit="s")
    assert [metric.unit for metric in store.store] == ["Megabytes", "Kilobytes", "Gigabytes", "Bytes", "Seconds"]


def test_of_the_older_store_only_counters_keep_the_callers_dimensions_and_add_to_them():
    store, own = MetricsStore({0: "id"}, "m"), [Dimension("Kind", "x")]
    store.add_time("T", 1, None, "ms", own)
    assert [metric.dimension_names for metric in store.store] == [["ModelName", "Level"]]
    store.add_counter("C", 1, None, own)
    assert store.store[1].dimension_names == ["Kind", "ModelName", "Level"]
    assert len(own) == 3
    told = Metric("N", 1, "ms", [Dimension("a", "b")], "rid").to_dict()
    assert (told["MetricName"], told["Unit"], told["RequestId"]) == ("N", "Milliseconds", "rid")


def set_up(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> tuple[LogHandler, list[str]]:
    """Set logging up as a worker does; return its handler, and the lines that are left for the end of the batch."""
    lines: list[str] = []
    handler = LogHandler(io.StringIO(), lines.append)
    caplog.set_level(logging.INFO, logger=module.logger.name)
    monkeypatch.setattr(logging.root, "handlers", [handler])  # not in a fixture: pytest adds its own after those
    for name, value in (("filters", []), ("handlers", []), ("propagate", True)):
        monkeypatch.setattr(module.logger, name, value)
    return handler, lines


@pytest.mark.parametrize(
    ("change", "written"),
    [
        (lambda handler: handler.setLevel(logging.INFO), None),  # lines wait for the end of the batch
        (lambda handler: handler.setFormatter(logging.Formatter("x %(message)s")), "x a %s\n"),
        (lambda handler: handler.addFilter(lambda record: True), "a %s\n"),
        (lambda handler: handler.setLevel(logging.INFO + 1), ""),
        (lambda handler: module.logger.addFilter(lambda record: True), "a %s\n"),
        (lambda handler: module.logger.addHandler(logging.NullHandler()), "a %s\n"),
        (lambda handler: setattr(module.logger, "propagate", False), ""),
        (lambda handler: logging.root.addHandler(logging.NullHandler()), "a %s\n"),
        (lambda handler: logging.root.handlers.insert(0, logging.NullHandler()), "a %s\n"),
        (lambda handler: module.logger.setLevel(logging.INFO + 1), ""),
    ],
)
def test_what_an_author_puts_before_the_stream_sees_every_metric(monkeypatch, caplog, change, written):
    handler, lines = set_up(monkeypatch, caplog)
    change(handler)
    emit("a %s")
    assert (lines, handler.stream.getvalue()) == ((["a %s"], "") if written is None else ([], written))


def test_a_metric_with_dimensions_of_its_own_keeps_them(metrics: MetricsCacheYamlImpl, caplog):
    metrics.add_metric_to_cache("G", "ms", ["A", "B"], MetricTypes.GAUGE).add_or_update(1, ["x", "y"])
    assert caplog.messages[-1].startswith("[METRICS]G.Milliseconds:1|#A:x,B:y|#type:GAUGE|#hostname:")
    metrics.get_metric("G", MetricTypes.GAUGE).update(2, "rid", [Dimension("C", "z")])
    assert re.fullmatch(r"\[METRICS\]G\.Milliseconds:2\|#C:z\|.*,\d+,rid", caplog.messages[-1])
    metrics.get_metric("G", MetricTypes.GAUGE).update(2, "", [Dimension("D", "z")])
    assert "|#D:z|" in caplog.messages[-1]
    metrics.add_time("G", 3)
    assert caplog.records[-1].levelname == "ERROR"
    assert "['D']" in caplog.messages[-1]


def test_metrics_of_one_type_are_told_apart_by_their_names(metrics: MetricsCacheYamlImpl, caplog):
    for name, value in (("A", 1), ("B", 2), ("A", 0)):
        metrics.add_counter(name, value)
        assert caplog.messages[-1].startswith(f"[METRICS]{name}.Count:{value}|#ModelName:digits,Level:Model|")
    with pytest.raises(MetricsCacheTypeError):
        metrics.add_counter(["A"], 1)  # type: ignore[arg-type]


def test_a_value_belongs_to_one_request_or_to_the_batch(metrics: MetricsCacheYamlImpl, caplog):
    for idx, ids in {None: "id-0,id-1", 0: "id-0", 1: "id-1", 2: "id-0,id-1", "0": "id-0,id-1"}.items():
        metrics.add_percent("P", 1, idx)
        assert caplog.messages[-1].endswith(f",{ids}")
        assert caplog.messages[-1].count("id-") == ids.count("id-")
    metrics.set_request_ids("loading")
    metrics.add_percent("P", 1)
    assert caplog.messages[-1].endswith(",loading")


def test_the_older_store_tells_requests_units_and_dimensions_apart(caplog):
    caplog.set_level(logging.INFO)
    store = MetricsStore({0: "a", 1: "b"}, "m")
    store.add_percent("P", 1, 0)
    store.add_percent("P", 2, 1)
    store.add_size("P", 3, 0)
    store.add_metric("P", 4, "percent", 0)
    assert [(metric.value, metric.unit, metric.request_id) for metric in store.store] == [
        (1, "Percent", "a"), (2, "Percent", "b"), (3, "Megabytes", "a")
    ]  # fmt: skip
    assert caplog.messages[-1].startswith("[METRICS]P.Percent:4|#ModelName:m,Level:Model|#type:COUNTER|")
    store.store[0].reset()
    assert caplog.messages[-1].startswith("[METRICS]P.Percent:0|")
    assert str(store.store[1]).endswith(",b")
    store.add_error("E", "text is fine here")
    assert str(store.store[3]).startswith("E.unit:text is fine here|#Level:Error|#hostname:")


def test_a_sample_of_the_machine():
    module.memory_utilization()
    metric = module.system_metrics.pop()
    assert (metric.name, metric.unit, 0 < metric.value <= 100) == ("MemoryUtilization", "Percent", True)
    sample = module.sample_system()
    assert sample["MemoryUsed"] > 1
    assert 0 < sample["DiskUtilization"] <= 100
    assert sample.keys() == {
        metric.name for metric in SERVER_METRICS if metric.name.startswith(("CPU", "Disk", "Memory"))
    }


def test_a_processs_memory(caplog: pytest.LogCaptureFixture):
    assert module.get_cpu_usage(str(os.getpid())) > 1 << 20
    assert module.get_cpu_usage("99999999") == 0
    with caplog.at_level(logging.INFO):
        caplog.clear()
        module.check_process_mem_usage(io.StringIO(f"{os.getpid()},,99999999\n7\n"))
    (mine, gone) = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert re.fullmatch(rf"{os.getpid()}:[1-9]\d{{6,}}", mine)
    assert gone == "99999999:0"
