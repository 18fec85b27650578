from broker.store.persister import Dirty, Persister

class BodyBlocks(Dirty):
    persister: Persister
