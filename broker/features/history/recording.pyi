from broker.features.history.book import Book
from broker.kernel.recording import Recording

class ChannelRecording(Recording):
    def __init__(self, book: Book, user: str, connection: str) -> None: ...
