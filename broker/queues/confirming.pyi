from broker.queues.consumed import ConsumedQueue

class ConfirmingQueue(ConsumedQueue):
    @property
    def oldest_unconfirmed(self) -> int | None: ...
