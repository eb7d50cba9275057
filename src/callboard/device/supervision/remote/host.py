"""``RemoteHost``: a context host on another machine, which a node there has started."""

import asyncio
import contextlib
import ctypes
import ssl
import time
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple, Protocol

import msgspec

from callboard.core.backend import DeviceInfo
from callboard.core.errors import BackendUnavailable
from callboard.device.protocol.arena import Arena
from callboard.device.protocol.failures import as_error
from callboard.device.protocol.handshake import HandshakeError, greet_server
from callboard.device.protocol.messages import (
    ActorCall,
    Arrived,
    Call,
    Calls,
    Close,
    Closed,
    FromHost,
    MapArena,
    Plain,
    ProtocolError,
    Room,
    RoomWanted,
    Traces,
)
from callboard.device.protocol.remote import (
    Bytes,
    Describe,
    Described,
    Fetch,
    FromNode,
    HostEndMessage,
    Kill,
    Refused,
    Start,
    Started,
)
from callboard.device.supervision.hosts.base import Host, HostEnd, Unreached
from callboard.device.supervision.remote.clock import RemoteClock
from callboard.device.supervision.remote.link import Link, Piece, pieces
from callboard.device.supervision.remote.parts import HostOperand, host_parts

__all__ = ["Address", "Lease", "RemoteHost", "describe", "open_node"]

ANSWER = 60.0
"""Seconds that a node gets to name a device or to start a host."""
MOST_SIGNATURES = 8192


class Lease(Protocol):
    """State of a node from another source than its connections.

    Attributes:
        gone: Resolves with the reason when the node is known to be lost.
    """

    @property
    def gone(self) -> "asyncio.Future[str]": ...

    def cut(self, why: str) -> None:
        """A connection to the node was cut, or could not be opened."""
        ...


class Address(NamedTuple):
    """The address of a node, and its connection parameters.

    Attributes:
        host, port: Host and port of its socket.
        token: Secret that the node shares with its applications.
        tls: TLS context of an encrypted connection; None: it is not encrypted.
        server_name: Name in the node's certificate; empty: ``host``.
        lease: Lease of a node that is also watched by other means; None otherwise.
    """

    host: str
    port: int
    token: str
    tls: ssl.SSLContext | None = None
    server_name: str = ""
    lease: Lease | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


