"""What the calls of a stream say: they open a generator, ask for an item, or close it.

In the body of such a call the method is a list: ``["open", name]``, ``["next", id]`` or ``["close", id]``. A stream has
the id of the call that opened it.

The result of a ``"next"`` is a tuple of the item, an empty tuple at the end, or None when the host has no such stream.
"""

__all__ = ["CLOSE", "CLOSING", "NEXT", "OPEN", "is_closing"]

OPEN, NEXT, CLOSE = "open", "next", "close"

CLOSING = b"\x93\x92\xa5close"
"""How the body of a call begins that closes a stream (MessagePack)."""


def is_closing(body: bytes) -> bool:
    """Whether a call closes a stream. It is found without decoding the bodies of all calls."""
    return body.startswith(CLOSING)
