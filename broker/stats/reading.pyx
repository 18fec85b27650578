# cython: language_level=3
"""Rows of single objects: fields by a table, counters with their rates. The loops are compiled, for
a page shows a hundred rows of fifty figures each."""

from broker.stats.gauge cimport Gauge, thousandths

from broker.stats.gauges import DELIVERING

_DETAILS = {}
"""The key of a counter's details, by the counter's."""


cdef class Fields:
    """Reads an object by a table: the functions that read each of its fields, by name."""

    cdef tuple names
    cdef tuple reads

    def __init__(self, dict table):
        self.names = tuple(table)
        self.reads = tuple(table.values())

    def row(self, thing) -> dict:
        """A new row with these fields."""
        found = {}
        self.add_to(found, thing)
        return found

    def add_to(self, dict row, thing) -> None:
        """Puts these fields into a row."""
        cdef Py_ssize_t place
        for place in range(len(self.names)):
            row[self.names[place]] = self.reads[place](thing)


cdef inline str details_of(str name):
    found = _DETAILS.get(name)
    if found is None:
        found = _DETAILS[name] = f"{name}_details"
    return <str> found


cdef object rate_of(object source, str name):
    cdef Gauge gauge
    if source is None:
        return 0.0
    if isinstance(source, Gauge):
        gauge = <Gauge> source
        return gauge.shown_rate(gauge.places[name])
    return source.rate(name)


def rates(names, source) -> dict:
    """The `X_details` of each of these names of a gauge or of totals, without samples; those of
    None are zero."""
    return {details_of(name): {"rate": rate_of(source, name)} for name in names}


def counters_now(names, counters, source) -> dict:
    """Each of these counters and its `X_details`, without samples. Where all of `DELIVERING` are
    there, `deliver_get` is their sum."""
    cdef dict stats = {}
    cdef int found = 0
    cdef double total = 0.0
    cdef object count = 0
    for name in names:
        value = int(counters.get(name, 0))
        rate = rate_of(source, name)
        stats[name] = value
        stats[details_of(name)] = {"rate": rate}
        if name in DELIVERING:
            found += 1
            count += value
            total += <double> rate
    if found == len(DELIVERING):
        stats["deliver_get"] = count
        stats["deliver_get_details"] = {"rate": thousandths(total)}
    return stats
