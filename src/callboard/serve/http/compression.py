"""gzip and deflate, both ways. Large bodies are processed on a thread, so that the event loop continues."""

import asyncio
import re
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from callboard.serve.errors import BadRequest, HttpError

__all__ = ["LARGE", "compressed", "decompressed", "off_loop"]

T = TypeVar("T")

WBITS = {"gzip": 31, "deflate": 15}
"""Window sizes as zlib takes them: with gzip's header, and with zlib's, which HTTP calls deflate."""
SMALL = 1024
"""Bytes of a response that is not worth compressing."""
LARGE = 64 * 1024
"""Bytes from which on a thread does the work."""
STEP = 4 << 20
"""Bytes that are decompressed at once: a small body may become a large one."""
FAST = 1
REFUSED = re.compile(r"\s*[qQ]\s*=\s*0(\.0*)?\s*")


async def decompressed(body: memoryview, encoding: str, limit: int, hold: Callable[[int], None]) -> memoryview:
    """The body as it was before its ``Content-Encoding``.

    Args:
        body: The compressed body.
        encoding: Value of the header.
        limit: Bytes at most.
        hold: Called with the number of bytes that were decompressed; may raise.

    Raises:
        HttpError: It becomes longer than ``limit`` bytes (413), or the encoding is another one (415).
        BadRequest: It is damaged.
        Exception: Raised by ``hold``.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in WBITS:
        raise HttpError(f"Content-Encoding is {encoding!r}; use gzip, deflate or identity", 415)
    machine = zlib.decompressobj(WBITS[encoding])
    found, rest = bytearray(), body
    try:
        while piece := await off_loop(max(len(rest), len(found)), partial(_inflated, machine, rest, found)):
            found += piece
            hold(len(piece))
            if len(found) > limit:
                raise HttpError(f"the body is longer than {limit} bytes after decompression", 413)
            rest = memoryview(machine.unconsumed_tail)
    except zlib.error as e:
        raise BadRequest(f"the body is no {encoding} data: {e}") from e
    if not machine.eof or machine.unused_data:
        raise BadRequest(f"the body's {encoding} data end too early, or something follows them")
    return memoryview(found)


def _inflated(machine: Any, rest: memoryview, found: bytearray) -> bytes:
    """The next bytes; few of them on the event loop, which decompresses the first ones of a small body."""
    piece: bytes = b"" if machine.eof else machine.decompress(rest, STEP if len(found) >= LARGE else LARGE)
    return piece


async def compressed(body: list[bytes], accepted: str) -> tuple[list[bytes], str | None]:
    """The parts of a body as a client with this ``Accept-Encoding`` takes them, and the encoding; None if unchanged."""
    encoding = _preferred(accepted)
    size = sum(map(len, body))
    if encoding is None or size < SMALL:
        return body, None

    def deflate() -> list[bytes]:
        machine = zlib.compressobj(FAST, wbits=WBITS[encoding])
        return [*(machine.compress(part) for part in body), machine.flush()]

    return await off_loop(size, deflate), encoding


def _preferred(accepted: str) -> str | None:
    for choice in accepted.split(","):
        name, _, weight = choice.partition(";")
        if name.strip().lower() in WBITS and not REFUSED.fullmatch(weight):
            return name.strip().lower()
    return None


async def off_loop(size: int, work: Callable[[], T]) -> T:
    """Do the work of so many bytes: on a thread, if they are many."""
    return work() if size < LARGE else await asyncio.to_thread(work)
