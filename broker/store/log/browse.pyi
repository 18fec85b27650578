from broker.store.log.queue_store import QueueStore

class Browse:
    def __init__(self, store: QueueStore) -> None: ...
