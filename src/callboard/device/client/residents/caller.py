"""``Caller``: calls resident actors, and owns the resources of calls: argument and result slots, arrays lent."""

import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from callboard.actors.errors import ActorStopped
from callboard.actors.loops.posting import post
from callboard.core.errors import AccelError, MailboxFull, Withdrawn
from callboard.core.layout import layout_from_wire
from callboard.core.ref import Allocation, GpuRef
from callboard.core.ref.allocation import GUARD
from callboard.core.reply import Reply
from callboard.device.client.line.copying import Copier
from callboard.device.client.line.entries import Entry, origin_of
from callboard.device.client.line.port import OpPort
from callboard.device.client.line.refusals import marked
from callboard.device.client.line.status import ResidentState
from callboard.device.client.residents.calls import Arguments, CallEnd
from callboard.device.client.residents.lender import Lender
from callboard.device.client.residents.lent import LentArguments, LentRoom
from callboard.device.client.residents.line import accept, on_loop
from callboard.device.client.residents.loan import Loan
from callboard.device.client.residents.reply import CallReply, calls_made
from callboard.device.protocol.arena import ArenaPool, Slot
from callboard.device.protocol.failures import as_failure
from callboard.device.protocol.messages import (
    ActorCall,
    CancelCall,
    DeviceRoom,
    DeviceRoomWanted,
    ProtocolError,
    Room,
    RoomWanted,
)

if TYPE_CHECKING:
    from callboard.device.client.residents.registry import Resident, Residents
    from callboard.device.supervision.hosts.base import Host

__all__ = ["Caller"]

_entry = tuple.__new__  # a NamedTuple's own constructor costs twice as much

INLINE = 1 << 20
"""Bytes of a result that are copied on the loop's thread (80 µs at 12 GB/s)."""


class SharedAllocation(Allocation):
    """An array that a resident actor lent: freed once for each time that it came."""

    __slots__ = ("issued",)

    def __init__(self, id: int, released: Any) -> None:
        super().__init__(id, released)
        self.foreign = True  # later calls of the actor may write it
        self.issued = 1

    def issue(self) -> bool:
        """It has come once more; False if it has been freed."""
        with GUARD:
            if self.freed:
                return False
            self.issued += 1
            return True

    def __del__(self) -> None:
        if not self.freed:
            self._release()

    def _release(self) -> None:
        for _ in range(self.issued):
            self.released.append(self.id)


