"""Series of numbers over time, as charts and RabbitMQ's samples show them."""

from __future__ import annotations

from broker.stats import Series, sample_details


def test_it_makes_rates_from_counters_and_gaps_from_silence() -> None:
    series = Series(["count"], ["level"], [(1000, 5), (10_000, 10)])
    at = 1_000_000
    for number in range(4):
        series.add(at + number * 1000, [number * 10, number])
    series.add(at + 9000, [100, 7])
    history = series.history(at, at + 9000)
    assert history["step_ms"] == 1000
    assert history["series"] == {"count": [None, 10.0, 10.0, 10.0, None], "level": [0, 1, 2, 3, 7]}
    series.add(at + 10_000, [101, 8])
    history = series.history(at + 2000, at + 10_000, ["count"])
    assert history["series"] == {"count": [10.0, 10.0, None, 1.0]}
    coarse = series.history(at - 60_000, at + 10_000)
    assert coarse["step_ms"] in (1000, 10_000)


def test_it_gives_samples_newest_first_as_rabbitmq_does() -> None:
    series = Series(["count"], [], [(1000, 900)])
    for second in range(101):
        series.add(second * 1000, [second * 3])
    samples = series.samples("count", 100_000, 20, 5)
    assert [one.timestamp for one in samples] == [100_000, 95_000, 90_000, 85_000, 80_000]
    assert [one.sample for one in samples] == [300, 285, 270, 255, 240]
    details = sample_details(3.0, samples)
    assert details["avg_rate"] == 3.0
    assert details["avg"] == 270
    assert details["samples"][0] == {"sample": 300, "timestamp": 100_000}  # type: ignore[index]
