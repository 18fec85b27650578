from broker.store.commit.contracts import Dirty

class BodyReader(Dirty):
    def rest(self) -> None: ...
