"""Messages between ``callboard serve`` and its workers: a line of JSON each, over a pair of sockets."""

import socket
import threading
from collections.abc import Iterator
from typing import Any

import msgspec

__all__ = [
    "Counted",
    "Hurry",
    "Lives",
    "Message",
    "Ready",
    "Refused",
    "Total",
    "decoded",
    "encoded",
    "heard",
    "tell",
]


class Ready(msgspec.Struct, tag=True):
    """To the supervisor: the worker accepts requests, and finishes them within ``drain_timeout`` seconds."""

    drain_timeout: float


class Refused(msgspec.Struct, tag=True):
    """To the supervisor: why the worker serves nothing, which may hold for the others as well."""

    why: str


class Lives(msgspec.Struct, tag=True):
    """To the worker: is your app live? From the worker: it is, or why it is not."""

    why_not: str | None = None


class Hurry(msgspec.Struct, tag=True):
    """To the worker: do not wait for running requests."""


class Counted(msgspec.Struct, tag=True):
    """Without a text, to the worker: tell yours. With it, from the worker: these are mine."""

    text: str | None = None


class Total(msgspec.Struct, tag=True):
    """Without a text, from the worker: tell those of all. With it, to the worker: these are all."""

    text: str | None = None


Message = Ready | Refused | Lives | Hurry | Counted | Total

_decoder = msgspec.json.Decoder(Message)


def encoded(message: Message) -> bytes:
    """The line of a message."""
    return msgspec.json.encode(message) + b"\n"


def decoded(line: bytes) -> Any:
    """The message of a line."""
    return _decoder.decode(line)


_sending = threading.Lock()


def tell(connection: socket.socket, message: Message) -> None:
    """Send a message, from any thread of a worker."""
    with _sending:
        connection.sendall(encoded(message))


def heard(connection: socket.socket) -> Iterator[Any]:
    """The messages that come until the other side has ended; blocks."""
    with connection.makefile("rb") as lines:
        for line in lines:
            yield decoded(line)
