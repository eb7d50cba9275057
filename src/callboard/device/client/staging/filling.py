"""``Filling``: an upload of an array that is larger than its window, whose lanes are filled again after each use."""

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from callboard.actors.loops.blocking import Waiter
from callboard.core.errors import UnsupportedOp
from callboard.core.layout import layout_of
from callboard.core.ref import GpuRef
from callboard.device.client.line.port import OpPort
from callboard.device.client.peers.incoming import Incoming
from callboard.device.client.staging.windows import Window, blocks
from callboard.kernel.memory import Copy
from callboard.kernel.recording import recorder

if TYPE_CHECKING:
    from callboard.device.client.line.transfers import Transfers

__all__ = ["Filling", "refuse_recorded"]

Array = np.ndarray[Any, Any]


def refuse_recorded(port: OpPort) -> None:
    """Refuse a transfer inside a recording of the port.

    Raises:
        UnsupportedOp
    """
    if port.recordings and (recording := recorder.get()) is not None and recording.owns(port):
        raise UnsupportedOp("a copy from the host is not recorded; copy before the recording, or after it")


class Filling:
    """Uploads an array through a window, whose memory it returns.

    The device knows all parts from the beginning, in its order of ops. It waits with each until the part has been
    copied to its lane.

    Args:
        transfers: The device's transfers.
        source: The array; it must stay unchanged until it has been read.
        window: Host memory.
    """

    def __init__(self, transfers: "Transfers", source: Array, window: Window) -> None:
        self._transfers = transfers
        self._port: OpPort = transfers.port
        self._window = window
        self._lock = threading.Lock()
        self._source: Array | None = source
        self._blocks = list(blocks(source.shape, source.itemsize, window.lane))
        self._incoming: dict[int, Incoming] = {}  # parts that the device waits for
        self._free = set(range(min(window.lanes, len(self._blocks))))  # parts whose lanes are free
        self._unread = len(self._blocks)
        self._uses = 1 + len(self._blocks)  # of the window: these calls, and each part until its completion
        self._waiter: Waiter | None = None

    def begin(self, target: GpuRef[Any], depth: int) -> GpuRef[Any]:
        """Call the copies to ``target`` of all parts, for which there must be room.

        Returns:
            The last part: its completion includes those of the other parts.
        """
        last, port = target, self._port
        for part, index in enumerate(self._blocks):
            view = target[index]
            incoming = Incoming(port, layout_of(view.dtype, view.shape), f"from the host to {port.name}")
            told = _Part(self, part)
            try:
                incoming.expect()
                last = port.submit(Copy(src=incoming.ref, out=view), extra=told, depth=depth, further=True)
            except BaseException as e:  # Ctrl-C, too: the announced buffer will not arrive
                incoming.fail(e)
                self._give_up(part, called=told.ended or port.unanswered.notifies(told))
                raise
            with self._lock:
                self._incoming[part] = incoming
            self._fill(part)
        self._end(1)
        return last

    def read(self) -> None:
        """Wait until the array has been read. Not on the loop's thread."""
        waiter = Waiter()
        with self._lock:
            self._waiter = waiter if self._unread else None
        if self._waiter is not None:
            self._port.flush()
            waiter.wait()

    def settled(self, part: int) -> None:
        """A part has its completion: its lane is free."""
        following = part + self._window.lanes
        with self._lock:
            unread = self._incoming.pop(part, None) is not None  # the context is lost
            self._free.add(following)
        self._count(unread)
        self._fill(following)
        self._end(1)

    def _fill(self, part: int) -> None:
        """Copy a part to its lane, if that is free and the device waits for the part."""
        port = self._port
        with self._lock:
            if part not in self._free or part not in self._incoming:
                return
            incoming, source = self._incoming.pop(part), self._source
            self._uses += 1
        if source is None or port.stopped is not None or port.generation != incoming.ref.generation:
            self._filled()
            return
        block = source[self._blocks[part]]
        lane = self._window.array(part, block.dtype, block.shape)

        def copied() -> None:
            incoming.arrive(self._window.where(part))
            self._filled()

        self._transfers.copy(lane, block, copied)

    def _filled(self) -> None:
        self._count(1)
        self._end(1)

    def _count(self, parts: int) -> None:
        """The source is not needed any more for this number of parts."""
        with self._lock:
            self._unread -= parts
            if self._unread:
                return
            self._source = None
            waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.set_result()

    def _give_up(self, part: int, called: bool) -> None:
        """This part and the following ones will not be read, and have no completion, unless this one was called."""
        left = len(self._blocks) - part
        self._count(left)
        self._end(1 + left - called)

    def _end(self, uses: int) -> None:
        with self._lock:
            self._uses -= uses
            if self._uses:
                return
        self._window.give()


class _Part:
    """Notified of the completion of a part."""

    __slots__ = ("_filling", "_part", "ended")

    def __init__(self, filling: Filling, part: int) -> None:
        self._filling = filling
        self._part = part
        self.ended = False

    def settled(self, ok: bool) -> None:
        self.ended = True
        self._filling.settled(self._part)
