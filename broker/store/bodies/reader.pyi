from broker.store.commit.persister import Dirty

class BodyReader(Dirty):
    def rest(self) -> None: ...
