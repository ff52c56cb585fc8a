"""Metrics: what each call on context.metrics prints or raises (contract §9)."""

from conformance.probe import asked, handler

_CALLS = {
    "counter": "metrics.add_counter('A', 1)",
    "counter-index": "metrics.add_counter('A', 1, 0)",
    "counter-no-such-index": "metrics.add_counter('A', 1, 9)",
    "counter-negative": "metrics.add_counter('A', -1)",
    "counter-float": "metrics.add_counter('A', 1.5)",
    "counter-text": "metrics.add_counter('A', 'x')",
    "counter-none": "metrics.add_counter('A', None)",
    "time": "metrics.add_time('T', 12.5)",
    "time-seconds": "metrics.add_time('T2', 1, None, 's')",
    "time-unit": "metrics.add_time('T', 1, None, 'minutes')",
    "time-other-unit-later": "metrics.add_time('T', 1, None, 's')",
    "size": "metrics.add_size('S', 3)",
    "size-kilobytes": "metrics.add_size('S2', 3, None, 'kB')",
    "size-gigabytes": "metrics.add_size('S3', 3, None, 'GB')",
    "size-bytes": "metrics.add_size('S4', 3, None, 'B')",
    "size-unit": "metrics.add_size('S', 3, None, 'TB')",
    "percent": "metrics.add_percent('P', 50)",
    "percent-negative": "metrics.add_percent('P', -5)",
    "error": "metrics.add_error('E', 1)",
    "error-text": "metrics.add_error('E', 'broken')",
    "metric": "metrics.add_metric('M', 1, 'apples')",
    "metric-gauge": "metrics.add_metric('M2', -1, 'ms', metric_type=MetricTypes.GAUGE)",
    "metric-histogram": "metrics.add_metric('M3', 2.5, 'ms', metric_type=MetricTypes.HISTOGRAM)",
    "metric-empty-unit": "metrics.add_metric('M4', 1, '')",
    "metric-no-unit": "metrics.add_metric('M5', 1, None)",
    "metric-name-number": "metrics.add_metric(5, 1, 'ms')",
    "metric-type-text": "metrics.add_metric('M6', 1, 'ms', metric_type='gauge')",
    "dimensions": "metrics.add_counter('D', 1, None, [Dimension('Size', 'big')])",
    "dimensions-index": "metrics.add_counter('D2', 1, 0, [Dimension('Size', 'big'), Dimension('Level', 'Mine')])",
    "dimensions-changed": "metrics.add_counter('D', 1, None, [Dimension('Size', 'big'), Dimension('Other', 'x')])",
    "dimensions-of-other-names": "metrics.add_counter('D', 1, None, [Dimension('Colour', 'red')])",
    "dimensions-do-not-leak": "metrics.add_counter('D3', 1)",
    **{
        f"dimensions-of-{name}": f"d = [Dimension('a', 1)]; metrics.{call}; answer = [str(each) for each in d]"
        for name, call in {
            "counter": "add_counter('DC', 1, None, d)",
            "metric": "add_metric('DM', 1, 'ms', None, d)",
            "percent": "add_percent('DP', 1, None, d)",
            "time": "add_time('DT', 1, None, 'ms', d)",
            "size": "add_size('DS', 1, None, 'MB', d)",
            "error": "add_error('DE', 1, d)",
        }.items()
    },
    "dimensions-twice": "d = [Dimension('a', 1)]; [metrics.add_counter('DD', 1, None, d) for _ in '12']",
    "dimensions-none": "metrics.add_counter('DN', 1, None, None)",
    "dimensions-tuple": "metrics.add_counter('DN', 1, None, ())",
    **{
        f"file-{name}": (
            "from ts.metrics.metric_cache_yaml_impl import MetricsCacheYamlImpl\n"
            f"open('m.yaml', 'wb').write({text!r}); m = MetricsCacheYamlImpl({path!r})\n"
            "answer = 'made'; m.initialize_cache(); answer = m.cache_keys()"
        )
        for name, path, text in (
            ("none", None, b""),
            ("unnamed", "", b""),
            ("missing", "nowhere.yaml", b""),
            ("no-yaml", "m.yaml", b"a: ["),
            ("no-text", "m.yaml", b"\xff"),
            ("empty", "m.yaml", b""),
            ("no-section", "m.yaml", b"a: 1"),
            ("empty-section", "m.yaml", b"model_metrics:"),
            ("unknown-type", "m.yaml", b"model_metrics: {meter: []}"),
            ("no-dimensions", "m.yaml", b"model_metrics: {gauge: [{name: a, unit: ms}]}"),
            ("unit-number", "m.yaml", b"model_metrics: {gauge: [{name: a, unit: 1, dimensions: []}]}"),
            ("whole", "m.yaml", b"model_metrics: {gauge: [{name: a, unit: ms, dimensions: [x]}]}"),
        )
    },
    "store-dimensions": (
        "from ts.metrics.metrics_store import MetricsStore\n"
        "d = [Dimension('a', 1)]; s = MetricsStore({0: 'r'}, 'm'); s.add_time('T', 1, None, 'ms', d);"
        "s.add_counter('C', 1, None, d); answer = [m.dimension_names for m in s.store], [str(each) for each in d]"
    ),
    "cache-add": "m = metrics.add_metric_to_cache('C', 'ms', ['x', 'y']); m.add_or_update(3, ['1', '2'])",
    "cache-add-wrong-number": "m = metrics.add_metric_to_cache('C', 'ms', ['x', 'y']); m.add_or_update(3, ['1'])",
    "cache-add-type": "metrics.add_metric_to_cache('C', 'ms', ['x'], 'gauge')",
    "cache-add-names-text": "metrics.add_metric_to_cache('C', 'ms', 'x')",
    "cache-add-unit-number": "metrics.add_metric_to_cache('C', 5)",
    "cache-get": "metrics.get_metric('C').add_or_update(4, ['1', '2'], 'r')",
    "cache-get-missing": "metrics.get_metric('nope')",
    "cache-get-other-type": "metrics.get_metric('C', MetricTypes.GAUGE)",
    "cache-get-name-number": "metrics.get_metric(1)",
    "cache-update": "metrics.get_metric('C').update(5, 'r', [Dimension('z', '3')])",
    "predefined": "metrics.add_time('HandlerTime', 3.5, None, 'ms')",
    "predefined-dimensions": "answer = metrics.get_metric('HandlerTime', MetricTypes.GAUGE).dimension_names",
    "keys": "answer = sorted(metrics.cache_keys())[:3]",
    "model-name": "answer = metrics.model_name",
    "request-ids": "answer = metrics.request_ids == context.request_ids",
    "dimension-text": "answer = [str(Dimension('a', 1)), Dimension('a', 1).to_dict()]",
    "metric-class": (
        "from ts.metrics.metric import Metric\n"
        "m = Metric('N', 1, 'ms', [Dimension('a', 'b')], 'r'); answer = [str(m), m.to_dict()['Unit']]"
    ),
}

PROBES = (asked("metrics", handler("measure"), _CALLS),)
