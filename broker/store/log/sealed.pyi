from broker.store.log.segments import Segments

class Sealed(Segments):
    @property
    def disk_bytes_live(self) -> int: ...
