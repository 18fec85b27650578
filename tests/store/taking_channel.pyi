from broker.kernel.contracts import Channel

class TakingChannel(Channel):
    @property
    def taken(self) -> list[bytes]: ...
