"""``NodeServer``: starts context hosts on its machine for applications on others, and relays between them."""

import asyncio
import contextlib
import ctypes
import logging
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from callboard.core import registry
from callboard.core.backend import DeviceInfo
from callboard.core.errors import BackendUnavailable
from callboard.device.protocol.arena import Arena
from callboard.device.protocol.arena.memory import shared_arena
from callboard.device.protocol.failures import as_failure
from callboard.device.protocol.handshake import LEAST, HandshakeError, accept_client
from callboard.device.protocol.messages import (
    ActorCall,
    Close,
    Completions,
    FromHost,
    Hello,
    MapArena,
    Open,
    Plain,
    ProtocolError,
    UnmapArena,
)
from callboard.device.protocol.remote import (
    RELAYED_FROM_HOST,
    RELAYED_TO_HOST,
    Bytes,
    Describe,
    Described,
    Fetch,
    HostEndMessage,
    Kill,
    Refused,
    Start,
    Started,
    ToNode,
)
from callboard.device.protocol.sharing import Join, ToHolder
from callboard.device.protocol.wire import FrameReader
from callboard.device.supervision.hosts.base import HostEnd
from callboard.device.supervision.hosts.process import ProcessHost
from callboard.device.supervision.remote.link import Link, pieces

__all__ = ["NodeServer"]

log = logging.getLogger("callboard.node")

FIRST = 30.0
"""Seconds without a word after which a connection is closed that has not started a host."""
BUSY = 60.0
"""Seconds an application may be silent while its machine still answers: its loop is busy, or stopped."""
LEAVE = 600.0
"""Seconds that a host gets to finish when it is asked to close; the application's own limit is shorter."""


class Guest(Protocol):
    """An application in a shared region, at the holder of its table."""

    def take(self, message: Plain) -> None: ...
    def cut(self) -> None: ...


class RegionHolder(Protocol):
    """Holds the tables of shared regions."""

    def enter(self, message: Join, send: Callable[[Plain], None], end: Callable[[str], None]) -> Guest:
        """Accept an application. Raises ``ValueError`` if it does not fit the region."""
        ...


class NodeServer:
    """Listens for applications that have the token.

    Args:
        token: Secret shared with the applications. It permits an application to run its own code on the node (resident
            actors).
        tls: TLS context for encrypted connections; None: they are not encrypted.
        holder: Holds the tables of shared regions; None: applications that share a region are refused.

    Raises:
        ValueError: The token is too short.
    """

    def __init__(self, token: str, tls: ssl.SSLContext | None = None, holder: RegionHolder | None = None) -> None:
        if len(token) < LEAST:
            raise ValueError(f"the token has {len(token)} characters; it needs at least {LEAST}")
        self._token = token
        self._tls = tls
        self._holder = holder
        self._server: asyncio.Server | None = None
        self._sessions: set[Session] = set()

    async def start(self, host: str, port: int = 0) -> tuple[str, int]:
        """Listen and return the address, with the port that was chosen for 0.

        Raises:
            OSError: The address cannot be listened at.
        """
        self._server = await asyncio.start_server(self._connected, host, port, ssl=self._tls)
        name = self._server.sockets[0].getsockname()
        return str(name[0]), int(name[1])

    async def close(self) -> None:
        """Stop listening, and end all hosts."""
        if self._server is not None:
            self._server.close()
        for session in list(self._sessions):
            session.end("the node is closed")
        await asyncio.gather(*(session.over.wait() for session in list(self._sessions)))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        try:
            await accept_client(reader, writer, self._token)
        except (HandshakeError, OSError, EOFError) as e:  # TimeoutError is an OSError
            log.warning("a connection from %s was refused: %s", peer, str(e) or type(e).__name__)
            writer.transport.abort()
            return
        session = Session(reader, writer, self._holder)
        self._sessions.add(session)
        await session.over.wait()
        self._sessions.discard(session)


