"""``ArenaPool``: slots of arenas for host arrays on their way to or from a device."""

import functools
import itertools
import math
import threading
import weakref
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np

from callboard.core.errors import DeviceStopped, MailboxFull
from callboard.device import forkguard
from callboard.device.protocol.arena.highwater import HighWater
from callboard.device.protocol.arena.memory import Arena, private_arena, shared_arena
from callboard.device.protocol.arena.ranges import FreeRanges
from callboard.device.protocol.arena.returns import Returns

__all__ = ["ArenaPool", "ArenaStats", "Slot", "is_leased"]

GRANULE = 256
"""Slots begin at multiples of this: more than any vector load or copy engine asks for."""

PAGE = 4096

LARGE = 8 << 20
"""From this size on a slot is a whole arena of its own, so that small slots cannot keep it from being used again."""

FIRST = 16 << 20
"""Bytes of the first arenas for small slots; further ones are a quarter of all of these, up to :data:`LARGEST`."""

LARGEST = 256 << 20

_REACH = 40
"""Bits of an offset. Ranges of all arenas share one line, arena ``i`` from ``i << _REACH``, and are never adjacent."""

_ids = itertools.count(1)


class Slot:
    """A part of an arena. It belongs to its holder until it is returned.

    Attributes:
        arena: Arena that holds the slot.
        offset: Bytes from the start of the arena, a multiple of 256.
        nbytes: Bytes that were requested.
        kept: Its return depends on code that keeps the array, not on a transfer.
    """

    __slots__ = ("arena", "kept", "nbytes", "offset", "reserved", "serial")

    def __init__(self, arena: Arena, offset: int, nbytes: int, reserved: int, serial: int) -> None:
        self.arena = arena
        self.offset = offset
        self.nbytes = nbytes
        self.reserved = reserved
        self.serial = serial  # 0 once it has been returned
        self.kept = False

    @property
    def arena_id(self) -> int:
        return self.arena.id

    @property
    def array(self) -> "np.ndarray[Any, np.dtype[np.uint8]]":
        """Return the bytes of the slot, u8: a view that must not be used after the slot is returned."""
        return self.arena.memory[self.offset : self.offset + self.nbytes]

    def as_array(self, dtype: "np.dtype[Any]", shape: tuple[int, ...]) -> "np.ndarray[Any, Any]":
        """Return its first bytes as a row-major array, which must fit; a view like :attr:`array`."""
        return np.ndarray(shape, dtype, self.arena.memory, self.offset)


class ArenaStats(NamedTuple):
    """Statistics of a pool: bytes mapped, bytes of slots in use, those that wait for a dead host; counts."""

    arenas: int
    bytes: int
    used: int
    quarantined: int
    slots: int


class _Lease:
    """Owner of a leased array's memory, kept alive by every view of the array.

    NumPy shortens a chain of arrays to its last one, but never past an owner of another type.
    """

    __slots__ = ("__array_interface__", "__weakref__", "slot")

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        address = slot.arena.address + slot.offset
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (slot.nbytes,), "data": (address, False)}


