import logging
import re

import pytest

from marpack.torchserve.metrics import Dimension, Metric, MetricsStore, MetricTypes
from marpack.torchserve.metrics_cache import (
    MetricsCache,
    MetricsCacheKeyError,
    MetricsCacheTypeError,
    MetricsCacheValueError,
)


@pytest.fixture
def metrics(caplog: pytest.LogCaptureFixture) -> MetricsCache:
    caplog.set_level(logging.INFO)
    cache = MetricsCache()
    cache.initialize_cache()
    cache.model_name = "digits"
    cache.request_ids = {0: "id-0", 1: "id-1"}
    return cache


def test_a_line_is_in_the_servers_form(metrics: MetricsCache, caplog: pytest.LogCaptureFixture):
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
def test_every_kind_emits_its_line(metrics: MetricsCache, caplog: pytest.LogCaptureFixture, call, start: str):
    call(metrics)
    assert caplog.messages[-1].startswith(start)


def test_wrong_units_raise(metrics: MetricsCache):
    with pytest.raises(MetricsCacheValueError):
        metrics.add_time("T", 1, unit="min")
    with pytest.raises(ValueError, match="MB"):
        metrics.add_size("S", 1, unit="TB")


def test_errors_take_no_text(metrics: MetricsCache):
    with pytest.raises(TypeError):
        metrics.add_error("E", "what happened")


def test_a_negative_counter_and_wrong_dimensions_are_only_logged(
    metrics: MetricsCache, caplog: pytest.LogCaptureFixture
):
    metrics.add_counter("C", -1)
    assert "was not updated" in caplog.messages[-1]
    metrics.add_counter("D", 1)
    metrics.add_counter("D", 1, dimensions=[Dimension("extra", "x")])
    assert "do not fit the names" in caplog.messages[-1]


def test_dimensions_of_one_call_never_leak_into_another(metrics: MetricsCache, caplog: pytest.LogCaptureFixture):
    own = [Dimension("Kind", "x")]
    metrics.add_counter("C", 1, dimensions=own)
    assert len(own) == 1
    metrics.add_counter("D", 1)
    assert "Kind" not in caplog.messages[-1]


def test_metrics_are_found_by_name_and_type(metrics: MetricsCache):
    metric = metrics.add_metric_to_cache("X", "count", ["A"], MetricTypes.HISTOGRAM)
    assert metrics.get_metric("X", MetricTypes.HISTOGRAM) is metric
    assert "histogram:X" in metrics.cache_keys()
    with pytest.raises(MetricsCacheKeyError):
        metrics.get_metric("X")
    with pytest.raises(MetricsCacheTypeError):
        metrics.add_metric_to_cache(1, "count")  # type: ignore[arg-type]


def test_the_older_store_keeps_one_metric_per_name_and_dimensions():
    store = MetricsStore({0: "id"}, "m")
    store.add_time("T", 1)
    store.add_time("T", 2)
    store.add_error("E", "text is fine here")
    assert [metric.name for metric in store.store] == ["T", "E"]
    assert str(store.store[1]).startswith("E.unit:text is fine here|#Level:Error|#hostname:")


def test_a_metric_tells_itself_as_a_dict():
    metric = Metric("N", 1, "ms", [Dimension("a", "b")], "rid")
    told = metric.to_dict()
    assert (told["MetricName"], told["Unit"], told["RequestId"]) == ("N", "Milliseconds", "rid")
