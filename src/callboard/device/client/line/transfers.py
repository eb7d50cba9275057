"""Transfers: host arrays to the device and back, through arenas.

A host array is copied into shared, page-locked memory by the caller (``put``) or by the copying thread (large ``get``,
``put(non_blocking=True)``), in chunks, so that the device copies one chunk while the next is being copied on the host.
"""

import asyncio
import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any

import numpy as np

from callboard.actors.loops.posting import post
from callboard.core.dtype import DType, DTypeLike, as_dtype
from callboard.core.errors import ShapeError
from callboard.core.layout import Layout, OpenLayout, layout_of, rows_of
from callboard.core.ref import GpuRef, held_array
from callboard.core.ref.hostarrays import is_masked
from callboard.core.reply import OpFailure, Reply
from callboard.device.client.line.copying import Copier
from callboard.device.client.line.entries import Gate
from callboard.device.client.line.port import OpPort
from callboard.device.client.line.regions import HostRegion
from callboard.device.client.memory.pinned import PinnedBufferPool
from callboard.device.client.staging.fetching import Fetching
from callboard.device.client.staging.filling import Filling, refuse_recorded
from callboard.device.client.staging.measured import Measured
from callboard.device.client.staging.windows import CHUNK, Window
from callboard.device.protocol.arena import ArenaPool, Slot
from callboard.device.protocol.residents.foreign import host_values
from callboard.kernel.memory import Copy, Download, Empty, Upload

__all__ = ["SharedLease", "Transfers", "chunks"]

Array = np.ndarray[Any, Any]

INLINE = 1 << 20
"""Up to this many bytes are copied on the loop's thread (80 µs at 12 GB/s); more on the copying thread."""


