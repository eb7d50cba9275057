"""``Loan``: arrays of a device that a call in another process uses, held for it in the device's own host."""

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from callboard.core.dtype import as_dtype
from callboard.core.layout import layout_of
from callboard.core.ref import Allocation, GpuRef
from callboard.core.reply import Cause, OpFailure
from callboard.device.client.residents.line import End, accept
from callboard.device.protocol.arena import Slot
from callboard.device.protocol.messages import ActorCall, Release
from callboard.device.protocol.residents.exceptions import described
from callboard.device.protocol.residents.regions import FRESH, HERE, NOWHERE, places

if TYPE_CHECKING:
    from callboard.device.client.residents.lender import Lender, Opened

__all__ = ["Loan"]


class Region:
    """The part of one allocation that the arrays of a call reach."""

    __slots__ = ("allocation", "high", "low", "written")

    def __init__(self, allocation: Allocation, low: int, high: int, written: bool) -> None:
        self.allocation = allocation
        self.low = low
        self.high = high
        self.written = written

    @property
    def nbytes(self) -> int:
        return self.high - self.low


class Loan(End):
    """Holds arrays from :meth:`ask` until :meth:`over`. On the loop's thread, except :meth:`ask`.

    Args:
        lender: Lender of the arrays.
        refs: The arrays.
        writes: For each array, whether it may be written.
        held: Called when they may be used, with ``[regions, arrays]`` as the other process gets them.
        failed: Called instead, once, when an op that writes them has failed or the context is lost.
        fresh: True if the contents of the arrays do not matter.
    """

    __slots__ = (
        *(
            "_arrays",
            "_copying",
            "_done",
            "_failed",
            "_fresh",
            "_held",
            "_lender",
            "_lent",
            "_lost",
            "_offsets",
            "_over",
            "_regions",
        ),
        *("_opened", "_slot", "_theirs", "_why", "id"),
    )

    def __init__(
        self,
        lender: "Lender",
        refs: Sequence[GpuRef[Any]],
        writes: Sequence[bool],
        held: Callable[[list[Any]], None],
        failed: Callable[[OpFailure], None],
        fresh: bool = False,
    ) -> None:
        self.id = 0
        self._lender = lender
        self._held = held
        self._failed = failed
        self._fresh = fresh
        self._regions, self._arrays = _regions_of(refs, writes)
        self._offsets, nbytes = places(region.nbytes for region in self._regions)
        self._slot: Slot | None = lender.arenas.take(nbytes) if lender.copies and nbytes else None
        self._theirs: Slot | None = None  # in memory that the other process has mapped
        self._lent = self._over = self._lost = self._done = self._copying = False
        self._opened: Opened | None = None
        self._why: OpFailure | None = None

    def ask(self, tag: str) -> None:
        """Take a place in the order of the device's ops, for which there must be room.

        Raises as :func:`accept`; nothing is held then.
        """
        try:
            accept(self._lender.port, tag, self, self._message, further=True)
        except BaseException:  # Ctrl-C, too
            if not self._lender.port.unanswered.notifies(self):
                self._settled()
            raise

    def _message(self, number: int) -> ActorCall:
        self.id = number
        self._lender.loans[number] = self
        regions, slot = self._regions, self._slot
        u8 = as_dtype("u8")
        bindings = [n for region in regions for n in (region.allocation.id, region.low)]
        layouts = [layout_of(u8, (region.nbytes,)).raw for region in regions]
        room = [] if slot is None else [slot.arena_id, slot.offset, slot.nbytes]
        body = HERE if self._lender.here else FRESH if self._fresh else b""
        writes = [region.written for region in regions]
        return ActorCall(number, self._lender.actor, body, bindings, layouts, writes, [], room=room)

    # -- what the device's own host says -------------------------------------------------------------------------------

    def held(self, regions: list[Any]) -> None:
        """The arrays are not in use any more: pass them on."""
        if self._slot is None:
            self._opened = self._lender.begin({where for where, _ in regions})
            self._pass_on(regions)
            return
        lender, nbytes = self._lender, self._slot.nbytes
        try:
            self._theirs = theirs = lender.theirs.take(nbytes)
        except Exception as e:  # there is no room: the call fails from that
            self._lent = True
            self._failed(OpFailure(Cause(lender.port, functools.partial(_again, e))))
            return
        where = [[theirs.arena_id, theirs.offset + offset] for offset in self._offsets]
        if self._fresh:
            self._pass_on(where)
        else:
            self._copy(theirs.array[:nbytes], self._slot.array[:nbytes], lambda: self._pass_on(where))

    def _copy(self, target: Any, source: Any, then: Callable[[], None]) -> None:
        """Copy while the slot is ours, whatever becomes of the device's context."""

        def copied() -> None:
            self._copying = False
            self._give()
            then()

        self._copying = True
        self._lender.copy(target, source, copied)

    def _pass_on(self, regions: list[Any]) -> None:
        self._lent = True
        if self._over or self._lost:
            self._return()
        else:
            self._held([regions, self._arrays])

    def _answer(self, value: Any) -> None:
        self._settled()

    def _reject(self, failure: OpFailure) -> None:
        self._lost = True
        self._settled()
        if self._over:
            failure.cause.seen = True  # the call's own reply has it
        else:
            self._failed(failure)

    def _settled(self) -> None:
        self._lender.loans.pop(self.id, None)
        self._done = True
        self._give()

    def _give(self) -> None:
        """The device's own host does not use the slot any more, if that is so, and nor does a copy here."""
        if self._slot is not None and self._done and not self._copying:
            self._lender.arenas.give(self._slot)
            self._slot = None

    # -- the end of the call -------------------------------------------------------------------------------------------

    def over(self, failure: OpFailure | None) -> None:
        """The other process does not use the arrays any more, or will not; after a failure its host may be dying."""
        if not self._over:
            self._over, self._why = True, failure
            if self._lent:
                self._return()

    def _return(self) -> None:
        written = [at for at, region in enumerate(self._regions) if region.written and region.nbytes]
        if self._lost or self._slot is None or self._theirs is None or self._why is not None:
            self._release()
        else:
            self._copy_back(written)

    def _copy_back(self, left: list[int]) -> None:
        """Copy regions that may have been written, one after the other."""
        if not left or self._slot is None or self._theirs is None:
            self._release()
            return
        begin = self._offsets[left[0]]
        part = slice(begin, begin + self._regions[left[0]].nbytes)
        self._copy(self._slot.array[part], self._theirs.array[part], lambda: self._copy_back(left[1:]))

    def _release(self) -> None:
        theirs, self._theirs = self._theirs, None
        if theirs is not None:
            self._lender.theirs.give(theirs)
        opened, self._opened = self._opened, None
        if opened is not None:
            self._lender.end(opened)
        why = self._why
        if self._lost:
            return
        if why is None:
            self._lender.post(Release(self.id))
            return
        spoilt = any(region.written for region in self._regions)
        message = Release(self.id, described(self.id, why.cause.error(why.op)) if spoilt else None)

        def release() -> None:
            if not self._lost:
                self._lender.post(message)

        self._lender.when_reaped(release)


def _regions_of(refs: Sequence[GpuRef[Any]], writes: Sequence[bool]) -> tuple[list[Region], list[list[Any]]]:
    """The regions, and each array as the other process gets it."""
    regions: dict[int, Region] = {}
    for ref, written in zip(refs, writes, strict=True):
        if not ref.layout.size:
            continue
        low, high = (ref.offset + end for end in ref.layout.span)
        region = regions.setdefault(ref.allocation.id, Region(ref.allocation, low, high, False))
        region.low, region.high = min(region.low, low), max(region.high, high)
        region.written = region.written or written
    number = {buffer: at for at, buffer in enumerate(regions)}
    arrays: list[list[Any]] = []
    for ref, written in zip(refs, writes, strict=True):
        place = [NOWHERE, 0]
        if ref.layout.size:
            buffer = ref.allocation.id
            place = [number[buffer], ref.offset - regions[buffer].low]
        arrays.append([*place, ref.layout.raw, written])
    return list(regions.values()), arrays


def _again(error: Exception, _op: object, _ops: int) -> Exception:
    return type(error)(*error.args)
