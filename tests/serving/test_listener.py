from marpack.serving.api import ServerStatistics


def test_failures_are_counted_by_cause_in_bounded_memory():
    statistics = ServerStatistics()
    for number in range(10_000):
        statistics.add(500, 1.0, f"failure {number} {'x' * 1000}")
    for status in (503, 503, 0, 200):
        statistics.add(status, 1.0, "failure 0" if status == 503 else "")
    assert statistics.requests == 10_004
    assert sum(statistics.failures.values()) == 10_003
    assert len(statistics.failures) < 200
    assert max(map(len, statistics.failures)) < 300
    known = ServerStatistics()
    for status, cause in ((500, "a"), (500, "a"), (503, ""), (0, ""), (204, "")):
        known.add(status, 1.0, cause)
    assert {cause: known.failures[cause] for cause in ("500 a", "503")} == {"500 a": 2, "503": 1}
    assert sorted(known.failures.values()) == [1, 1, 2]
