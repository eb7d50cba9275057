"""``Host``: the application's end of a context host."""

import abc
import asyncio
from collections.abc import Callable
from typing import ClassVar

from callboard.core.errors import ContextPoisoned
from callboard.device.protocol.arena import Arena
from callboard.device.protocol.control import EndWorld
from callboard.device.protocol.messages import Call, Calls, FromHost, Plain, ProtocolError, UnmapArena

__all__ = ["GIVEN_UP", "Host", "HostEnd", "Unreached", "unreadable"]

GIVEN_UP = 0.75
"""Seconds that closing waits for what a thread that was given up had begun; it drops what it had not."""

OnMessage = Callable[[FromHost], None]


class HostEnd(Exception):
    """The reason why a host ended.

    Attributes:
        reason: ``"closed"``, ``"exited"``, ``"crashed"`` (a signal that faulthandler reported), ``"killed"``,
            ``"hung"``, ``"broken"`` (the stream) or ``"failed to start"``.
        detail: Exit code or signal, place of a crash, last lines of its stderr, the frame error …
        details: The output of faulthandler about the crash or hang; empty when there is none.
    """

    def __init__(self, reason: str, detail: str = "", details: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail
        self.details = details

    def as_loss(self, device: str) -> ContextPoisoned:
        """The loss of the context that the host held."""
        how = f"crashed: {self.detail}" if self.reason == "crashed" else f"ended ({self})"
        return ContextPoisoned(f"{device}: the context host {how}", details=self.details)


class Unreached(HostEnd):
    """A machine does not answer, which may be starting again."""


def unreadable(error: Exception) -> str:
    """The reason for replacing a host that sent an invalid message."""
    why = str(error) if isinstance(error, ProtocolError) else f"{type(error).__name__}: {error}"
    return f"the host sent a message that cannot be read: {why}"


class Host(abc.ABC):
    """A process or thread that holds a context. Belongs to one loop; only :meth:`post` is called on other threads.

    A host is created started. It calls ``on_message(message)`` for each message in order and, once and last,
    ``on_end(HostEnd)``; both on the loop's thread. ``ContextDied`` comes as a message,
    before the end. A host whose message makes ``on_message`` raise is ended, as ``"broken"``.

    Attributes:
        pid: Process id; this process's own for a thread.
        reaped: Resolves when nothing of the host can run or write any more: its process has been waited for, and those
            that it had started have ended; its thread is joined.
        here: It admits on the loop's thread: calls gain nothing by being sent together.
        batch: Most queued calls of a burst before they are sent.
    """

    pid: int
    reaped: "asyncio.Future[None]"
    here: ClassVar[bool] = False
    batch: ClassVar[int] = 64

    @abc.abstractmethod
    def post(self, message: Plain) -> None:
        """Send a message, at once when called on the loop's thread, where calls must be posted. Never blocks.

        Messages of one thread arrive in order. Messages to a dead host are dropped: ``on_end`` has been, or will be,
        called.

        Raises:
            RuntimeError: In a forked process.
            ValueError: A process's message is longer than a frame may be.
        """

    def admit(self, call: Call) -> bool:
        """Take a call at once, without waiting to batch it with others. Nothing is reported before this returns.

        Returns:
            False: not now; post it. Raises as :meth:`post`.
        """
        self.post(Calls([call]))
        return True

    def execute(self, call: Call) -> bool:
        """Do the work of a call now, if that is known to be short and nothing is in flight. On the loop's thread.

        Its completion is reported by :meth:`linger`, or in the loop's next iteration.

        Returns:
            False: nothing has been done; admit or post it.
        """
        return False

    def deliver(self) -> None:
        """Take the messages that have come, if that costs nothing. On the loop's thread."""
        return

    @abc.abstractmethod
    def send_arena(self, arena: Arena) -> None:
        """Post ``MapArena``, and with it the descriptor if one is needed, which may be closed afterwards.

        A host in this process keeps the memory until it has unmapped it, and until its last thread has ended.
        """

    def retire_arena(self, arena: Arena) -> None:
        """Post ``UnmapArena``."""
        self.post(UnmapArena(arena.id))

    def end_world(self, message: EndWorld) -> None:
        """End the members of a world that lost a rank, even if the serving thread is blocked.

        Does nothing for a host on the loop's thread or on a node: there the ``Leave`` op alone ends the world.
        """
        return

    @abc.abstractmethod
    def linger(self, done: Callable[[], bool], seconds: float) -> bool:
        """Take messages without the loop until ``done()``, for ``seconds`` at most. On the loop's thread.

        Returns:
            Whether it is done.
        """

    @property
    @abc.abstractmethod
    def unsent_bytes(self) -> int:
        """Bytes that wait for the socket; 0 for a thread."""

    @abc.abstractmethod
    def pause_watch(self, paused: bool) -> None:
        """Begin or end an announced long step, during which missing heartbeats do not count as a hang."""

    @abc.abstractmethod
    def kill(self, reason: str) -> None:
        """End it now, without grace; ``on_end`` follows."""

    def kill_stuck(self, reason: str) -> None:
        """End it as :meth:`kill`; a process of this machine gets half a second to write the stacks of its threads."""
        self.kill(reason)

    @abc.abstractmethod
    async def close(self, timeout: float) -> None:
        """Ask it to leave (``Close``), wait ``timeout`` seconds at most, then kill it; returns when it is reaped.

        A host that cannot be killed (a thread in a call, a process in the driver) is waited for once more, then
        abandoned with an error in the log.
        """
