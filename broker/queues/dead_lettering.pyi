from broker.queues.confirming import ConfirmingQueue

class DeadLetteringQueue(ConfirmingQueue):
    @property
    def expired(self) -> int: ...
    @property
    def dead_lettered(self) -> int: ...
