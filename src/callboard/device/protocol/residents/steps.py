"""The calls of a stream: they open a generator, ask for an item, or close it.

In the body of such a call the method is a list: ``["open", name]``, ``["next", id]`` or ``["close", id]``. A stream has
the id of the call that opened it.

The result of a ``"next"`` is a tuple of the item, an empty tuple at the end, or None when the host has no such stream.
"""

from callboard.device.protocol.residents.values import decode

__all__ = ["CLOSE", "CLOSING", "NEXT", "OPEN", "is_closing", "stream_of"]

OPEN, NEXT, CLOSE = "open", "next", "close"

CLOSING = b"\x93\x92\xa5close", b"\x94\x92\xa5close"
"""First bytes of a call that closes a stream (MessagePack), without and with a trace context."""

ASKING = b"\x93\x92\xa4next", b"\x94\x92\xa4next"
"""Likewise, of a call that requests an item."""


def is_closing(body: bytes) -> bool:
    """True if a call closes a stream. Found without decoding the bodies of all calls."""
    return body.startswith(CLOSING)


def stream_of(body: bytes) -> int:
    """The stream that a call asks for an item, or closes; 0 for other calls, and for malformed ones."""
    if not body.startswith(ASKING + CLOSING):
        return 0
    try:
        stream = decode(body)[0][1]
    except Exception:  # malformed: the call's error, when it runs
        return 0
    return stream if type(stream) is int else 0
