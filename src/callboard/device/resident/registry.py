"""``Residents``: the resident actors of a device, in the application, over all its contexts."""

import asyncio
import itertools
import logging
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from callboard.actors import Props
from callboard.actors.errors import ActorStopped, NameInUse
from callboard.core.errors import DeviceStopped, MailboxFull
from callboard.core.layout import layout_from_wire
from callboard.core.ref import Allocation, GpuRef
from callboard.core.reply import Reply
from callboard.device.arena import ArenaPool, Slot
from callboard.device.failures import as_error
from callboard.device.hosts.base import Host
from callboard.device.line.copying import Copier
from callboard.device.line.port import OpPort
from callboard.device.line.refusals import marked
from callboard.device.protocol import ActorEvent, FromHost, Returned, Room, RoomWanted, StartActor, StopActor, Turn
from callboard.device.resident.actor import ResidentActor
from callboard.device.resident.calls import Arguments, TurnEnd
from callboard.device.resident.code import dumps
from callboard.device.resident.line import accept
from callboard.device.resident.ref import ResidentRef
from callboard.device.resident.values import MAX_BODY

__all__ = ["Resident", "Residents"]

log = logging.getLogger("callboard.resident")

INLINE = 1 << 20
"""Bytes of a result that are copied on the loop's thread (80 µs at 12 GB/s)."""

A = TypeVar("A", bound=ResidentActor)

_ids = itertools.count(1)


class Resident:
    """One actor, as the application knows it.

    Attributes:
        id, name: Of the actor.
        cls: Its class; None when a function makes it.
        limit: Calls without an answer that it may have.
        flying: Ids of the calls without an answer.
        restarts: How often it was restarted after a failure, over all contexts.
        stopped: Why it takes no more calls.
    """

    def __init__(self, message: StartActor, props: Props[Any]) -> None:
        factory = props._factory
        self.id = message.actor
        self.name = message.name
        self.message = message
        self.cls = factory if isinstance(factory, type) else None
        self.limit: int = getattr(factory, "max_in_flight", ResidentActor.max_in_flight)
        self.flying: set[int] = set()
        self.restarts = 0
        self.stopped: ActorStopped | None = None
        self.waiting: list[asyncio.Future[None]] = []


class SharedAllocation(Allocation):
    """An array that a resident actor lent: freed once for each time that it came."""

    __slots__ = ("issued",)

    def __init__(self, id: int, released: Any) -> None:
        super().__init__(id, released)
        self.issued = 1

    def free(self) -> None:
        if not self.freed:
            self.freed = True
            self._release()

    def __del__(self) -> None:
        if not self.freed:
            self._release()

    def _release(self) -> None:
        for _ in range(self.issued):
            self.released.append(self.id)


