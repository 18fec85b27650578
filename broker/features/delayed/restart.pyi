from broker.features.delayed.schedule import Schedule
from broker.store.log.queue_store import QueueStore

def restore(store: QueueStore, schedule: Schedule) -> list[str]: ...
