"""Numbers about everything: totals, rates, and their history in memory of fixed size."""

from broker.stats.gauge import Gauge
from broker.stats.history import History
from broker.stats.node import NodeReading, read_node
from broker.stats.sampler import Stats, Totals
from broker.stats.series import Sample, Series, sample_details

__all__ = [
    "Gauge",
    "History",
    "NodeReading",
    "Sample",
    "Series",
    "Stats",
    "Totals",
    "read_node",
    "sample_details",
]