class Residents:
    """Starts resident actors in every new context, calls them, and keeps what their calls use.

    Args:
        port: The op line of the device.
        arenas: Host memory shared with the contexts.
        hosts: The active host and the standby, as far as they are there.
        isolated: Hosts are processes: code travels by value where it must.
    """

    def __init__(self, port: OpPort, arenas: ArenaPool, hosts: Callable[[], Iterable[Host]], isolated: bool) -> None:
        self._port = port
        self._arenas = arenas
        self._hosts = hosts
        self._isolated = isolated
        self._actors: dict[int, Resident] = {}
        self._flying: dict[int, TurnEnd] = {}
        self._staged: dict[int, Slot] = {}  # slots of arguments, by turn
        self._lent: weakref.WeakValueDictionary[int, SharedAllocation] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()
        self._copier = Copier()

    # -- actors --------------------------------------------------------------------------------------------------------

    def start(self, props: Props[A], name: str | None) -> ResidentRef[A]:
        """See :meth:`callboard.Device.actor_of`."""
        port = self._port
        if port.stopped is not None:
            raise marked(DeviceStopped(f"{port.name}: {port.stopped}"), port.name, port.generation)
        factory: Any = props._factory
        if isinstance(factory, type) and not issubclass(factory, ResidentActor):
            raise TypeError(
                f"{factory.__qualname__} is no ResidentActor; derive from it, or make it with system.actor_of"
            )
        actor_id = next(_ids)
        recipe = self._recipe(props)
        with self._lock:
            name = self._named(name or props.name, props.label)
            actor = self._actors[actor_id] = Resident(StartActor(actor_id, name, recipe), props)
        self._on_loop(lambda: self._post(actor.message))
        return ResidentRef(self, actor)

    def _recipe(self, props: Props[Any]) -> Any:
        if not self._isolated:
            return props
        try:
            code = dumps(props)
        except Exception as e:  # whatever a user's __reduce__ raises
            raise TypeError(
                f"{props.label} cannot be sent to the context host: {e}; pass arguments that pickle, and open files, "
                "locks and connections in prepare() or setup()"
            ) from e
        if len(code) > MAX_BODY:
            raise ValueError(
                f"{props.label}: its code and arguments are {len(code):,} bytes, at most {MAX_BODY:,}; load large "
                "arrays in prepare(), or pass them to a method"
            )
        return code

    def _named(self, name: str | None, label: str) -> str:
        taken = {actor.name for actor in self._actors.values()}
        if name is not None:
            if not name or "/" in name:
                raise ValueError(f"name {name!r}: pass a name without '/'")
            if name in taken:
                raise NameInUse(f"{self._port.name} has a resident actor {name!r} already")
            return name
        return next(n for i in itertools.count(1) if (n := f"{label.lower()}-{i}") not in taken)

    def stop(self, actor: Resident) -> None:
        """End it after its current call; calls that wait fail with ``ActorStopped``."""
        if actor.stopped is None:
            actor.stopped = ActorStopped(f"{self._port.name}: resident actor {actor.name} was stopped")
            self._on_loop(lambda: self._stop_everywhere(actor))

    def _stop_everywhere(self, actor: Resident) -> None:
        """A standby forgets it; where no context is there to say that it has ended, it has."""
        self._post(StopActor(actor.id))
        if self._port.outbox.host is None:
            self._forget(actor)

    def starts(self) -> list[StartActor]:
        """What a new host is told."""
        with self._lock:
            return [actor.message for actor in self._actors.values() if actor.stopped is None]

    def _forget(self, actor: Resident) -> None:
        with self._lock:
            self._actors.pop(actor.id, None)
        waiting, actor.waiting = actor.waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def until_stopped(self, actor: Resident) -> None:
        """Wait until it has ended."""
        if actor.id in self._actors:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            actor.waiting.append(future)
            await future

    def _post(self, message: StartActor | StopActor) -> None:
        for host in self._hosts():
            host.post(message)

    def _on_loop(self, action: Callable[[], None]) -> None:
        if threading.get_ident() == self._port.outbox.thread:
            action()
        else:
            self._port.loop.call_soon_threadsafe(action)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def call(self, actor: Resident, arguments: Arguments, timeout: float | None) -> Reply[Any]:
        """Accept a call.

        Raises:
            ActorStopped, DeviceStopped, MailboxFull, GpuRefStale, DeviceMismatch: Nothing has been sent.
        """
        port = self._port
        generation = port.generation
        if actor.stopped is not None:
            raise marked(_copy(actor.stopped), port.name, port.generation, arguments.tag)
        if len(actor.flying) >= actor.limit:
            raise marked(
                MailboxFull(
                    f"{arguments.tag}: {actor.limit} calls of {actor.name} are without an answer (max_in_flight); "
                    "await some first"
                ),
                port.name,
                port.generation,
                arguments.tag,
            )
        arguments.check(port)
        slot: Slot | None = None
        reply: Reply[Any] = Reply(port)
        end = TurnEnd(self, actor.id, reply)

        def message(id: int) -> Turn:
            end.id = reply._op = id
            actor.flying.add(id)
            self._flying[id] = end
            if slot is not None:
                self._staged[id] = slot
            refs = arguments.refs
            places = [n for ref in refs for n in (ref.allocation.id, ref.offset)]
            staged = [] if slot is None else [slot.arena_id, slot.offset, slot.nbytes]
            return Turn(id, actor.id, arguments.body, places, [r.layout.raw for r in refs], arguments.writes, staged)

        if arguments.packer.nbytes:
            slot = self._arenas.take(arguments.packer.nbytes)
        try:
            if slot is not None:
                arguments.packer.stage(_Slot(slot), self._copier.copy)
            accept(port, arguments.tag, end, message)
        except BaseException:  # Ctrl-C, too
            if slot is not None and end.id == 0:
                self._arenas.give(slot)
            raise
        if port.generation != generation:
            self._on_loop(lambda: self._orphan(end.id))
        if timeout is not None:
            self._on_loop(lambda: self._expire_after(end, timeout, arguments.tag))
        return reply

    def _expire_after(self, end: TurnEnd, timeout: float, tag: str) -> None:
        if end.id in self._flying:
            end.timer = self._port.loop.call_later(timeout, end.expire, timeout, tag)

    def _orphan(self, turn: int) -> None:
        """The context was lost while another thread called: a call of the old one will not be answered any more."""
        slot = None if turn in self._port.unanswered.entries else self._staged.pop(turn, None)
        if slot is not None:
            self._arenas.give(slot)

    def ended(self, end: TurnEnd) -> None:
        """A call has its verdict."""
        self._flying.pop(end.id, None)
        actor = self._actors.get(end.actor)
        if actor is not None:
            actor.flying.discard(end.id)
        if end.timer is not None:
            end.timer.cancel()

    def ref(self, buffer: int, offset: int, dtype: int, shape: list[int], strides: list[int]) -> GpuRef:
        """A device array that came with a result."""
        layout = layout_from_wire(dtype, shape, strides)
        with self._lock:
            allocation = self._lent.get(buffer)
            if allocation is None or allocation.freed:
                allocation = self._lent[buffer] = SharedAllocation(buffer, self._port.outbox.released)
            else:
                allocation.issued += 1
        ref: GpuRef = GpuRef(self._port, allocation, layout, self._port.generation, offset)
        ref._resolve()
        return ref

    # -- slots ---------------------------------------------------------------------------------------------------------

    def give(self, slot: Slot) -> None:
        """A slot is used again; after a loss not before the dead host is gone."""
        self._arenas.give(slot)

    def copy(self, target: Any, source: Any, then: Callable[[], None]) -> None:
        """Copy now if it is short, else on the copying thread; ``then()`` runs on the loop."""
        if source.nbytes <= INLINE:
            self._copier.copy(target, source)
            then()
        else:
            self._copier.later(target, source, lambda: self._port.loop.call_soon_threadsafe(then))

    def close(self) -> None:
        """End the copying threads."""
        self._copier.close()

    def lost(self) -> None:
        """The context is gone, and with it whoever used the arguments' slots."""
        staged, self._staged = self._staged, {}
        for slot in staged.values():
            self._arenas.give(slot)
        for actor in [a for a in self._actors.values() if a.stopped is not None or self._port.stopped is not None]:
            self._forget(actor)

    # -- what hosts say ------------------------------------------------------------------------------------------------

    def take(self, host: Host | None, message: FromHost) -> bool:
        """Act on a message if it is about resident actors; says whether it was."""
        match message:
            case ActorEvent():
                self._event(message)
            case Returned():
                for turn in message.turns:
                    slot = self._staged.pop(turn, None)
                    if slot is not None:
                        self._arenas.give(slot)
            case RoomWanted():
                if host is not None:
                    host.post(self._room(message))
            case _:
                return False
        return True

    def _room(self, wanted: RoomWanted) -> Room:
        end = self._flying.get(wanted.id)
        if end is None:
            return Room(wanted.id, [], "the call has failed meanwhile")
        try:
            end.slot = slot = self._arenas.take(wanted.nbytes)
        except (MailboxFull, MemoryError, RuntimeError) as e:
            return Room(wanted.id, [], f"the result: {e}")
        return Room(wanted.id, [slot.arena_id, slot.offset])

    def _event(self, message: ActorEvent) -> None:
        actor = self._actors.get(message.actor)
        if actor is None:
            return
        name = f"{self._port.name}: resident actor {actor.name}"
        if message.event == "restarted":
            actor.restarts += 1
            log.warning("%s was restarted after a failure", name)
        elif message.event == "stopped":
            if message.error is not None and actor.stopped is None:
                cause = as_error(message.error)
                actor.stopped = ActorStopped(f"{name} has stopped: {type(cause).__name__}: {cause}")
                actor.stopped.__cause__ = cause
                log.error("%s", actor.stopped)
            elif actor.stopped is None:
                actor.stopped = ActorStopped(f"{name} has stopped")
            self._post(StopActor(actor.id))
            self._forget(actor)


class _Slot:
    """A slot as memory to stage arguments in."""

    __slots__ = ("_slot",)

    def __init__(self, slot: Slot) -> None:
        self._slot = slot

    def array(self, dtype: Any, shape: tuple[int, ...], offset: int) -> Any:
        size = dtype.itemsize
        for n in shape:
            size *= n
        return self._slot.array[offset : offset + size].view(dtype).reshape(shape)


def _copy(stopped: ActorStopped) -> ActorStopped:
    error = ActorStopped(str(stopped))
    error.__cause__ = stopped.__cause__
    return error