class Caller:
    """The calls of all resident actors of a device.

    Args:
        port: The op line of the device.
        arenas: Host memory shared with the contexts.

    Attributes:
        lender: Lends the arrays that the calls use to an actor in a process of its own; None: the calls use arrays of
            the port's device.
        loans: Calls without an answer that hold arrays for actors in processes of their own, by id.
        residents: The actors.
    """

    residents: "Residents"

    def __init__(self, port: OpPort, arenas: ArenaPool) -> None:
        self._port = port
        self._arenas = arenas
        self._flying: dict[int, CallEnd] = {}
        self._staged: dict[int, Slot] = {}  # slots of arguments, by call
        self.lender: Lender | None = None
        self.loans: dict[int, Loan] = {}
        self._lent: weakref.WeakValueDictionary[int, SharedAllocation] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()
        self._copier = Copier()

    def call(self, actor: "Resident", arguments: Arguments, timeout: float | None) -> Reply[Any]:
        """Accept a call.

        Raises:
            ActorStopped, DeviceStopped, MailboxFull, GpuRefStale, DeviceMismatch: Raised before anything is sent.
        """
        port = self._port
        generation = port.generation
        if port.recorded is not None:
            port.recorded.log.ready()
        if actor.stopped is not None:
            raise marked(_copy(actor.stopped), port.name, port.generation, arguments.tag)
        if len(actor.flying) >= actor.limit and not self._drop_oldest(actor):
            raise self._full(actor, arguments.tag)
        if arguments.refs:
            self._check_refs(arguments)
        deadline = 0.0 if timeout is None else time.monotonic() + timeout
        if arguments.refs and self.lender is not None:
            end, reply = self._call_lent(actor, arguments, deadline, self.lender)
        else:
            end, reply = self._call(actor, arguments, deadline)
        if port.generation != generation:
            on_loop(port, lambda: self._orphan(end.id))
        if timeout is not None:
            on_loop(port, lambda: self._expire_after(end, timeout, arguments.tag))
        if (made := calls_made.get()) is not None:
            end.made = made
            made.add(reply)
        if port.recorded is not None and arguments.given is not None:
            port.recorded.report_call(arguments.tag, *arguments.given, reply)
        return reply

    def _call(self, actor: "Resident", arguments: Arguments, deadline: float) -> tuple[CallEnd, CallReply[Any]]:
        """Send a call, or queue it; deferrable work is done while the host is busy."""
        port = self._port
        slot: Slot | None = None
        call, entry, noted = 0, None, False
        end: CallEnd | None = None
        room = self._ahead(actor) if actor.expected.nbytes else None
        try:
            if arguments.packer.nbytes:
                slot = self._staged_in(arguments)
            pending = port.check_room()
            call = port.mint()
            message = self._message(call, actor, arguments, slot, room, deadline)
            reply: CallReply[Any] = CallReply(self, call)
            end = CallEnd(self, actor, reply, call)
            entry = _entry(Entry, (end, arguments.tag, *origin_of(3), None))
            sent = not pending and port.outbox.post_first(message)
            self._note(end, slot, room)
            noted = True
            port.enter(message, entry, pending, sent)
        except BaseException:  # Ctrl-C, too, which may come when the host has the call
            if entry is None or end is None:
                self._give_unused(slot, room)
            elif not port.unanswered.notifies(end) and (not noted or call in self._flying):
                if not noted:
                    self._note(end, slot, room)
                port.unanswered.doubt(call, entry)
            if call not in port.unanswered.entries:
                actor.flying.pop(call, None)  # one that may never be answered must not take a place for good
            raise
        return end, reply

    def _call_lent(
        self, actor: "Resident", arguments: Arguments, deadline: float, lender: Lender
    ) -> tuple[CallEnd, CallReply[Any]]:
        """Queue a call with device arrays for an actor in a process of its own."""
        slot: Slot | None = None
        reply: CallReply[Any] = CallReply(self)
        end = CallEnd(self, actor, reply)
        room: Slot | None = None
        self._port.check_room()
        lender.port.check_room()

        def message(id: int) -> ActorCall:
            end.id = reply._op = id
            self._note(end, slot, room)
            return lent.hold_back(self._message(id, actor, arguments, slot, room, deadline))

        try:
            if arguments.packer.nbytes:
                slot = self._staged_in(arguments)
            room = self._ahead(actor)
            lent = LentArguments(lender, self._port, arguments, end)
            end.lent.append(lent)
            with lent:
                accept(self._port, arguments.tag, end, message, further=True)
        except BaseException:  # Ctrl-C, too
            if end.id == 0:
                self._give_unused(slot, room)
            raise
        return end, reply

    def _message(
        self, id: int, actor: "Resident", arguments: Arguments, slot: Slot | None, room: Slot | None, deadline: float
    ) -> ActorCall:
        refs = arguments.refs
        return ActorCall(
            id,
            actor.id,
            arguments.body,
            [n for ref in refs for n in (ref.allocation.id, ref.offset)] if refs else [],
            [ref.layout.raw for ref in refs] if refs else [],
            arguments.writes,
            [] if slot is None else [slot.arena_id, slot.offset, slot.nbytes],
            False,
            [] if room is None else [room.arena_id, room.offset, room.nbytes],
            deadline,
        )

    def _note(self, end: CallEnd, slot: Slot | None, room: Slot | None) -> None:
        """A call is in flight."""
        end.actor.flying[end.id] = False
        self._flying[end.id] = end
        if slot is not None:
            self._staged[end.id] = slot
        end.slot = room

    def _staged_in(self, arguments: Arguments) -> Slot:
        """A slot with the arguments that travel beside the message."""
        slot = self._arenas.take(arguments.packer.nbytes, kept=True)  # the actor may keep views of the arrays
        try:
            arguments.packer.stage(_Slot(slot), self._copier.copy)
        except BaseException:  # Ctrl-C, too
            self._arenas.give(slot)
            raise
        return slot

    def _give_unused(self, *slots: Slot | None) -> None:
        for unused in slots:
            if unused is not None:
                self._arenas.give(unused)

    def _full(self, actor: "Resident", tag: str) -> AccelError:
        error = MailboxFull(
            f"{tag}: {actor.limit} calls of {actor.name} are without an answer (max_in_flight); await some first"
        )
        error.more = lambda: self._port.until(lambda: len(actor.flying) < actor.limit or actor.stopped is not None)
        return marked(error, self._port.name, self._port.generation, tag)

    def _check_refs(self, arguments: Arguments) -> None:
        """Check that the device arrays can be used.

        Submits deferred ops that must read the arrays before the call writes them.

        Raises:
            GpuRefStale, DeviceMismatch
        """
        arguments.check(self._port if self.lender is None else self.lender.port)
        for ref, written in zip(arguments.refs, arguments.writes, strict=True):
            if written and ref._port.deferrals is not None:
                ref._port.deferrals.before_write(ref.allocation)

    @property
    def port(self) -> OpPort:
        """The op line."""
        return self._port

    @property
    def arenas(self) -> ArenaPool:
        """Host memory shared with the contexts."""
        return self._arenas

    @property
    def flying(self) -> dict[int, CallEnd]:
        """Calls without an answer, by id."""
        return self._flying

    def _ahead(self, actor: "Resident") -> Slot | None:
        """Memory for the result, if the last ones of the actor needed some."""
        nbytes = actor.expected.nbytes
        if not nbytes:
            return None
        try:
            return self._arenas.take(nbytes)
        except (MailboxFull, MemoryError, RuntimeError):  # the host requests it again when the size is known
            return None

    def _expire_after(self, end: CallEnd, timeout: float, tag: str) -> None:
        if end.id in self._flying:
            end.timer = self._port.loop.call_later(timeout, end.expire, timeout, tag)

    def cancel(self, call: int) -> None:
        """The call is not wanted any more. Any thread."""
        on_loop(self._port, lambda: self._cancel(CancelCall(call)))

    def waits(self, call: int) -> bool:
        """True if a call has not begun: it is not sent, its actor is not ready, or has as many others as it runs."""
        end = self._flying.get(call)
        if end is None:
            return False
        actor = end.actor
        return actor.state != ResidentState.READY or call not in actor.in_turn() or self._port.outbox.holds(call)

    def overrun(self, call: int, grace: float, why: str) -> None:
        """A call takes too long: it is cancelled, and must return within ``grace`` seconds."""
        end = self._flying.get(call)
        self._cancel(CancelCall(call))
        if end is None or end.id not in self._flying or self._port.config.isolation != "process":
            return
        if end.overdue is not None:
            end.overdue.cancel()
        said = f"a call of resident actor {end.actor.name} for {why}"
        end.overdue = self._port.loop.call_later(grace, self._abandoned, end, said)

    def _cancel(self, message: CancelCall) -> None:
        outbox, end = self._port.outbox, self._flying.get(message.call)
        if end is None:
            return
        if outbox.withdraw(message.call):
            if message.overflow:
                end.fail(MailboxFull(f"{end.actor.name}: a newer call took its place"))
        elif outbox.host is not None:
            outbox.host.post(message)
            self._watch(end)

    def _watch(self, end: CallEnd) -> None:
        """The caller has left a call: its code must return within ``abandoned_after`` seconds."""
        config = self._port.config
        if end.overdue is None and config.abandoned_after is not None and config.isolation == "process":
            why = (
                f"a call of resident actor {end.actor.name} does not return after its caller has left (abandoned_after)"
            )
            end.overdue = self._port.loop.call_later(config.abandoned_after, self._abandoned, end, why)

    def _abandoned(self, end: CallEnd, why: str) -> None:
        host = self._port.outbox.host
        if end.id in self._flying and host is not None:
            host.kill_stuck(why)

    def _drop_oldest(self, actor: "Resident") -> bool:
        """Make room for a call by dropping the oldest waiting one, if the actor's class allows it."""
        if actor.overflow != "drop_old":
            return False
        waiting = (call for call, dropped in list(actor.flying.items())[1:] if not dropped)  # the first one runs
        oldest = next(waiting, None)
        if oldest is None:
            return False
        actor.flying[oldest] = True
        on_loop(self._port, lambda: self._cancel(CancelCall(oldest, overflow=True)))
        return True

    def _orphan(self, call: int) -> None:
        """The context was lost while another thread called: a call of the old one will not be answered any more."""
        slot = None if call in self._port.unanswered.entries else self._staged.pop(call, None)
        if slot is not None:
            self._arenas.give(slot)

    def ended(self, end: CallEnd, failed: bool = False) -> None:
        """A call has its completion."""
        actor = end.actor
        self._flying.pop(end.id, None)
        in_turn = len(actor.flying) > actor.at_once and end.id in actor.in_turn()
        actor.flying.pop(end.id, None)
        if in_turn:
            self._begins(actor)
        if end.made is not None:
            end.made.begins(actor.since)
        if failed:
            end.actor.failed += 1
        else:
            end.actor.completed += 1
        if end.timer is not None:
            end.timer.cancel()
        if end.overdue is not None:
            end.overdue.cancel()

    def _begins(self, actor: "Resident") -> None:
        """A call of an actor has ended: tell who made the next one."""
        calls = actor.in_turn()
        following = self._flying.get(calls[-1]) if len(calls) == actor.at_once else None
        if following is not None and following.made is not None:
            following.made.begins(time.monotonic())

    def ref(self, buffer: int, offset: int, dtype: int, shape: list[int], strides: list[int]) -> GpuRef:
        """A device array of a result.

        Raises:
            TypeError, ValueError: The host's message names none.
        """
        layout = layout_from_wire(dtype, shape, strides)
        if type(buffer) is not int or type(offset) is not int or buffer >= 0:
            raise ValueError(f"buffer {buffer!r:.200}, offset {offset!r:.200}: not an array of a resident actor")
        with self._lock:
            allocation = self._lent.get(buffer)
            if allocation is None or not allocation.issue():
                allocation = self._lent[buffer] = SharedAllocation(buffer, self._port.outbox.released)
        ref: GpuRef = GpuRef(self._port, allocation, layout, self._port.generation, offset)
        ref._resolve()
        return ref

    # -- slots ---------------------------------------------------------------------------------------------------------

    def give(self, slot: Slot) -> None:
        """Make a slot available again; after a loss, once the dead host has ended."""
        self._arenas.give(slot)

    def copy(self, target: Any, source: Any, then: Callable[[], None]) -> None:
        """Copy now if it is short, else on the copying thread; ``then()`` runs on the loop."""
        if source.nbytes <= INLINE:
            self._copier.copy(target, source)
            then()
        else:
            self._copier.later(target, source, lambda: post(self._port.loop, then))

    def close(self) -> None:
        """End the copying threads."""
        self._copier.close()

    def returned(self, calls: Iterable[int]) -> None:
        """The arguments of these calls have been read."""
        for call in calls:
            slot = self._staged.pop(call, None)
            if slot is not None:
                self._arenas.give(slot)

    def lost(self) -> None:
        """The context is lost, and with it the calls that used the arguments' slots."""
        self.returned(list(self._staged))

    def room(self, wanted: RoomWanted) -> Room:
        """Return memory for the result of a finished call, or the reason why there is none.

        Raises:
            ProtocolError: No such call is in flight, or it has room.
        """
        end = self._flying.get(wanted.id)
        if end is None and self._port.unanswered.is_late(wanted.id):
            return Room(wanted.id, [], "the call has failed meanwhile")
        granted = 0 if end is None or end.slot is None else end.slot.nbytes
        if end is None or end.asked or wanted.nbytes <= granted:
            raise ProtocolError(f"{wanted.nbytes} bytes for call {wanted.id}")
        end.asked = True
        end.give_slot()
        try:
            end.slot = slot = self._arenas.take(wanted.nbytes)
        except (MailboxFull, MemoryError, RuntimeError) as e:
            return Room(wanted.id, [], f"the result: {e}", retryable=getattr(e, "retryable", True))
        return Room(wanted.id, [slot.arena_id, slot.offset])

    def device_room(self, wanted: DeviceRoomWanted, host: "Host") -> None:
        """Send the host of an actor in a process of its own the targets to which a result's device arrays are copied.

        Raises:
            ProtocolError: No such call is in flight, or it has room.
        """
        end = self._flying.get(wanted.id)
        if end is None and self._port.unanswered.is_late(wanted.id):
            host.post(DeviceRoom(wanted.id, [], as_failure(wanted.id, Withdrawn("the call has failed meanwhile"))))
        elif end is None or end.room is not None or self.lender is None or wanted.nbytes <= 0:
            raise ProtocolError(f"{wanted.nbytes} bytes on the device for call {wanted.id}")
        else:
            end.room = LentRoom(self.lender, wanted.id, wanted.nbytes, host)
            end.lent.append(end.room)


class _Slot:
    """A slot as memory to stage arguments in."""

    __slots__ = ("_slot",)

    def __init__(self, slot: Slot) -> None:
        self._slot = slot

    def array(self, dtype: Any, shape: tuple[int, ...], offset: int) -> Any:
        slot = self._slot
        return np.ndarray(shape, dtype, slot.arena.memory, slot.offset + offset)


def _copy(stopped: ActorStopped) -> ActorStopped:
    error = ActorStopped(str(stopped))
    error.__cause__ = stopped.__cause__
    return error
