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
    LogHandler,
    MetricsCacheKeyError,
    MetricsCacheTypeError,
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


def test_a_negative_counter_and_wrong_dimensions_are_only_logged(metrics: MetricsCacheYamlImpl, caplog):
    metrics.add_counter("C", -1)
    metrics.add_counter("D", 1)
    metrics.add_counter("D", 1, dimensions=[Dimension("extra", "x")])
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO", "ERROR"]
    assert [message[:10] for message in caplog.messages] == ["[METRICS]C", "[METRICS]D", "[METRICS]D"]
    assert "-1" in caplog.messages[0]


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
