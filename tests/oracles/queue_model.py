"""A queue as a list: what one channel sees of it, in the plainest words."""

from dataclasses import dataclass, field


@dataclass
class Entry:
    """One message: its place in its level's order, its body, its level, whether it was delivered
    before."""

    place: int
    body: bytes
    level: int = 0
    redelivered: bool = False


@dataclass
class QueueModel:
    """Ready messages in order, and what is unacked by delivery tag."""

    ready: list[Entry] = field(default_factory=list)
    unacked: dict[int, Entry] = field(default_factory=dict)
    published: int = 0
    tag: int = 0

    def publish(self, body: bytes, level: int = 0) -> None:
        """A message comes last in its level."""
        self.published += 1
        self.ready.append(Entry(self.published, body, level))
        self.sort()

    def sort(self) -> None:
        """Higher levels first, in each the order of publishing."""
        self.ready.sort(key=lambda entry: (-entry.level, entry.place))

    def get(self, no_ack: bool) -> tuple[int, Entry, int] | None:
        """The first ready message with its delivery tag and how many are left behind it."""
        if not self.ready:
            return None
        entry = self.ready.pop(0)
        self.tag += 1
        if not no_ack:
            self.unacked[self.tag] = entry
        return self.tag, entry, len(self.ready)

    def chosen(self, tag: int, multiple: bool) -> list[int]:
        """The tags that an acknowledgement names; none if it names an unknown one."""
        if multiple:
            return [each for each in sorted(self.unacked) if tag == 0 or each <= tag]
        return [tag] if tag in self.unacked else []

    def settle(self, tags: list[int], requeue: bool) -> None:
        """Messages are done with, or take their old places."""
        for tag in tags:
            entry = self.unacked.pop(tag)
            if requeue:
                entry.redelivered = True
                self.ready.append(entry)
        self.sort()

    def close_channel(self) -> None:
        """Everything unacked comes back; tags begin again."""
        self.settle(sorted(self.unacked), requeue=True)
        self.tag = 0

    def purge(self) -> int:
        """What is ready goes."""
        count = len(self.ready)
        self.ready.clear()
        return count
