# cython: language_level=3
"""What is left to do before the turn of the loop ends.

Whoever received bytes or acks touches the queues and connections concerned. At the end of the turn
every touched queue delivers, then the persister may start a round, then every touched connection
writes once.
"""

import logging

log = logging.getLogger("leveret.turn")


cdef class Task:
    """Something that can be touched: a queue or a connection."""

    cdef int work(self) except -1:
        raise NotImplementedError


cdef class Turn:
    """The touched queues and connections of one turn.

    `schedule(callback)` is the loop's way to call `run` once, soon. `after()` is called between
    queues and connections.
    """

    def __init__(self, schedule=None, after=None):
        self.queues = []
        self.connections = []
        self.schedule = schedule
        self.after = after
        self.scheduled = False

    cdef int touch_queue(self, Task queue) except -1:
        if not queue.pending:
            queue.pending = True
            self.queues.append(queue)
            if not self.scheduled:
                self.scheduled = True
                self.schedule(self.run)
        return 0

    cdef int touch_connection(self, Task connection) except -1:
        if not connection.pending:
            connection.pending = True
            self.connections.append(connection)
            if not self.scheduled:
                self.scheduled = True
                self.schedule(self.run)
        return 0

    def wake(self):
        """Makes sure that a turn ends soon, for example because the persister has something to
        do."""
        if not self.scheduled:
            self.scheduled = True
            self.schedule(self.run)

    def run(self):
        """Ends the turn. A task that fails is logged and does not keep the others from their
        work."""
        cdef list tasks
        cdef Task task
        self.scheduled = False
        # Tasks touched while this runs belong to the next turn: a queue with a long backlog must
        # not hold the loop.
        if self.queues:
            tasks = self.queues
            self.queues = []
            for task in tasks:
                task.pending = False
                try:
                    task.work()
                except Exception:
                    log.exception("a queue failed in its turn")
        self.after()
        if self.connections:
            tasks = self.connections
            self.connections = []
            for task in tasks:
                task.pending = False
                try:
                    task.work()
                except Exception:
                    log.exception("a connection failed in its turn")
