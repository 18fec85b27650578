from broker.store.log.contracts import MessageStore

class Browse:
    def __init__(self, store: MessageStore) -> None: ...
