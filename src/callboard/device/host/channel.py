"""``Channel``: a context host's end of its line to the application."""

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING

from callboard.device.protocol.messages import Plain, ToHost
from callboard.device.protocol.wire import UnknownKind

if TYPE_CHECKING:
    from callboard.device.host.context.serve import ContextHost

__all__ = ["Channel", "ChannelClosed"]


class ChannelClosed(Exception):
    """The application has ended, or its stream is broken: the host exits at once."""


class Channel(abc.ABC):
    """Owned by the admitting thread, which makes every call but :meth:`send` and :meth:`wake`.

    Attributes:
        on_loop: The thread of the application's loop serves the context.
        shared: The admitting thread shares the GIL with the application and is not the application's own.
    """

    on_loop = False
    shared = False

    @abc.abstractmethod
    def receive(self, timeout: float | None) -> Sequence[ToHost | UnknownKind]:
        """Messages that have arrived, in order; possibly none.

        Args:
            timeout: Seconds to wait for the first one; 0 only looks (one system call at most), None waits until
                something comes or :meth:`wake` is called.

        Raises:
            ChannelClosed
            FrameError: The application sent an unreadable frame; the messages before it have been returned.
        """

    def spin(self, seconds: float) -> None:
        """Poll for messages for ``seconds``, or until one has arrived: a waiting process takes longer to be woken.

        A message is kept for :meth:`receive`. Does nothing if the application would have to share the GIL with that,
        nor for a while after it found nothing.
        """

    @abc.abstractmethod
    def send(self, message: Plain) -> None:
        """Queue a message and send as much as the line takes; never blocks. Any thread, unless it is ``on_loop``.

        Raises:
            ValueError: A process's message is longer than a frame may be.
        """

    @abc.abstractmethod
    def wake(self) -> None:
        """Make a waiting :meth:`receive` return. Any thread; cheap when no thread waits."""

    @abc.abstractmethod
    def map_arena(self, arena: int, nbytes: int, address: int) -> int:
        """The address, in this process, of the arena that a ``MapArena`` announced.

        Raises:
            TimeoutError: Its descriptor did not arrive.
            OSError: There is no room for it; it may be tried again.
        """

    @abc.abstractmethod
    def unmap_arena(self, arena: int) -> None:
        """Forget the arena, mapped or not; nothing uses it any more."""

    @abc.abstractmethod
    def busy(self, step: str | None) -> None:
        """Announce a long step of the calling thread (import, open, prepare, setup), which is then not a hang.

        None ends it. Any thread.
        """

    def open_to(self, host: "ContextHost") -> None:
        """The host that receives here may be visited while it waits; nothing where only messages reach it."""

    def serve_here(self) -> None:
        """The calling thread receives from now on."""

    @abc.abstractmethod
    def beat(self) -> None:
        """Called on every round of the admitting loop: proof of life (cheap: an assignment)."""

    def run_exit_handlers(self) -> None:
        """Run the functions that ``atexit`` has, if the process ends with the host. The context is still open."""

    @abc.abstractmethod
    def leave(self, code: int) -> None:
        """Send queued messages (1 s at most) and end: ``os._exit(code)`` in a process, ``SystemExit`` in a thread."""
