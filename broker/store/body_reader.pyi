from broker.store.persister import Dirty

class BodyReader(Dirty):
    def rest(self) -> None: ...