class Transfers:
    """Copies between host arrays and one device.

    Attributes:
        arenas: Host memory shared with the contexts.
    """

    def __init__(self, port: OpPort, arenas: ArenaPool) -> None:
        self._port = self.port = port
        self.arenas = arenas
        self._copier = Copier()
        self._pools: weakref.WeakSet[PinnedBufferPool] = weakref.WeakSet()

    # -- to the device -------------------------------------------------------------------------------------------------

    def put(
        self,
        array: Any,
        dtype: DTypeLike | None,
        non_blocking: bool,
        out: GpuRef[Any] | None = None,
        depth: int = 2,
    ) -> GpuRef[Any]:
        """See :meth:`callboard.Device.put`."""
        source = host_values("put", array, None if dtype is None else as_dtype(dtype))
        layout = layout_of(as_dtype(source.dtype), source.shape)
        target = layout if out is None else self._given(out, layout)
        if source.nbytes == 0:
            return self._empty(layout, depth) if out is None else out
        leased = self._leased(source)
        if leased is not None and rows_of(leased.layout, target) is not None:
            # The device reads the caller's page-locked memory itself.
            done: GpuRef = self._port.submit(Upload(host=leased, out=out), extra=_Keep(source), depth=depth)
            return done
        if rows_of(layout, target) is None:
            packed = self.put(source, None, non_blocking, None, depth + 1)
            copied: GpuRef = self._port.submit(Copy(src=packed, out=out), depth=depth, further=True)
            return copied
        self._port.check_room()
        window = Window(self.arenas, source.nbytes, source.itemsize)
        if window.slot.nbytes < source.nbytes:
            return self._put_through(window, source, layout, non_blocking, out, depth + 1)
        slot = window.slot
        if source.nbytes <= CHUNK and not non_blocking:
            lease = _Use(functools.partial(self.arenas.give, slot))
            try:
                self._copier.copy(slot.as_array(layout.dtype.np, layout.shape), source)
                region = HostRegion(self._port, slot.arena_id, slot.offset, layout, self._port.generation)
                ref: GpuRef = self._port.submit(Upload(host=region, out=out), extra=lease, depth=depth)
            except BaseException:  # Ctrl-C, too, which may come when the op is in flight and has the slot
                if not self._port.unanswered.notifies(lease):
                    lease.settled(False)
                raise
            return ref
        return self._put_chunks(source, layout, slot, non_blocking, out, depth + 1)

    def _given(self, out: Any, layout: Layout) -> Layout:
        """The layout of a given array that a host array of ``layout`` is copied to."""
        if not isinstance(out, GpuRef):
            raise TypeError(f"put: out is {type(out).__name__}; pass a GpuRef of this device")
        out.access()
        if out.dtype is not layout.dtype or out.shape != layout.shape:
            raise ShapeError(f"put: out is {out.layout!r}, the array is {layout!r}; pass one of that dtype and shape")
        return out.layout

    def _leased(self, array: Array) -> HostRegion | None:
        """A leased array, or a part of one, as an operand; None for any other, and for bytes in another order."""
        found = self.arenas.find_view(array) if array.dtype.isnative else None
        item = array.itemsize
        if found is None or any(stride % item for stride in array.strides) or found[1] % item:
            return None
        layout = layout_of(as_dtype(array.dtype), array.shape, tuple(stride // item for stride in array.strides))
        return HostRegion(self._port, *found, layout, self._port.generation)

    def _put_chunks(
        self, source: Array, layout: Layout, slot: Slot, non_blocking: bool, out: GpuRef[Any] | None, depth: int
    ) -> GpuRef:
        flat = source.flags.c_contiguous and (out is None or out.layout.contiguous)
        parts = list(chunks(source.reshape(-1) if flat else source))
        use = SharedLease(self.arenas, slot)
        try:
            return self._put_parts(source, layout, slot, use, parts, non_blocking, out, flat, depth + 1)
        finally:
            use.end()

    def _put_parts(
        self,
        source: Array,
        layout: Layout,
        slot: Slot,
        use: "SharedLease",
        parts: list[tuple[int, int]],
        non_blocking: bool,
        out: GpuRef[Any] | None,
        flat: bool,
        depth: int,
    ) -> GpuRef:
        last = whole = self._empty(layout, depth, further=True) if out is None else out
        if flat:
            source, target = source.reshape(-1), whole.reshape(-1)
        else:
            target = whole
        staged = slot.as_array(layout.dtype.np, source.shape)
        row = source.nbytes // source.shape[0]
        for a, b in parts:
            view = target[a:b]
            packed = layout_of(layout.dtype, view.shape)
            region = HostRegion(self._port, slot.arena_id, slot.offset + a * row, packed, whole.generation)
            if non_blocking:
                self._copy_later(staged[a:b], source[a:b], use)
            else:
                self._copier.copy(staged[a:b], source[a:b])
            part = _Use(use.begin().end)
            try:
                last = self._port.submit(Upload(host=region, out=view), extra=part, depth=depth, further=True)
            except BaseException:  # Ctrl-C, too: unless it is in flight, this part will have no completion
                if not self._port.unanswered.notifies(part):
                    part.settled(False)
                raise
            if not non_blocking:
                self._port.flush()
        # The last chunk's completion includes those of the chunks before it: they wrote parts of the same buffer.
        return last._view(whole.layout, whole.offset)

    def _copy_later(self, target: Array, source: Array, use: "SharedLease") -> None:
        """Copy on the copying thread; later calls wait for the copy."""
        gate = Gate()
        use.begin()
        try:
            self._port.outbox.hold(gate)
            self._copier.later(target, source, functools.partial(self._copied, gate, use))
        except BaseException:  # Ctrl-C, too: a gate that stays closed would hold back all later calls
            self._port.outbox.open(gate)
            raise

    def _copied(self, gate: Gate, use: "SharedLease") -> None:
        use.end()
        self._port.outbox.open(gate)

    def _put_through(
        self,
        window: Window,
        source: Array,
        layout: Layout,
        non_blocking: bool,
        out: GpuRef[Any] | None,
        depth: int,
    ) -> GpuRef:
        """Copy an array that is larger than its window."""
        port = self._port
        waits = port.services.blocking and get_ident() != port.outbox.thread and not non_blocking
        try:
            refuse_recorded(port)
            if not (non_blocking or waits):
                source = source.copy()  # the caller may change the array before all of it has been in the window
            whole = self._empty(layout, depth, further=True) if out is None else out
            filling = Filling(self, source, window)
        except BaseException:  # Ctrl-C, too: nothing else gives the memory back
            window.give()
            raise
        last = filling.begin(whole, depth)
        if waits:
            filling.read()
        return last._view(whole.layout, whole.offset)  # as for chunks

    def _empty(self, layout: Layout, depth: int, further: bool = False) -> GpuRef:
        op = Empty(shape=layout.shape, dtype=layout.dtype.name)
        ref: GpuRef = self._port.submit(op, depth=depth + 1, further=further)
        return ref

    # -- to the host ---------------------------------------------------------------------------------------------------

    def get(self, ref: GpuRef, out: Array | None, depth: int = 2) -> "Reply[Array]":
        """See :meth:`GpuRef.get`."""
        ref.access()
        if out is None and (held := held_array(ref)) is not None:
            return self._held(ref, held.copy())
        if isinstance(ref.layout, OpenLayout) and not self._port.services.blocking:
            return Measured(self._port, ref, lambda known: self.get(known, out))
        layout = layout_of(ref.dtype, ref.shape)
        if out is not None and not isinstance(out, np.ndarray):
            raise TypeError(f"get: out is {type(out).__name__}; pass a NumPy array")
        if out is not None and (out.dtype != ref.dtype.np or out.shape != ref.shape):
            raise ShapeError(
                f"get: out is {out.dtype}{list(out.shape)}, the array is {ref.layout!r}; "
                "pass an array of that dtype and shape"
            )
        if out is not None and (is_masked(out) or not out.flags.writeable):
            raise ShapeError("get: out is read-only, or has masked elements; pass an array that can be written")
        if out is not None and (held := held_array(ref)) is not None:
            np.copyto(out, held)
            return self._held(ref, out)
        reply: Reply[Array] = Reply(self._port)
        if layout.nbytes == 0:
            self._port.submit(
                Copy(src=ref),
                depth=depth,
                keep=_Whole(reply, np.empty(layout.shape, layout.dtype.np) if out is None else out),
            )
            return reply
        leased = self._leased(out) if out is not None else None
        if leased is not None and rows_of(ref.layout, leased.layout) is not None:
            self._port.submit(Download(src=ref, host=leased), keep=_Whole(reply, out), depth=depth)
            return reply
        if leased is not None and rows_of(layout, leased.layout) is not None:
            self._port.check_room()
            packed = self._packed(ref, depth + 1)
            self._port.submit(Download(src=packed, host=leased), keep=_Whole(reply, out), depth=depth, further=True)
            return reply
        window = Window(self.arenas, layout.nbytes, layout.dtype.itemsize)
        try:
            self._port.check_room()
            packed = self._packed(ref, depth + 1)
            fetch = Fetching(self, reply, out, layout, window)
        except BaseException:  # Ctrl-C, too: nothing else gives the memory back
            window.give()
            raise
        fetch.begin(packed, depth)
        return reply

    def _held(self, ref: GpuRef[Any], values: Array) -> "Reply[Array]":
        """The reply for a ref whose values are on the host."""
        reply: Reply[Array] = Reply(self._port)
        if ref.done():
            reply._resolve(values)
        else:
            ref.when_done(lambda: reply._resolve(values))
        return reply

    def _packed(self, ref: GpuRef[Any], depth: int) -> GpuRef[Any]:
        """The array itself if it is row-major, else a copy, for which there must be room."""
        if ref.layout.contiguous:
            return ref
        packed: GpuRef[Any] = self._port.submit(Copy(src=ref), depth=depth + 1, further=True)
        return packed

    # -- the copying thread --------------------------------------------------------------------------------------------

    def host_empty(self, shape: tuple[int, ...], dtype: DType) -> Array:
        """See :meth:`callboard.Device.host_empty`."""
        if any(n < 0 for n in shape):
            raise ShapeError(f"host_empty: shape {shape}: extents are >= 0")
        return self.arenas.lease(shape, dtype.np)

    def pinned_pool(self, max_buffers: int, max_bytes: int | None) -> PinnedBufferPool:
        """See :meth:`callboard.Device.pinned_pool`."""
        pool = PinnedBufferPool(self.arenas, self.loop, max_buffers, max_bytes)
        self._pools.add(pool)
        return pool

    def give(self, slot: Slot) -> None:
        """A slot is free again."""
        self.arenas.give(slot)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._port.loop

    def copy(self, target: Array, source: Array, then: Callable[[], None]) -> None:
        """Copy now if it is short, else on the copying thread; ``then`` runs on the loop."""
        if source.nbytes <= INLINE:
            np.copyto(target, source)
            then()
        else:
            self._copier.later(target, source, lambda: post(self.loop, then))

    def close(self) -> None:
        """End the copying thread after its copies have finished. Waits for a pinned buffer end with an error."""
        for pool in list(self._pools):
            pool.close("this device is closed")
        self._copier.close()


class _Keep:
    """Keeps an array alive until the completion."""

    def __init__(self, array: Array) -> None:
        self.array: Array | None = array

    def settled(self, ok: bool) -> None:
        self.array = None


class _Use:
    """The use of a slot by one op: ended once, by its completion or by the call that could not make it. Any thread."""

    __slots__ = ("_ends",)

    def __init__(self, end: Callable[[], None]) -> None:
        self._ends = [end]

    def settled(self, ok: bool) -> None:
        try:
            end = self._ends.pop()  # of two threads one gets it
        except IndexError:
            return
        end()


class SharedLease:
    """Releases a slot when all that use it have ended: the caller, copies on the host, ops in flight.

    A completion alone is not enough: when the context is lost, it comes while copies into the slot still run.
    """

    def __init__(self, arenas: ArenaPool, slot: Slot) -> None:
        self._arenas = arenas
        self._slot = slot
        self._uses = 1
        self._lock = threading.Lock()

    def begin(self) -> "SharedLease":
        with self._lock:
            self._uses += 1
        return self

    def end(self) -> None:
        with self._lock:
            self._uses -= 1
            if self._uses:
                return
        self._arenas.give(self._slot)


class _Whole:
    """A download straight into the caller's array."""

    __slots__ = ("_array", "_reply")

    def __init__(self, reply: "Reply[Array]", array: Array | None) -> None:
        self._reply = reply
        self._array = array

    def _resolve(self) -> None:
        self._reply._resolve(self._array)

    def _reject(self, failure: OpFailure) -> None:
        self._reply._reject(failure)


def chunks(array: "Array | GpuRef") -> Iterator[tuple[int, int]]:
    """Ranges of the first axis of about :data:`CHUNK` bytes."""
    rows = array.shape[0]
    step = max(1, CHUNK * rows // max(array.nbytes, 1))
    for a in range(0, rows, step):
        yield a, min(a + step, rows)
