# cython: language_level=3
"""What begins and ends, counted at that moment in the totals of the node and of its vhost.

Thousands of connections and channels may come and go in a second: nothing is made for each.
"""

from broker.stats.scan cimport Sums, finish
from broker.wire.channel cimport Channel
from broker.wire.frame_parser cimport FrameParser


cdef class Churn:
    """`node` is the node's Totals, `vhosts` are those of vhosts by their names, and `vhost(name)`
    makes them for one that has none yet. Of each kind of object, the counters in `wanted` go into
    them. What ends leaves `histories`, and `ended` counts a channel."""

    cdef dict _counters              # of the node
    cdef dict _vhosts
    cdef object _vhost
    cdef dict _wanted
    cdef dict _histories
    cdef object _ended
    cdef Sums _sums                  # of the object that ends

    def __init__(self, node, dict vhosts, vhost, dict wanted, dict histories, ended):
        self._counters = node.counters
        self._vhosts = vhosts
        self._vhost = vhost
        self._wanted = wanted
        self._histories = histories
        self._ended = ended
        self._sums = Sums()

    cpdef happened(self, str vhost, str name):
        """Counts an event. `vhost` may be empty: it happened in none."""
        cdef dict counters
        self._counters[name] += 1
        if vhost:
            counters = self._totals(vhost).counters
            counters[name] += 1

    cpdef add_up(self, str kind, Sums sums, str vhost):
        """Adds what happened since the last look to the totals."""
        cdef dict risen, counters
        if sums.has_risen():
            risen = sums.rises(kind, self._wanted[kind])
            if risen:
                counters = self._totals(vhost).counters
                for name, value in risen.items():
                    self._counters[name] += value
                    counters[name] += value

    cpdef end(self, str kind, thing, str vhost):
        """Takes an object's last counts."""
        finish(kind, thing, self._sums)
        self.add_up(kind, self._sums, vhost)
        if self._histories:
            self._histories.pop(thing, None)

    cdef object _totals(self, str vhost):
        return self._vhosts.get(vhost) or self._vhost(vhost)

    def connection_opened(self, FrameParser connection):
        self.happened(_vhost_of(connection), "connection_created")

    def connection_closed(self, FrameParser connection):
        cdef str vhost = _vhost_of(connection)
        self.end("connection", connection, vhost)
        self.happened(vhost, "connection_closed")

    def channel_opened(self, Channel channel):
        self.happened(_vhost_of(channel.connection), "channel_created")

    def channel_closed(self, Channel channel):
        cdef str vhost = _vhost_of(channel.connection)
        self.end("channel", channel, vhost)
        if channel.nacked:
            self._ended.add_channel(channel)
        self.happened(vhost, "channel_closed")


cdef str _vhost_of(connection):
    vhost = connection.vhost
    return "" if vhost is None else vhost.name
