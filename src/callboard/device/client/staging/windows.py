"""``Window``: the host memory of one transfer, in lanes that its parts use, in turns where they are fewer than parts.

A transfer takes all of its host memory before its first op is called, and needs no more later, so that transfers never
wait for memory while they hold some. An array that is larger than all that can be staged goes through a smaller window.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from callboard.core.dtype import as_dtype
from callboard.core.errors import MailboxFull
from callboard.core.layout import Layout, layout_of
from callboard.core.ref import GpuRef
from callboard.device.client.line.port import OpPort
from callboard.device.client.line.regions import HostRegion
from callboard.device.client.peers.incoming import Incoming
from callboard.device.protocol.arena import ArenaPool

__all__ = ["CHUNK", "Turns", "Window", "blocks"]

CHUNK = 32 << 20
"""Bytes of a part: long enough that an op's cost vanishes, short enough that copy and transfer overlap."""
LANES = 8
"""Lanes of a window that is smaller than the array, if there is memory for as many."""
LINE = 256
"""Lanes begin at multiples of this, like slots."""

_NOTHING = layout_of(as_dtype("u8"), (0,))


class Window:
    """Host memory for an array of ``nbytes`` bytes, or for some parts of it.

    Args:
        arenas: Where to take it.
        nbytes: Size of the array.
        itemsize: Size of an element.
        flat: All parts but the last one have the size of a lane.

    Attributes:
        slot: The memory.
        lane: Bytes of a lane, a multiple of the element's size; parts are at most as large.
        lanes: Number of lanes; part ``i`` is in lane ``i % lanes``.

    Raises:
        MailboxFull, OutOfMemory, DeviceStopped: See :meth:`ArenaPool.take`.
    """

    __slots__ = ("_arenas", "lane", "lanes", "slot")

    def __init__(self, arenas: ArenaPool, nbytes: int, itemsize: int, *, flat: bool = True) -> None:
        self._arenas = arenas
        try:
            self.slot = arenas.take(nbytes)
            self.lane = CHUNK // itemsize * itemsize
            self.lanes = max(1, (nbytes + self.lane - 1 if flat else nbytes) // self.lane)
        except MailboxFull:
            reach = arenas.reach
            if nbytes <= reach:
                raise  # it fits when other transfers have ended
            self.slot = arenas.take(max(2 * LINE, min(LANES * CHUNK, reach // 2)))
            self.lane = min(CHUNK, self.slot.nbytes // 2 // LINE * LINE)
            self.lanes = self.slot.nbytes // self.lane

    def region(self, port: OpPort, part: int, layout: Layout, generation: int) -> HostRegion:
        """The memory of a part, as an operand."""
        arena, offset = self.where(part)
        return HostRegion(port, arena, offset, layout, generation)

    def where(self, part: int) -> list[int]:
        """The memory of a part: arena and offset."""
        return [self.slot.arena_id, self.slot.offset + part % self.lanes * self.lane]

    def array(self, part: int, dtype: "np.dtype[Any]", shape: Sequence[int]) -> "np.ndarray[Any, Any]":
        """The memory of a part, as an array in this machine's byte order; not to be used after the slot is returned."""
        return np.ndarray(shape, dtype.newbyteorder("="), self.slot.arena.memory, self.where(part)[1])

    def give(self) -> None:
        """Return the memory."""
        self._arenas.give(self.slot)


class Turns:
    """Makes downloads wait for their lanes, in the device's order of ops: part ``i`` for the end of ``i - lanes``.

    Args:
        port: Op line of the device that downloads.
        lanes: Number of lanes.
    """

    __slots__ = ("_ended", "_lanes", "_lock", "_port", "_waiting")

    def __init__(self, port: OpPort, lanes: int) -> None:
        self._port = port
        self._lanes = lanes
        self._lock = threading.Lock()
        self._ended: set[int] = set()
        self._waiting: dict[int, Incoming] = {}

    def before(self, part: int) -> GpuRef[Any] | None:
        """An operand that is not ready before the part's lane is free; None if it is free now."""
        if part < self._lanes:
            return None
        with self._lock:
            if part - self._lanes in self._ended:
                return None
            turn = self._waiting[part] = Incoming(self._port, _NOTHING, "of an array in parts")
            turn.expect()  # under the lock: it must be announced before it arrives
        return turn.ref

    def ended(self, part: int) -> None:
        """The part does not need its lane any more. Any thread."""
        with self._lock:
            self._ended.add(part)
            turn = self._waiting.pop(part + self._lanes, None)
        if turn is not None:
            turn.arrive([])


def blocks(shape: Sequence[int], itemsize: int, most: int) -> Iterator[tuple[slice, ...]]:
    """Divide an array into blocks of at most ``most`` bytes, each adjacent in row-major order: an index for each."""
    axis, inner = len(shape), itemsize
    while axis and inner * shape[axis - 1] <= most:
        axis -= 1
        inner *= shape[axis]
    if not axis:
        yield tuple(slice(0, n) for n in shape)
        return
    step = max(1, most // inner)
    whole = tuple(slice(0, n) for n in shape[axis:])
    for outer in np.ndindex(*shape[: axis - 1]):
        for a in range(0, shape[axis - 1], step):
            yield (*(slice(i, i + 1) for i in outer), slice(a, min(a + step, shape[axis - 1])), *whole)
