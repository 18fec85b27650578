"""AMQP's errors as exceptions: raised where something is noticed, converted in one place.

A soft error closes its channel, a hard error its connection (AMQP 0-9-1 section 1.1, reply codes in
section 1.6). The wire turns one into
`channel.close` or `connection.close`, the control socket into an HTTP status.
"""

from __future__ import annotations


def short(text: str) -> str:
    """As much of a text as a short string of AMQP holds, which is counted in bytes."""
    return text.encode("utf-8", "replace")[:255].decode("utf-8", "ignore")


class AMQPError(Exception):
    """Base of all errors with a reply code.

    `text` is the explanation without the code's name; `reply_text()` puts the name in front, as
    clients expect.
    """

    reply_code = 541
    name = "INTERNAL_ERROR"
    hard = True

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def reply_text(self) -> str:
        """`NAME - explanation`, cut to 255 bytes on a character boundary (a short string's
        limit)."""
        return short(f"{self.name} - {self.text}")


class SoftError(AMQPError):
    """Closes the channel."""

    hard = False


class HardError(AMQPError):
    """Closes the connection."""


class ContentTooLarge(SoftError):
    reply_code, name = 311, "CONTENT_TOO_LARGE"


class NoConsumers(SoftError):
    reply_code, name = 313, "NO_CONSUMERS"


class AccessRefused(SoftError):
    reply_code, name = 403, "ACCESS_REFUSED"


class NotFound(SoftError):
    reply_code, name = 404, "NOT_FOUND"


class ResourceLocked(SoftError):
    reply_code, name = 405, "RESOURCE_LOCKED"


class PreconditionFailed(SoftError):
    reply_code, name = 406, "PRECONDITION_FAILED"


class BoundReached(PreconditionFailed):
    """406 for what is well-formed and exceeds a bound of this broker, which the text names."""


class ConnectionForced(HardError):
    reply_code, name = 320, "CONNECTION_FORCED"


class InvalidPath(HardError):
    reply_code, name = 402, "INVALID_PATH"


class LoginRefused(HardError):
    """403 on the connection: the name and password were not accepted."""

    reply_code, name = 403, "ACCESS_REFUSED"


class FrameError(HardError):
    """501. `lost_sync` means that the byte stream cannot be read on: TCP is dropped after
    connection.close has been sent."""

    reply_code, name = 501, "FRAME_ERROR"

    def __init__(self, text: str, lost_sync: bool = False) -> None:
        super().__init__(text)
        self.lost_sync = lost_sync


class SyntaxFault(HardError):
    """502."""

    reply_code, name = 502, "SYNTAX_ERROR"


class CommandInvalid(HardError):
    reply_code, name = 503, "COMMAND_INVALID"


class ChannelFault(HardError):
    """504: the method does not fit the channel's or the connection's state."""

    reply_code, name = 504, "CHANNEL_ERROR"


class UnexpectedFrame(HardError):
    reply_code, name = 505, "UNEXPECTED_FRAME"


class ResourceFault(HardError):
    """506."""

    reply_code, name = 506, "RESOURCE_ERROR"


class NotAllowed(HardError):
    reply_code, name = 530, "NOT_ALLOWED"


class NotImplementedYet(HardError):
    """540: a method or a flag that this broker does not carry out."""

    reply_code, name = 540, "NOT_IMPLEMENTED"


class InternalFault(HardError):
    """541: our own mistake; the log has the traceback."""

    reply_code, name = 541, "INTERNAL_ERROR"


def describe(kind: str, name: str, vhost: str) -> str:
    """A resource as error texts print it: `queue 'q' in vhost '/'`."""
    return f"{kind} '{name}' in vhost '{vhost}'"
