from broker.store.commit.contracts import Dirty
from broker.store.commit.persister import Persister

class BodyBlocks(Dirty):
    persister: Persister
