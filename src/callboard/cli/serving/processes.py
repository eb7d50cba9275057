"""``WorkerProcess``: a worker of ``callboard serve`` as its supervisor sees it: process, messages, listening socket."""

import argparse
import asyncio
import contextlib
import json
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from callboard.cli.serving.channel import Message, decoded, encoded

__all__ = ["BACKLOG", "WorkerProcess", "how_it_ended", "on_same_port", "started"]

LONGEST_LINE = 1 << 26
BACKLOG = 2048


@dataclass(eq=False)
class WorkerProcess:
    """One process.

    Attributes:
        number: Its place, from 0: where one replaces another, both have the same.
        process: The process.
        writer: The connection to it.
        listener: The socket that it listens on, for the process that replaces it; None: it is closed here, so that the
            connections that wait there are reset when the process ends.
        key: Of its figures: its number while it has its place, else a negative one.
        ready: It accepts requests, or did.
        since: When it was ready, by the loop's clock.
        drain_timeout: Seconds in which it finishes requests.
        asked: Questions whether it is live that it has not answered.
        why_not_live: The answer, if it is not.
        refused: Why it serves nothing.
        told: Set when its figures have come.
        was_reset: Its socket was reset, because the process before it has ended.
        ended: The exit code, when the process has ended and its messages are read.
        changed: Set when it is ready, or has ended.
        left: Set when it has ended, or another process has its place.
    """

    number: int
    process: asyncio.subprocess.Process
    writer: asyncio.StreamWriter
    listener: socket.socket | None = None
    key: int = field(init=False)
    ready: bool = False
    since: float = 0.0
    drain_timeout: float = 0.0
    asked: int = 0
    why_not_live: str | None = None
    refused: str | None = None
    told: asyncio.Event = field(default_factory=asyncio.Event)
    was_reset: bool = False
    ended: "asyncio.Task[int] | None" = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.key = -self.process.pid

    def __str__(self) -> str:
        return f"worker {self.number} (process {self.process.pid})"

    def tell(self, message: Message) -> None:
        """Send a message, unless its process has ended."""
        with contextlib.suppress(OSError):
            self.writer.write(encoded(message))

    def terminate(self) -> None:
        """Ask it to drain and end."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    def close_listener(self) -> None:
        """Leave its socket to the process alone."""
        if self.listener is not None:
            self.listener.close()
            self.listener = None

    def reset_listener(self) -> None:
        """Have the kernel give connections to other sockets of the port until this process listens, where it can."""
        if self.listener is not None:
            with contextlib.suppress(OSError):  # it does not listen
                self.listener.shutdown(socket.SHUT_RDWR)
            self.was_reset = True

    def listen_again(self) -> None:
        """Undo a reset that came after the process had begun to listen."""
        if self.was_reset and self.listener is not None:
            if not self.listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                self.listener.listen(BACKLOG)
            self.was_reset = False

    async def end(self, timeout: float) -> bool:
        """Ask it to end, and end it after so many seconds; False: it had to be killed."""
        self.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self.process.wait()
        if self.process.returncode is not None:
            return True
        self.kill()
        return False


async def started(
    number: int,
    given: argparse.Namespace,
    listener: socket.socket,
    *,
    late: bool,
    hear: Callable[[WorkerProcess, Any], object],
    ended: Callable[[WorkerProcess], Awaitable[None]],
) -> WorkerProcess:
    """Start a worker.

    Args:
        number: Its place.
        given: The options of the command.
        listener: The socket that it listens on; it is closed when the process has ended.
        late: It listens when its app accepts requests, because others do before.
        hear: Called with each of its messages.
        ended: Awaited when it has ended.
    """
    ours, theirs = socket.socketpair()
    options = {name: value for name, value in vars(given).items() if name != "run"}
    about = {
        "number": number,
        "channel": theirs.fileno(),
        "listener": listener.fileno(),
        "late": late,
        "options": options,
    }
    with theirs:
        command = [sys.executable, "-m", "callboard.cli.serving.worker", json.dumps(about, default=str)]
        fds = (theirs.fileno(), listener.fileno())
        process = await asyncio.create_subprocess_exec(*command, pass_fds=fds)
    reader, writer = await asyncio.open_connection(sock=ours, limit=LONGEST_LINE)
    worker = WorkerProcess(number, process, writer, listener)

    async def life() -> int:
        try:
            async for line in reader:
                hear(worker, decoded(line))
        except OSError:  # it was killed
            pass
        finally:
            writer.close()
        code = await process.wait()
        worker.changed.set()
        await ended(worker)
        worker.left.set()
        return code

    worker.ended = asyncio.create_task(life(), name=str(worker))
    return worker


def on_same_port(listener: socket.socket) -> socket.socket:
    """Another socket on the port of this one, which does not listen: the kernel divides connections among them."""
    found = socket.socket(listener.family)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        found.bind(listener.getsockname())
        found.setblocking(False)
    except OSError:
        found.close()
        raise
    return found


def how_it_ended(code: int) -> str:
    """The end of a process with this exit code, in words."""
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