def is_leased(array: "np.ndarray[Any, Any]") -> bool:
    """True for an array that :meth:`ArenaPool.lease` has made, and for its views."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return type(owner) is _Lease


class ArenaPool:
    """Any thread may use it.

    Args:
        limit_bytes: Bytes of all arenas together.
        announce: Called with each new arena, on the thread that takes its first slot, before it has that slot.
        retire: Called with each arena that the pool releases.
        shared: True for memfd memory, which process hosts map; False for memory of this process.
    """

    def __init__(
        self,
        limit_bytes: int,
        announce: Callable[[Arena], None],
        retire: Callable[[Arena], None] = lambda arena: None,
        *,
        shared: bool = True,
    ) -> None:
        self._limit = -(-limit_bytes // PAGE) * PAGE
        self._announce = announce
        self._retire = retire
        self._make = shared_arena if shared else private_arena
        self._lock = threading.Lock()
        self._small = FreeRanges()
        self._large: list[Arena] = []  # free ones, most recently used last
        self._small_bytes = 0  # of arenas for small slots
        self._arenas: dict[int, Arena] = {}
        self._addresses: list[tuple[int, int]] = []  # (address, arena), sorted
        self._bytes = 0  # of arenas, those being made included
        self._used = 0
        self._asked = 0  # the requested part of these: without the excess of an arena over its large slot
        self._high_water = HighWater()
        self._slots = 0
        self._kept: Counter[int] = Counter()  # slots that code keeps, by arena
        self._returns = Returns()
        self._serials = itertools.count(1)
        self._last_serial = 0
        self._fences: dict[
            Hashable, tuple[int, list[Slot]]
        ] = {}  # last serial that the dead host may use, slots held back
        self._closed: tuple[type[Exception], str] | None = None
        forkguard.guard(self)

    # -- slots ---------------------------------------------------------------------------------------------------------

    def take(self, nbytes: int, *, kept: bool = False) -> Slot:
        """A slot of at least ``nbytes`` bytes; its contents are arbitrary.

        Args:
            nbytes: Number of bytes.
            kept: Code may keep the slot for any time: it is not waited for.

        Raises:
            MailboxFull: The limit is reached, or is less than ``nbytes`` (not ``retryable``).
            OutOfMemory: The host has no memory.
            DeviceStopped: The pool is closed.
            RuntimeError: This is a forked process.
        """
        reserved = max(GRANULE, -(-nbytes // GRANULE) * GRANULE)
        if reserved > self._limit:
            error = MailboxFull(
                f"a host array of {nbytes:,} bytes is larger than all that may be staged, {self._limit:,} bytes "
                "(max_staged_bytes); divide it into smaller arrays, or raise the limit"
            )
            error.retryable = False
            raise error
        with self._lock:
            self._check()
            slot = self._find(nbytes, reserved)
            size, gone = (0, []) if slot is not None else self._reserve(reserved)
            given = self._returns.count
        self._farewell(gone)
        if size is None:
            error = MailboxFull(
                f"no room for {nbytes:,} bytes of host array: {self._used:,} of {self._limit:,} bytes are in use "
                "(max_staged_bytes); wait for replies, free host arrays, or raise the limit"
            )
            error.more = functools.partial(self._returns.wait, functools.partial(self._hopeful, given))
            raise error
        if slot is None:
            slot = self._grow(nbytes, reserved, size)
        if kept:
            with self._lock:
                slot.kept = True
                self._kept[slot.arena.id] += 1
        return slot

    @property
    def reach(self) -> int:
        """The largest slot that can be taken when all transfers have ended, but no kept array has been dropped."""
        with self._lock:
            self._take_returned()
            return self._limit - sum(self._arenas[arena].nbytes for arena in self._kept if arena in self._arenas)

    def _hopeful(self, given: int) -> bool | None:
        """Whether a slot has come back since ``given`` had, or will when a transfer ends."""
        with self._lock:
            self._take_returned()
            if self._returns.count != given or self._closed is not None:
                return True
            return None if self._slots > self._kept.total() else False

    def give(self, slot: Slot) -> None:
        """Take a slot back; it is used again at once, or when the hosts that may still write to it are reaped.

        Raises:
            ValueError: It has already been returned.
        """
        with self._lock:
            self._give(slot)

    def _find(self, nbytes: int, reserved: int) -> Slot | None:
        self._take_returned()
        if reserved < LARGE:
            at = self._small.take(reserved)
            return (
                None
                if at is None
                else self._slot(self._arenas[at >> _REACH], at & ((1 << _REACH) - 1), nbytes, reserved)
            )
        fitting = [arena for arena in reversed(self._large) if reserved <= arena.nbytes <= 2 * reserved]
        if not fitting:
            return None
        arena = min(fitting, key=lambda arena: arena.nbytes)  # of equal ones the most recently used
        self._large.remove(arena)
        return self._slot(arena, 0, nbytes, arena.nbytes)

    def _take_returned(self) -> None:
        while self._returns.dropped:
            self._give(self._returns.dropped.popleft())

    def _slot(self, arena: Arena, offset: int, nbytes: int, reserved: int) -> Slot:
        self._used += reserved
        self._asked += nbytes
        self._high_water.reached(self._asked)
        self._slots += 1
        self._last_serial = next(self._serials)
        return Slot(arena, offset, nbytes, reserved, self._last_serial)

    def _give(self, slot: Slot) -> None:
        if not slot.serial:
            raise ValueError(f"a slot of arena {slot.arena.id} was returned twice (offset {slot.offset})")
        for last_serial, held in self._fences.values():
            if slot.serial <= last_serial:
                held.append(slot)
                return
        slot.serial = 0
        if slot.kept:
            self._kept[slot.arena.id] -= 1
            if not self._kept[slot.arena.id]:
                del self._kept[slot.arena.id]
        self._returns.count += 1
        self._returns.ring()
        self._used -= slot.reserved
        self._asked -= slot.nbytes
        self._slots -= 1
        if slot.arena.id not in self._arenas:
            return  # the pool was closed while it was out
        if slot.reserved >= LARGE:
            self._large.append(slot.arena)
        else:
            self._small.give((slot.arena.id << _REACH) + slot.offset, slot.reserved)

    # -- arenas --------------------------------------------------------------------------------------------------------

    def _reserve(self, reserved: int) -> tuple[int | None, list[Arena]]:
        """Count a new arena in: its size, None if the limit forbids it, and the arenas that had to go for it."""
        small = reserved < LARGE
        least = -(-reserved // PAGE) * PAGE
        wanted = max(FIRST, min(LARGEST, self._small_bytes // 4)) if small else least
        self._high_water.reached(self._asked + wanted)
        gone = self._shrink(self._high_water.allowance - wanted)
        if self._bytes + wanted > self._limit:
            gone += self._shrink(0)
        left = self._limit - self._bytes
        if left < least:
            return None, gone
        # At most half of the rest: several threads may be here at once, and each must find some.
        wanted = max(least, min(wanted, left // 2 // PAGE * PAGE))
        self._bytes += wanted
        self._small_bytes += wanted if small else 0
        return wanted, gone

    def _grow(self, nbytes: int, reserved: int, size: int) -> Slot:
        """Make an arena of ``size`` bytes, which are counted already, and take its first slot."""
        arena: Arena | None = None
        try:
            arena = self._make(next(_ids), size)  # takes up to half a second per GiB, so other threads may continue
            with self._lock:
                self._check()
                self._arenas[arena.id] = arena
                self._addresses = sorted([*self._addresses, (arena.address, arena.id)])
            self._announce(arena)
        except BaseException:  # Ctrl-C, too: the bytes are counted already
            with self._lock:
                self._check()  # closed meanwhile: it has given up all arenas, and the loop may have ended
                self._bytes -= size
                self._small_bytes -= size if reserved < LARGE else 0
                if arena is not None and arena.id in self._arenas:
                    self._forget(arena)
            raise
        with self._lock:
            self._check()
            if reserved >= LARGE:
                return self._slot(arena, 0, nbytes, size)
            if size > reserved:
                self._small.give((arena.id << _REACH) + reserved, size - reserved)
            return self._slot(arena, 0, nbytes, reserved)

    def _shrink(self, allowed: int) -> list[Arena]:
        """Forget arenas that nothing uses, until ``allowed`` bytes are left: large ones first, by last use."""
        self._take_returned()
        gone: list[Arena] = []
        while self._bytes > allowed and self._large:
            arena = self._large.pop(0)
            self._bytes -= arena.nbytes
            gone.append(arena)
        for arena in reversed(self._arenas.values()):
            if self._bytes <= allowed:
                break
            if self._small.remove(arena.id << _REACH, arena.nbytes):
                self._bytes -= arena.nbytes
                self._small_bytes -= arena.nbytes
                gone.append(arena)
        for arena in gone:
            self._forget(arena)
        return gone

    def _forget(self, arena: Arena) -> None:
        del self._arenas[arena.id]
        self._addresses = [entry for entry in self._addresses if entry[1] != arena.id]

    def _farewell(self, gone: list[Arena]) -> None:
        for arena in gone:
            self._retire(arena)

    @property
    def arenas(self) -> list[Arena]:
        """The arenas that a new host must map."""
        with self._lock:
            return list(self._arenas.values())

    def trim(self) -> int:
        """Release unused arenas; returns the number of bytes."""
        with self._lock:
            gone = self._shrink(0)
        self._farewell(gone)
        return sum(arena.nbytes for arena in gone)

    def settle(self) -> bool:
        """End a period: release free arenas beyond the need of this period and the one before.

        Returns:
            Whether arenas are left.
        """
        with self._lock:
            self._take_returned()
            self._high_water.next_period(self._asked)
            gone = self._shrink(self._high_water.allowance)
            left = bool(self._arenas)
        self._farewell(gone)
        return left

    def close(self) -> None:
        """Give up all arenas. Leased arrays stay valid as long as they live; nothing can be taken any more."""
        with self._lock:
            self._closed = DeviceStopped, "this device is closed"
            gone = list(self._arenas.values())
            self._arenas.clear()
            self._addresses = []
            self._large.clear()
            self._small = FreeRanges()
            self._bytes = self._small_bytes = 0
            self._returns.ring()
        self._farewell(gone)

    @property
    def stats(self) -> ArenaStats:
        with self._lock:
            self._take_returned()
            held = sum(slot.reserved for _, slots in self._fences.values() for slot in slots)
            return ArenaStats(len(self._arenas), self._bytes, self._used, held, self._slots)

    # -- dead hosts ----------------------------------------------------------------------------------------------------

    def quarantine(self, host: Hashable) -> None:
        """A host is lost and may still run: slots taken before now are reused only after :meth:`release`."""
        with self._lock:
            self._fences[host] = (self._last_serial, [])

    def release(self, host: Hashable) -> None:
        """A lost host is reaped and can no longer write."""
        with self._lock:
            _, held = self._fences.pop(host, (0, []))
            for slot in held:
                self._give(slot)  # to the next quarantine, if there is another that it was taken before

    # -- leased arrays -------------------------------------------------------------------------------------------------

    def lease(
        self, shape: tuple[int, ...], dtype: "np.dtype[Any]", then: Callable[[], None] | None = None
    ) -> "np.ndarray[Any, Any]":
        """A row-major array in a slot, which is returned when the array and all its views have been dropped.

        Args:
            shape, dtype: Shape and dtype of the array.
            then: Called when the slot has been returned, by a finalizer: on any thread, and it must not wait.

        Raises:
            MailboxFull, OutOfMemory, DeviceStopped, RuntimeError: See :meth:`take`.
        """
        slot = self.take(math.prod(shape) * dtype.itemsize, kept=True)
        lease = _Lease(slot)
        weakref.finalize(lease, self._returns.drop, slot, then).atexit = False
        return np.asarray(lease).view(dtype).reshape(shape)

    def find(self, array: "np.ndarray[Any, Any]") -> tuple[int, int] | None:
        """Locate a row-major array in an arena: a leased array, or a contiguous slice of one.

        Returns:
            Arena id and offset in bytes; None for any other array.
        """
        return self.find_view(array) if array.flags.c_contiguous else None

    def find_view(self, array: "np.ndarray[Any, Any]") -> tuple[int, int] | None:
        """Like :meth:`find`, for an array with any non-negative strides: the location of its element 0."""
        addresses = self._addresses
        if not addresses or min(array.strides, default=0) < 0:
            return None
        reach = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) if array.size else 0
        address: int = array.__array_interface__["data"][0]
        at = bisect_right(addresses, address, key=_address) - 1
        arena = self._arenas.get(addresses[at][1]) if at >= 0 else None
        if arena is None or address + reach + array.itemsize > arena.address + arena.nbytes:
            return None
        return arena.id, address - arena.address

    # -- fork ----------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._closed is not None:
            kind, text = self._closed
            raise kind(text)

    def after_fork(self) -> None:
        self._closed = RuntimeError, str(forkguard.forked_error("the shared memory of a device"))
        self._lock = threading.Lock()
        for arena in self._arenas.values():
            arena.close_descriptor()


def _address(entry: tuple[int, int]) -> int:
    return entry[0]
