"""Both ends of a connection between machines prove that they have the token, before anything else is read.

Each side sends a random challenge and an HMAC-SHA256 over both challenges, as ``multiprocessing.connection`` does
(Python's documentation, "Authentication keys"). The token itself never travels. The handshake encrypts nothing; TLS
does, and the same handshake then runs inside it.
"""

import asyncio
import hmac
import os

from callboard.device.protocol.messages import VERSION

__all__ = ["LEAST", "HandshakeError", "accept_client", "greet_server"]

MAGIC = b"callboard node %04d\n" % VERSION
NONCE, MAC = 32, 32
LEAST = 16
"""Fewest characters of a token."""
TIME = 10.0
"""Seconds for all of it."""
YES = b"\x01"


class HandshakeError(Exception):
    """The other end is not callboard, of another version, or has another token."""


async def accept_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
    """The side that listens.

    Raises:
        HandshakeError: The client does not have the token.
        TimeoutError, OSError, EOFError
    """
    ours = os.urandom(NONCE)
    async with asyncio.timeout(TIME):
        writer.write(MAGIC + ours)
        theirs = await reader.readexactly(NONCE)
        if not hmac.compare_digest(await reader.readexactly(MAC), _mac(token, b"client", ours, theirs)):
            raise HandshakeError("the client has another token")
        writer.write(YES + _mac(token, b"server", ours, theirs))
        await writer.drain()


async def greet_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
    """The side that connects.

    Raises:
        HandshakeError: See the class.
        TimeoutError, OSError, EOFError
    """
    ours = os.urandom(NONCE)
    async with asyncio.timeout(TIME):
        try:
            magic, theirs = await reader.readexactly(len(MAGIC)), await reader.readexactly(NONCE)
        except asyncio.IncompleteReadError as e:
            raise HandshakeError(f"it is not a callboard node: it ended after {len(e.partial)} bytes") from None
        if magic != MAGIC:
            raise HandshakeError(f"it is not a callboard node of version {VERSION}: it began with {magic!r}")
        writer.write(ours + _mac(token, b"client", theirs, ours))
        try:
            answer = await reader.readexactly(1 + MAC)
        except asyncio.IncompleteReadError:
            raise HandshakeError("it refused the token") from None
        if not hmac.compare_digest(answer, YES + _mac(token, b"server", theirs, ours)):
            raise HandshakeError("it does not have the token itself")


def _mac(token: str, side: bytes, server: bytes, client: bytes) -> bytes:
    return hmac.digest(token.encode(), MAGIC + side + server + client, "sha256")
