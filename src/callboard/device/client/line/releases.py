"""Releases: ids of buffers whose last ref was dropped, to be sent to the host."""

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable

__all__ = ["FEW", "SMALL", "Releases"]


FEW = 16
"""Limit of small buffers that wait, by default."""
SMALL = 1 << 18
"""Limit of the size of a small buffer, in bytes."""


class Releases:
    """A deque of buffer ids that wakes the loop once per burst.

    :meth:`append` is called by ``__del__``: on any thread, at any moment, also inside a garbage collection. So it
    touches no loop, logs nothing, and takes no lock but one that is held for a single write. It writes to a descriptor
    that the loop reads, unless that has been done already.

    Attributes:
        ids: The ids, in the order of their release.
        small: The sink of small buffers, which are freed together: to free each by itself costs as much as a small op.
        pressing: True if the ids must be freed before the next call.
        few: Limit of small buffers that wait.
        due: The loop is going to take them in any case, soon. Set to False before they are taken.
    """

    __slots__ = ("_armed", "_read", "_reads", "_using", "_write", "due", "few", "ids", "pressing", "small")

    def __init__(self) -> None:
        self.ids: deque[int] = deque()
        self.small = SmallReleases(self)
        self.pressing = False
        self.few = FEW
        self.due = False
        self._armed = False
        self._reads = False
        # Once closed, the descriptor's number may be that of another file. Re-entrant: a collection may come inside.
        self._using = threading.RLock()
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()

    def append(self, buffer: int) -> None:
        """Note an id."""
        self.ids.append(buffer)
        self.pressing = True  # after the id: an id that is taken meanwhile leaves nothing to send
        self.wake()

    def wake(self) -> None:
        """Have the loop take them."""
        if not (self._armed or self.due):
            self._armed = True
            try:
                with self._using, contextlib.suppress(OSError):  # closed, or full: then the loop is awake, or gone
                    os.write(self._write, b"\0")
            except BaseException:  # Ctrl-C, too: the next id wakes the loop
                self._armed = False
                raise

    def __bool__(self) -> bool:
        return bool(self.ids)

    def fileno(self) -> int:
        """Readable after a burst began."""
        return self._read

    def watch(self, loop: asyncio.AbstractEventLoop, seen: Callable[[], None]) -> None:
        """Have the loop call ``seen`` after a burst began; through a thread, where a loop reads no descriptors."""
        try:
            loop.add_reader(self, seen)
        except NotImplementedError:  # Windows
            self._reads = True
            threading.Thread(target=self._listen, args=(loop, seen), name="callboard-releases", daemon=True).start()

    def _listen(self, loop: asyncio.AbstractEventLoop, seen: Callable[[], None]) -> None:
        descriptor = self._read
        with contextlib.suppress(RuntimeError):  # the loop is closed
            while os.read(descriptor, 64):
                loop.call_soon_threadsafe(seen)
        os.close(descriptor)

    def rearm(self) -> None:
        """The loop has seen the burst."""
        if not self._reads:
            with contextlib.suppress(BlockingIOError):
                os.read(self._read, 64)
        self._armed = False

    def close(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Release the descriptors, once; later ids are discarded.

        Args:
            loop: The one that watches them; None in a forked child, which has none.
        """
        self._armed = True
        if self._read >= 0:
            if loop is not None and not self._reads:
                loop.remove_reader(self)
            with self._using if loop is not None else contextlib.nullcontext():  # a fork may have copied it locked
                os.close(self._write)  # which ends the thread, too
                self._write = -1
            if not self._reads:
                os.close(self._read)
            self._read = -1


class SmallReleases:
    """The sink of buffers that may wait for others to be freed with them."""

    __slots__ = ("_all",)

    def __init__(self, releases: Releases) -> None:
        self._all = releases

    def append(self, buffer: int) -> None:
        """Note an id."""
        releases = self._all
        ids = releases.ids
        ids.append(buffer)
        if len(ids) >= releases.few:
            releases.pressing = True
        if not releases.due:
            releases.wake()
