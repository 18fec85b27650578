"""Passwords that wait to be checked: addresses take turns, and none can fill the line for all."""

from __future__ import annotations

from collections import OrderedDict

from broker.access.login import Job


class Line:
    """At most `most` jobs, `most_of_one` of them from one address.

    An address is what `Job.peer` says: an IPv4 address, a /64 network of IPv6, `unix`. The next
    job is that of the address that had no turn for the longest time; of one address, users that
    were let in from there lately come first. Where the line is full, the address with the most
    jobs gives one place to a newcomer that has fewer.
    """

    def __init__(self, most: int, most_of_one: int) -> None:
        self.most = most
        self.most_of_one = most_of_one
        self._lanes: OrderedDict[str, OrderedDict[Job, None]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, job: Job) -> tuple[bool, Job | None]:
        """Whether the job waits now, and the job that had to leave for it."""
        lane = self._lanes.get(job.peer)
        own = len(lane) if lane is not None else 0
        if own >= self.most_of_one:
            return False, None
        left = None
        if self._count >= self.most:
            longest = max(self._lanes.values(), key=len, default=None)
            if longest is None or len(longest) <= own + 1:
                return False, None
            left = next(reversed(longest))
            self.remove(left)
        if lane is None:
            lane = self._lanes[job.peer] = OrderedDict()
        lane[job] = None
        if job.is_trusted:
            lane.move_to_end(job, last=False)
        self._count += 1
        return True, left

    def take(self) -> Job:
        """The next job, which waits no longer. Raises IndexError without one."""
        if not self._lanes:
            raise IndexError("no password waits")
        peer, lane = next(iter(self._lanes.items()))
        job = next(iter(lane))
        self.remove(job)
        if peer in self._lanes:
            self._lanes.move_to_end(peer)
        return job

    def remove(self, job: Job) -> bool:
        """Whether the job waited; it does not any more."""
        lane = self._lanes.get(job.peer)
        if lane is None or job not in lane:
            return False
        del lane[job]
        self._count -= 1
        if not lane:
            del self._lanes[job.peer]
        return True
