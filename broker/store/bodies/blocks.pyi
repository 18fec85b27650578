from broker.store.commit.persister import Dirty, Persister

class BodyBlocks(Dirty):
    persister: Persister
