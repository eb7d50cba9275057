"""Hosts that are processes to the application and live in this one: what they send can be changed on the way.

Everything above the descriptors of a child process is real, and so is the context; only the process is not.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any
from unittest import mock

from callboard.device.host.context.serve import serve
from callboard.device.host.socketchannel import Pulse, SocketChannel
from callboard.device.protocol.arena import ArenaPool
from callboard.device.protocol.control import control_pair
from callboard.device.protocol.messages import VERSION, Calls, FromHost, Hello, MapArena, Plain, ToHost
from callboard.device.protocol.signatures import SignatureReader
from callboard.device.protocol.wire import FrameReader, encode_frame
from callboard.device.supervision.hosts import process
from callboard.device.supervision.hosts.base import HostEnd
from callboard.device.supervision.hosts.launch import Launched
from callboard.device.supervision.hosts.loop import LoopHost
from callboard.device.supervision.hosts.monitor import WatchedHost

__all__ = ["Tampering", "served", "tampering"]


class Tampering:
    """What is done to the frames of all hosts.

    Attributes:
        tamper: Given each frame of a host, returns the bytes that are sent instead.
        heard: Given the bytes that a host receives.
        arenas: Of the device; set it when the device is open.
        acting: A host acts now, and not the application.
        sender: Process id of the host whose frame is given to ``tamper``.
        started: Hosts started so far.
    """

    def __init__(self) -> None:
        self.tamper: Callable[[bytes], bytes] = lambda frame: frame
        self.heard: Callable[[bytes], object] = lambda data: None
        self.arenas: ArenaPool | None = None
        self.acting = False
        self.sender = 0
        self.started = 0
        self.children: dict[int, _Child] = {}

    @contextlib.contextmanager
    def act(self) -> Iterator[None]:
        """The host acts, not the application."""
        before, self.acting = self.acting, True
        try:
            yield
        finally:
            self.acting = before


@contextlib.contextmanager
def tampering() -> Iterator[Tampering]:
    """Devices with ``isolation="process"`` get such hosts."""
    line = Tampering()

    async def launch(arguments: list[str], environment: object) -> Launched:
        line.started += 1
        return _Child(asyncio.get_running_loop(), line).launched

    def send_signal(pidfd: int, number: int) -> None:
        child = line.children.get(pidfd)
        if child is None:
            raise ProcessLookupError
        child.die()

    signals = SimpleNamespace(pidfd_send_signal=send_signal, SIGKILL=signal.SIGKILL)
    with (
        mock.patch.object(process, "launch", launch),
        mock.patch.object(process, "signal", signals),
        mock.patch.object(process, "wait_status", return_value="ended"),
        mock.patch.object(process, "default_monitor", _Monitor),
    ):
        yield line


def served(
    frames: Iterable[bytes],
    arenas: Mapping[int, int] | None = None,
    *,
    ends: bool = True,
    keep: Callable[[SocketChannel], object] = lambda channel: None,
) -> tuple[int, list[Any]]:
    """What a context host that is sent these frames exits with, and says.

    Args:
        frames: Less than a socket's buffer holds.
        arenas: Descriptors, by id; copies of them are handed over.
        ends: The application is gone behind them.
        keep: Given the channel, with the memory that it has mapped: unlike those of a process, its threads may still
            finish an op there.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"".join(frames))
        if ends:
            ours.shutdown(socket.SHUT_WR)
        channel = SocketChannel(theirs, Pulse())
        for arena, descriptor in (arenas or {}).items():
            channel.take_descriptor(arena, os.dup(descriptor))
        said = bytearray()
        try:
            with mock.patch.object(channel, "run_exit_handlers"):  # they are those of the tests: this process goes on
                code = serve(channel, lives_on=True)
            while channel._outgoing:
                channel._flush()
                said += ours.recv(1 << 20)
        finally:
            weakref.finalize(channel, os.close, channel._bell)  # threads of the host's actors may still ring it
            for descriptor in channel._descriptors.values():
                os.close(descriptor)
            keep(channel)
        theirs.close()
        while data := ours.recv(1 << 20):
            said += data
    reader: FrameReader[Any] = FrameReader(FromHost)
    return code, list(reader.feed(said))


class _Child:
    """The other end of the descriptors of a ``ProcessHost``."""

    def __init__(self, loop: asyncio.AbstractEventLoop, line: Tampering) -> None:
        ops, self._sock = socket.socketpair()
        ops.setblocking(False)
        self._sock.setblocking(False)
        control, self._control = control_pair()
        pipes = [os.pipe(), os.pipe()]
        for _, writing in pipes:
            os.close(writing)
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)  # readable when the process has ended
        pidfd = os.dup(self._bell)
        line.children[pidfd] = self
        self._pidfd = pidfd
        self.launched = Launched(next(_pids), pidfd, ops, control, pipes[0][0], pipes[1][0])
        self._loop = loop
        self._line = line
        self._reader: FrameReader[ToHost] = FrameReader(ToHost)
        self._signatures = SignatureReader()
        self._outgoing = bytearray()
        self._dead = False
        self._host = LoopHost(loop, self._say, self._ended, "tampered")
        loop.add_reader(self._sock, self._readable)
        self._say(Hello(VERSION, self.launched.pid))

    def _readable(self) -> None:
        try:
            data = self._sock.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.die()
            return
        self._line.heard(data)
        with self._line.act():
            for message in self._reader.feed(data):
                if isinstance(message, Calls):
                    self._signatures.restore(message)
                elif isinstance(message, MapArena):
                    message.address = self._address(message.arena)
                assert isinstance(message, Plain)
                self._host.post(message)

    def _address(self, arena: int) -> int:
        assert self._line.arenas is not None
        # One that has been given up meanwhile is unmapped by the next message, and not used before.
        return next((a.address for a in self._line.arenas.arenas if a.id == arena), 0)

    def _say(self, message: FromHost) -> None:
        if not self._dead:
            self._line.sender = self.launched.pid
            self._outgoing += self._line.tamper(bytes(encode_frame(message)))
            self._send()

    def _send(self) -> None:
        try:
            del self._outgoing[: self._sock.send(self._outgoing)]
        except BlockingIOError:
            pass
        except OSError:
            self._outgoing.clear()
        if self._outgoing:
            self._loop.add_writer(self._sock, self._send)
        else:
            self._loop.remove_writer(self._sock)

    def _ended(self, end: HostEnd) -> None:
        if self._outgoing:
            self._loop.call_soon(self._ended, end)
        else:
            self.die()

    def die(self) -> None:
        """The process ends."""
        if self._dead:
            return
        self._dead = True
        self._line.children.pop(self._pidfd, None)
        with self._line.act():
            self._host.kill("killed")
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()
        self._control.close()
        os.eventfd_write(self._bell, 1)
        os.close(self._bell)


class _Monitor:
    """Watches nothing; closes what it was given."""

    def add(self, host: WatchedHost) -> None: ...

    def remove(self, host: WatchedHost, done: Callable[[], None]) -> None:
        host.close()
        done()


_pids = itertools.count(1 << 30)  # no process has one
