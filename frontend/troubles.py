"""The words for the state of a queue or a consumer, worst first, with tone and meaning.

The broker finds the word (`trouble` of a row); here is only how it is shown.
"""

_TONES = {
    "refusing": "bad",
    "not served": "bad",
    "stuck": "bad",
    "paused": "warn",
    "at a limit": "warn",
    "growing": "warn",
    "redelivering": "warn",
    "full": "warn",
    "fine": "good",
    "idle": "idle",
}

MEANING = {
    "refusing": "The queue is full and refuses what is published to it",
    "not served": "Messages wait and no consumer takes them",
    "stuck": "Messages are out for acknowledgement, and none has been acknowledged for a while",
    "paused": "Deliveries are paused: messages come in and none goes out",
    "at a limit": "At 90 % or more of a limit on length or bytes",
    "growing": "More comes in than goes out",
    "redelivering": "Messages come back again and again",
    "full": "The prefetch is used up: nothing more is sent before an acknowledgement",
    "fine": "Nothing needs attention",
    "idle": "Nothing waits and nothing moves",
}

UNCONFIRMED = "Publishers wait for the acknowledgements of its consumers"
"""What `fine` means where confirms come with the consumers' acks."""

STUCK_READER = "Messages are kept, but a reader has acknowledged nothing for a while"
"""What `fine` and `idle` mean for a stream with a reader that is stuck."""

WORDS = tuple(_TONES)


def tone(word: str) -> str:
    """`good`, `warn`, `bad` or `idle`."""
    return _TONES.get(word, "idle")