async def open_node(address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection whose handshake is done.

    Raises:
        HostEnd: ``"failed to start"``, with the reason; :class:`Unreached` if the node may answer later. One with a
            lease is replaced by another one.
    """
    try:
        async with asyncio.timeout(ANSWER):
            name = (address.server_name or None) if address.tls is not None else None
            reader, writer = await asyncio.open_connection(
                address.host, address.port, ssl=address.tls, server_hostname=name
            )
        try:
            await greet_server(reader, writer, address.token)
        except BaseException:  # a cancel, too
            writer.transport.abort()
            raise
    except (HandshakeError, OSError, EOFError) as e:  # TimeoutError is an OSError
        if address.lease is not None:
            address.lease.cut(str(e) or type(e).__name__)
        later = address.lease is None and not isinstance(e, HandshakeError)
        raise (Unreached if later else HostEnd)(
            "failed to start", f"node {address}: {str(e) or type(e).__name__}"
        ) from e
    return reader, writer


async def describe(address: Address, which: str) -> DeviceInfo:
    """The device of a node that a name means.

    Raises:
        BackendUnavailable: There is no such device, or the node cannot be reached.
    """
    answer: asyncio.Future[Plain] = asyncio.get_running_loop().create_future()
    try:
        reader, writer = await open_node(address)
    except HostEnd as e:
        raise BackendUnavailable(e.detail) from e
    link: Link[Plain] = Link(
        *(reader, writer, FromNode, 1.0, ANSWER),
        lambda m: _settle(answer, m),
        lambda why, _: _settle(answer, None, why),
    )
    link.send(Describe(which))
    try:
        message = await answer
    finally:
        link.end("answered", flush=True)
    if isinstance(message, Refused):
        raise as_error(message.failure)
    if not isinstance(message, Described):
        raise BackendUnavailable(f"node {address} answered with {type(message).__name__}")
    return msgspec.convert(message.device, DeviceInfo)


def _settle(answer: "asyncio.Future[Plain]", message: Plain | None, why: str = "") -> None:
    if answer.done():
        return
    if message is None:
        answer.set_exception(BackendUnavailable(f"the node did not answer: {why}"))
    else:
        answer.set_result(message)


class RemoteHost(Host):
    """The application's end. Create it with :meth:`start`.

    When the connection is cut, the host has ended for this process, whatever its state on the node: later messages are
    not read, and the node ends the host when it misses this end.
    """

    batch: ClassVar[int] = 256  # a frame wakes three processes

    def __init__(self, address: Address, on_message: Callable[[FromHost], None], on_end: Callable[[HostEnd], None]):
        self.pid = 0
        self.address = address
        self._loop = asyncio.get_running_loop()
        self.reaped = self._loop.create_future()
        self._on_message = on_message
        self._on_end = on_end
        self._started: asyncio.Future[Plain] = self._loop.create_future()
        self._arenas: dict[int, tuple[int, int]] = {}  # address and size
        self._parts: dict[bytes, Sequence[HostOperand]] = {}
        self._rooms: dict[int, int] = {}  # bytes wanted, by call
        self._clock = RemoteClock()
        self._closing = False
        self._ended: HostEnd | None = None
        self._link: Link[FromNode]

    @classmethod
    async def start(
        cls,
        address: Address,
        message: Start,
        on_message: Callable[[FromHost], None],
        on_end: Callable[[HostEnd], None],
    ) -> "RemoteHost":
        """Have the node start a host.

        Raises:
            HostEnd: ``"failed to start"``: the node cannot be reached, refuses the token, or could not start it.
            BackendUnavailable: It has no such device.
        """
        host = cls(address, on_message, on_end)
        reader, writer = await open_node(address)
        host._link = Link(reader, writer, FromNode, message.interval, ANSWER, host._take, host._cut)
        host._link.send(message)
        try:
            answer = await host._started
        except BaseException:  # a cancel, too
            host._link.end("given up")
            raise
        if isinstance(answer, Refused):
            host._link.end("refused")
            raise as_error(answer.failure)
        host._link.watch(message.interval, message.lost_after)
        if address.lease is not None:
            address.lease.gone.add_done_callback(host._gone)
        return host

    # -- to the host ---------------------------------------------------------------------------------------------------

    def post(self, message: Plain) -> None:
        if self._ended is not None:
            return
        if type(message) is Calls:
            before: list[Plain | Piece] = []
            parts_of = self._parts
            for call in message.calls:
                parts = parts_of.get(call.signature)
                if parts != () and not call.withdrawn:
                    self._carry(call, parts, before)
            self._link.send(*before, message)
        elif isinstance(message, ActorCall):
            self._link.send(*self._of_actor(message), message)
        elif isinstance(message, Arrived) and len(message.where) == 2:
            bytes_of: list[Plain | Piece] = []
            arena, offset = message.where
            self._bytes(arena, offset, message.nbytes, bytes_of)
            self._link.send(*bytes_of, message)
        elif isinstance(message, Room) and message.place:
            arena, offset = message.place
            self._link.send(Fetch(message.id, [arena, offset, self._rooms.pop(message.id, 0)]), message)
        else:
            self._link.send(message)

    def _carry(self, call: Call, parts: Sequence[HostOperand] | None, before: "list[Plain | Piece]") -> None:
        """Send the contents of the host operands of a call."""
        if parts is None:
            if len(self._parts) >= MOST_SIGNATURES:
                self._parts.clear()
            parts = self._parts[call.signature] = tuple(host_parts(call.signature)) if call.signature else ()
        places: list[int] = []
        for at, reads, spans in parts:
            arena, offset = call.bindings[2 * at : 2 * at + 2]
            for low, high in spans:
                if reads:
                    self._bytes(arena, offset + low, high - low, before)
                else:
                    places += (arena, offset + low, high - low)
        if places:
            before.append(Fetch(call.id, places))

    def _of_actor(self, call: ActorCall) -> "list[Plain | Piece]":
        before: list[Plain | Piece] = []
        if call.deadline:
            call.deadline = max(call.deadline - time.monotonic(), 1e-6)
        if call.staged:
            arena, offset, nbytes = call.staged
            self._bytes(arena, offset, nbytes, before)
        if call.room:
            before.append(Fetch(call.id, list(call.room)))
        return before

    def _bytes(self, arena: int, offset: int, nbytes: int, before: "list[Plain | Piece]") -> None:
        address, size = self._arenas[arena]
        assert 0 <= offset <= size - nbytes
        before.extend(pieces(arena, offset, address + offset, nbytes))

    def send_arena(self, arena: Arena) -> None:
        self._arenas[arena.id] = arena.address, arena.nbytes
        self.post(MapArena(arena.id, arena.nbytes))

    def retire_arena(self, arena: Arena) -> None:
        self._arenas.pop(arena.id, None)
        super().retire_arena(arena)

    def linger(self, done: Callable[[], bool], seconds: float) -> bool:
        return done()  # a round trip takes longer than the loop may be held

    @property
    def unsent_bytes(self) -> int:
        return self._link.unsent_bytes

    def pause_watch(self, paused: bool) -> None:
        """Do nothing: the node watches the host."""

    def kill(self, reason: str) -> None:
        if self._ended is None:
            self._link.forget()
            with contextlib.suppress(ValueError):
                self._link.send(Kill(reason))
            self._finish(HostEnd("killed", reason), flush=True)

    async def close(self, timeout: float) -> None:
        self._closing = True
        self.post(Close())
        await asyncio.wait([self.reaped], timeout=timeout)
        self.kill(f"still busy {timeout:g} s after it was asked to close")

    # -- from the host -------------------------------------------------------------------------------------------------

    def _take(self, message: FromNode) -> None:
        if not self._started.done():
            if not isinstance(message, Started | Refused):
                raise ProtocolError(f"{type(message).__name__} before it has started")
            if isinstance(message, Started):
                self.pid = message.pid  # from now on its end is reported, also if that is read before `start` goes on
            self._started.set_result(message)
        elif isinstance(message, Bytes):
            address, size = self._arenas.get(message.arena, (0, -1))
            if not 0 <= message.offset <= size - len(message.data):
                raise ProtocolError(f"{len(message.data)} bytes at {message.offset} of arena {message.arena}")
            ctypes.memmove(address + message.offset, message.data, len(message.data))
        elif isinstance(message, HostEndMessage):
            self._finish(HostEnd(message.reason, message.detail, message.details))
        elif isinstance(message, Closed) and not self._closing:
            raise ProtocolError("Closed at the wrong time")
        else:
            if isinstance(message, RoomWanted):
                self._rooms[message.id] = message.nbytes
            elif isinstance(message, Traces):
                message = self._clock.translated(message, time.monotonic())
            self._on_message(message)  # type: ignore[arg-type]

    def _gone(self, gone: "asyncio.Future[str]") -> None:
        if not gone.cancelled():
            self._cut(gone.result(), False)

    def _cut(self, why: str, unreadable: bool) -> None:
        if unreadable and self._started.done():  # a message of the host, which the node relays unread
            self._finish(HostEnd("broken", why))
            return
        if self.address.lease is not None and self._ended is None:
            self.address.lease.cut(why)
        if not self._started.done():
            self._started.set_exception(HostEnd("failed to start", f"node {self.address}: {why}"))
        self._finish(HostEnd("cut off", f"node {self.address}: {why}"))

    def _finish(self, end: HostEnd, *, flush: bool = False) -> None:
        if self._ended is not None:
            return
        self._ended = end
        self._link.end(end.reason, flush=flush)
        self._arenas.clear()
        if self.address.lease is not None:
            self.address.lease.gone.remove_done_callback(self._gone)
        if not self.reaped.done():
            self.reaped.set_result(None)  # nothing that it writes gets here any more
        if self.pid:
            self._loop.call_soon(self._on_end, end)