class Session:
    """One connection: a question about a device, a context host, or an application in a shared region.

    Attributes:
        over: Set when nothing of it is left.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, holder: RegionHolder | None) -> None:
        self.over = asyncio.Event()
        self._holder = holder
        self._guest: Guest | None = None
        self._streams = reader, writer
        self._link: Link[Plain | memoryview] = Link(
            *(reader, writer, ToNode | ToHolder, 1.0, FIRST, self._first, self._cut), RELAYED_TO_HOST
        )
        self._completions: FrameReader[FromHost | memoryview] = FrameReader(FromHost, RELAYED_FROM_HOST - {Completions})
        self._host: ProcessHost | None = None
        self._device: list[Any] = []
        self._arenas: dict[int, Arena] = {}
        self._fetches: dict[int, list[int]] = {}
        self._early: list[Plain | memoryview] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._starting = False
        self._cut_because = ""

    def end(self, why: str) -> None:
        """End the host and the connection."""
        self._link.end(why)

    def _spawn(self, step: Any) -> None:
        task = asyncio.ensure_future(step)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- the first message ---------------------------------------------------------------------------------------------

    def _first(self, message: Plain | memoryview) -> None:
        if self._host is not None:
            self._take(message)
        elif self._starting:
            self._early.append(message)
        elif self._guest is not None and not isinstance(message, memoryview):
            self._guest.take(message)
        elif isinstance(message, Join):
            self._enter(message)
        elif isinstance(message, Describe):
            self._spawn(self._describe(message.which))
        elif isinstance(message, Start):
            self._starting = True
            self._spawn(self._start(message))
        else:
            raise ProtocolError(f"{type(message).__name__} before a host was started")

    def _enter(self, message: Join) -> None:
        try:
            if self._holder is None:
                raise BackendUnavailable("this process serves one device; it holds no table of a shared region")
            self._guest = self._holder.enter(message, self._link.send, self._link.end)
        except (BackendUnavailable, ValueError) as e:
            self._link.send(Refused(as_failure(0, e)))
            self._link.end("refused", flush=True)
        else:
            self._link.watch(message.lease / 5, max(message.lease, 1.0))

    async def _describe(self, which: str) -> None:
        try:
            _, info = await asyncio.to_thread(registry.resolve, which)
            self._link.send(Described(_wire(info)))
        except (BackendUnavailable, TypeError, ValueError) as e:
            self._link.send(Refused(as_failure(0, e)))

    async def _start(self, message: Start) -> None:
        loop = asyncio.get_running_loop()
        try:
            backend, info = await asyncio.to_thread(registry.resolve, message.which)
            self._device = _wire(info)
            host = await ProcessHost.start(
                loop,
                {**backend.environment(info), **self._reached()},
                self._said,
                self._ended,
                hang_after=message.hang_after,
                step_timeout=message.step_timeout,
                interval=message.interval,
                label=message.label,
                guardian=message.guardian,
                relayed=RELAYED_FROM_HOST,
            )
        except (BackendUnavailable, TypeError, ValueError, HostEnd) as e:
            error = BackendUnavailable(str(e)) if isinstance(e, HostEnd) else e
            self._link.send(Refused(as_failure(0, error)))
            self._link.end("no host could be started", flush=True)
            return
        self._host = host
        if self._cut_because:
            host.kill(self._cut_because)
            return
        self._give_up_after(message.lost_after)
        self._link.watch(message.interval, max(BUSY, message.lost_after))
        self._link.send(Started(host.pid, self._device))
        early, self._early = self._early, []
        for one in early:
            self._take(one)

    def _give_up_after(self, seconds: float) -> None:
        """Have the connection end when the other machine acknowledges nothing for ``seconds``.

        It does not matter what its application does.

        Signs of life are sent all the time, so there is always something to confirm.
        """
        name = getattr(socket, "TCP_USER_TIMEOUT", None)  # of Linux; elsewhere only BUSY counts
        raw = self._streams[1].get_extra_info("socket")
        if name is not None and raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, name, int(seconds * 1000))

    def _reached(self) -> dict[str, str]:
        """For the ranks of a world: the address of this machine that the application has used."""
        name = self._streams[1].get_extra_info("sockname")
        return {} if name is None else {"CALLBOARD_REACHED_AT": str(name[0])}

    # -- from the application ------------------------------------------------------------------------------------------

    def _take(self, message: Plain | memoryview) -> None:
        host = self._host
        assert host is not None
        if isinstance(message, memoryview):
            host.forward(message)
        elif isinstance(message, Bytes):
            arena = self._arenas.get(message.arena)
            if arena is None or not 0 <= message.offset <= arena.nbytes - len(message.data):
                raise ProtocolError(f"{len(message.data)} bytes at {message.offset} of arena {message.arena}")
            ctypes.memmove(arena.address + message.offset, message.data, len(message.data))
        elif isinstance(message, Fetch):
            self._fetches[message.call] = message.places
        elif isinstance(message, MapArena):
            arena = self._arenas[message.arena] = shared_arena(message.arena, message.nbytes)
            host.send_arena(arena)
        elif isinstance(message, UnmapArena):
            retired = self._arenas.pop(message.arena, None)
            if retired is not None:
                host.retire_arena(retired)
        elif isinstance(message, Open):
            host.post(msgspec.structs.replace(message, device=self._device))
        elif isinstance(message, Kill):
            host.kill(message.reason)
        elif isinstance(message, Close):
            self._spawn(host.close(LEAVE))
        else:
            if isinstance(message, ActorCall) and message.deadline:
                message.deadline += time.monotonic()
            host.post(message)

    def _cut(self, why: str, _: bool) -> None:
        """End the host, because the application is gone or cut off."""
        self._cut_because = f"the application is gone: {why}"
        if self._guest is not None:
            self._guest.cut()
        if self._host is not None:
            self._host.kill(self._cut_because)
        elif not self._starting:
            self.over.set()

    # -- from the host -------------------------------------------------------------------------------------------------

    def _said(self, message: FromHost | memoryview) -> None:
        if isinstance(message, Hello):
            return  # to this process
        if not isinstance(message, memoryview):
            self._link.send(message)
            return
        if self._fetches:
            for completions in self._completions.feed(message):
                if isinstance(completions, Completions):
                    self._send_fetched(completions)
        self._link.forward(message)

    def _send_fetched(self, message: Completions) -> None:
        """Send what the completed calls have written, which the application reads with their completion."""
        for call, _ in message.failed:
            self._fetches.pop(call, None)
        for call in (*message.done, *(call for call, _ in message.values)):
            places = self._fetches.pop(call, None)
            if places is not None:
                self._send_places(places)

    def _send_places(self, places: list[int]) -> None:
        for at in range(0, len(places), 3):
            name, offset, nbytes = places[at : at + 3]
            arena = self._arenas.get(name)
            if arena is None or not 0 <= offset <= arena.nbytes - nbytes:
                raise ProtocolError(f"{nbytes} bytes at {offset} of arena {name} are requested")
            self._link.send(*pieces(name, offset, arena.address + offset, nbytes))

    def _ended(self, end: HostEnd) -> None:
        log.info("a context host has ended: %s", str(end))
        self._link.send(HostEndMessage(end.reason, end.detail, end.details))
        self._link.end("the host has ended", flush=True)
        self._spawn(self._over())

    async def _over(self) -> None:
        if self._host is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(10.0):
                    await asyncio.shield(self._host.reaped)
        self.over.set()


def _wire(info: DeviceInfo) -> list[Any]:
    return list(msgspec.to_builtins(info))
