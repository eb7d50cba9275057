"""``staged_copy``: a copy through arenas of both devices, in chunks, so that its three steps overlap."""

from typing import TYPE_CHECKING, Any

from callboard.core.layout import layout_of
from callboard.core.ref import GpuRef
from callboard.core.reply import OpFailure
from callboard.device.client.line.regions import HostRegion
from callboard.device.client.line.transfers import SharedLease, chunks
from callboard.device.client.peers.incoming import Incoming
from callboard.device.protocol.arena import Slot
from callboard.kernel.memory import Copy, Download, Empty

if TYPE_CHECKING:
    from callboard.device.client.peers.peer import Peer

__all__ = ["staged_copy"]


class Chunk:
    """A part of the array: downloaded by the source, copied from arena to arena, read there by the target."""

    __slots__ = ("_from", "_incoming", "_source", "_to", "_uses")

    def __init__(
        self, source: "Peer", incoming: Incoming, slots: tuple[Slot, Slot], at: int, uses: tuple[SharedLease, ...]
    ) -> None:
        end = at + incoming.ref.nbytes
        self._source = source
        self._incoming = incoming
        self._from = slots[0].array[at:end]
        self._to = slots[1], slots[1].offset + at, slots[1].array[at:end]
        self._uses = uses  # of both slots, until the copy here is done

    def _resolve(self) -> None:
        self._source.transfers.copy(self._to[2], self._from, self._copied)

    def _copied(self) -> None:
        slot, offset, _ = self._to
        self._incoming.arrive([slot.arena_id, offset])
        self._end()

    def _reject(self, failure: OpFailure) -> None:
        failure.cause.seen = True  # the copy has it
        self._incoming.fail(failure.cause.error(failure.op))
        self._end()

    def _end(self) -> None:
        for use in self._uses:
            use.end()


def staged_copy(source: "Peer", target: "Peer", ref: GpuRef[Any], out: GpuRef[Any] | None, route: str) -> GpuRef[Any]:
    """Copy ``ref``, which is row-major and has elements. Raises as an op; nothing is copied then.

    The source's array may be written as soon as the data is in the arena; the array is not held for the copy.
    """
    flat = out is None or out.layout.contiguous
    given = ref.reshape(-1) if flat else ref
    ranges = list(chunks(given))
    target.port.check_room(2 * len(ranges) + 1)
    slots = source.transfers.staged(ref.nbytes, len(ranges)), target.transfers.staged(ref.nbytes, len(ranges) + 1)
    uses = SharedLease(source.transfers.arenas, slots[0]), SharedLease(target.transfers.arenas, slots[1])
    try:
        whole: GpuRef[Any] | None = out
        if whole is None and len(ranges) > 1:
            whole = target.port.submit(Empty(shape=ref.shape, dtype=ref.dtype.name))
        goal = whole if whole is None or not flat else whole.reshape(-1)
        row = ref.nbytes // given.shape[0]
        last: GpuRef[Any] | None = None
        for a, b in ranges:
            view = ref if goal is None else given[a:b]
            incoming = Incoming(target.port, layout_of(view.dtype, view.shape), route)
            region = HostRegion(source.port, slots[0].arena_id, slots[0].offset + a * row, view.layout, ref.generation)
            incoming.expect()
            chunk = Chunk(source, incoming, slots, a * row, (uses[0].begin(), uses[1].begin()))
            try:
                source.port.submit(Download(src=view, host=region), keep=chunk)
            except BaseException as e:  # Ctrl-C, too: the announced buffer will not arrive
                incoming.fail(e)
                chunk._end()
                raise
            read = uses[1].begin()
            try:
                last = target.port.submit(Copy(src=incoming.ref, out=None if goal is None else goal[a:b]), extra=read)
            except BaseException:  # likewise
                read.end()
                raise
        assert last is not None
        # The last chunk's completion includes those of the chunks before it: they wrote parts of the same buffer.
        return last if whole is None else last._view(whole.layout, whole.offset)
    finally:
        for use in uses:
            use.end()
