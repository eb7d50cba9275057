"""``AccelStream``: a queue of work on a device."""

import abc
from collections.abc import Callable

from callboard.core.backend.events import AccelEvent
from callboard.core.backend.graphs import AccelGraph
from callboard.core.errors import UnsupportedOp

__all__ = ["AccelStream"]


class AccelStream(abc.ABC):
    """A queue of work, executed in order; different streams run concurrently.

    Attributes:
        id: Small number, unique in the device.
        native: The vendor's handle, 0 where there is none.
    """

    id: int
    native: int

    @abc.abstractmethod
    def record(self) -> AccelEvent:
        """An event behind all work enqueued so far."""

    @abc.abstractmethod
    def query(self) -> bool:
        """True if all work enqueued so far is done: cheaper than an event if nothing has been enqueued after it.

        Raises:
            AccelError: As :meth:`AccelEvent.query`.
        """

    @abc.abstractmethod
    def recycle(self, event: AccelEvent) -> None:
        """Reuse an event of :meth:`record` that will not be queried again."""

    @abc.abstractmethod
    def wait(self, event: AccelEvent) -> None:
        """Make work enqueued from now on wait for an event of any stream."""

    def follow(self, native: int) -> None:
        """Make work enqueued from now on wait for the present work of a foreign stream, given its native handle.

        Does nothing where there are no such streams.
        """

    @property
    def waited(self) -> "AccelStream":
        """The stream for a thread that waits for each of its ops: this stream, or one that executes at once.

        Only one thread may use it, and no other may use this stream meanwhile.
        """
        return self

    @property
    def at_once(self) -> "AccelStream | None":
        """The stream as one that executes work on the submitting thread, before submitting returns.

        None where there is no such stream, and while this one has work. Its user submits to neither meanwhile.
        """
        return None

    def capture(self, enqueue: Callable[[], None], into: AccelGraph | None = None) -> AccelGraph:
        """Record the work ``enqueue`` puts on this stream instead of running it.

        Args:
            enqueue: Enqueues the work.
            into: A graph of this device that need not be launched any more as it is. Where it is alike but for
                addresses and numbers, it takes the recording, which costs less than a graph.

        Returns:
            ``into``, if it has taken the recording; what has been launched of it is not changed. Or a new graph.

        Raises:
            UnsupportedOp: This backend records nothing.
            AccelError: Something in it cannot be recorded.
        """
        raise UnsupportedOp(f"{type(self).__name__} records no graphs")

    @abc.abstractmethod
    def signal(self, semaphore: int) -> bool:
        """Post the ``sem_t`` at this address when the work enqueued so far is done, without the GIL.

        A stream with a sticky error may never post it, so a waiter also polls events from time to time.

        Returns:
            Whether this backend can do it.
        """

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Block until all its work is done, without holding the GIL; raises as :meth:`AccelEvent.query`."""

    def give_up(self) -> None:
        """Drop the work that has not begun, where that can be done: nobody waits for it. Does not wait.

        The work that has begun goes on, and uses its memory until :meth:`query` returns True, or raises: nothing is
        enqueued any more.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Destroy the stream, whose work is done."""
