"""``HostActors``: the resident actors of a context host, as its admitting thread handles them.

The admitting thread admits their calls (:mod:`callboard.device.host.residents.admission`) and ends them
(:mod:`callboard.device.host.residents.endings`). The actors' own threads never touch this state: they queue notes for
the admitting thread and wake it.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from callboard.actors.errors import ActorStopped
from callboard.core.backend import Memory
from callboard.core.errors import AccelError, MailboxFull, OutOfMemory, Withdrawn
from callboard.device.host import collecting
from callboard.device.host.channel import Channel
from callboard.device.host.context.admission.shortage import shortage
from callboard.device.host.context.timelines import Timeline
from callboard.device.host.residents.admission import CallAdmission
from callboard.device.host.residents.apart.holder import Holder
from callboard.device.host.residents.endings import CallEndings
from callboard.device.host.residents.item import EndedCall, Item, Outcome, Site
from callboard.device.host.residents.lending import Lendings
from callboard.device.host.residents.operands import AdoptedBlock
from callboard.device.host.residents.rehearsal import Rehearsals
from callboard.device.host.residents.shortcut import Shortcut
from callboard.device.host.residents.staging import HostMemory
from callboard.device.host.residents.thread.thread import ActorThread
from callboard.device.protocol.messages import (
    ActorCall,
    ActorEvent,
    CancelCall,
    DeviceRoom,
    DeviceRoomWanted,
    FailureMessage,
    Release,
    Returned,
    Room,
    RoomWanted,
    StartActor,
    StopActor,
)
from callboard.device.protocol.residents.exceptions import described

if TYPE_CHECKING:
    from callboard.device.host.context.actor import ContextActor
    from callboard.device.host.context.serve import ContextHost

__all__ = ["HostActors"]

PATIENCE = 64
"""Calls that are handed to other threads after ops had to wait for a call on the thread that serves."""


class Stage(NamedTuple):
    """The services that calls use; created when the context becomes the active one of the device."""

    context: "ContextActor"
    admission: CallAdmission
    endings: CallEndings


class HostActors:
    """Starts and stops the actors of one host, and hands calls to them.

    Args:
        channel: Channel to the application; used on the admitting thread only, except ``wake`` and ``busy``.
        serving: The host; for the thread that serves.

    Attributes:
        stage: The services that calls use; None before the context is the active one of the device.
        notes: What the admitting thread is to do next.
        shortcut: Admits and answers a call that comes alone.
    """

    def __init__(self, channel: Channel, serving: "ContextHost") -> None:
        self.channel = channel
        self.serving = serving
        self.helm = serving.helm
        self._crowded = 0  # calls for which no actor may serve
        self.stage: Stage | None = None
        self._actors: dict[int, ActorThread | Holder] = {}
        self._holders: list[Holder] = []
        self.notes: deque[Callable[[], None]] = deque()
        self.lendings = Lendings(self.post_dying)
        self._returned: deque[int] = deque()
        self._reporting = 0  # thread that reports its returned memory itself, as soon as the present call has ended
        self._leaving: list[Timeline] = []
        self._gone_because: dict[int, str] = {}
        self.rehearsals = Rehearsals(self)
        self.shortcut = Shortcut(self)
        self._without_stream: dict[int, FailureMessage] = {}  # actors that stop because no stream could be made

    # -- messages ------------------------------------------------------------------------------------------------------

    def call(self, message: ActorCall) -> None:
        """Admit a call."""
        self._on_stage.admission.call(message)

    def take(self, message: ActorCall | CancelCall | Room | DeviceRoom | Release | StartActor | StopActor) -> None:
        """Handle one message."""
        match message:
            case ActorCall():
                self.call(message)
            case CancelCall():
                if self.stage is not None:
                    self._cancel(self.stage, message)
            case Room():
                running = self._on_stage.admission.running.get(message.id)
                if running is not None:
                    with contextlib.suppress(OutOfMemory):  # memory_at raises it to the call
                        self._on_stage.context.admission.arenas.find(message.place[0] if message.place else 0)
                    running[0].give_room(message)
            case DeviceRoom():
                running = self._on_stage.admission.running.get(message.id)
                if running is not None:
                    if message.region:
                        with contextlib.suppress(AccelError):  # the actor's thread raises it to the call
                            self.attached.address(*message.region)
                    running[0].give_room(message)
            case Release():
                for holder in self._holders:
                    holder.release(message)
            case StartActor():
                known = self._actors.get(message.actor)
                if known is None:
                    self._start(message)
                elif isinstance(known, ActorThread):  # also a repetition, which a host that is just starting gets
                    known.hold(message.held)
            case StopActor():
                stopped = self._actors.get(message.actor)
                if stopped is not None:
                    stopped.stop()

    def _cancel(self, stage: Stage, message: CancelCall) -> None:
        if message.call not in stage.admission.running:
            stage.admission.withdraw(message.call)
            return
        actor, item = stage.admission.running[message.call]
        text = f"{actor.name}: a newer call took its place" if message.overflow else "the call was cancelled"
        error = MailboxFull(text) if message.overflow else Withdrawn(text)
        if not message.overflow or not item.claimed:
            item.cancelled = error  # for the actor's thread, too, which may be claiming it
        if item.claim(refuse=True):  # it has not begun, and will not
            self._refuse(actor, item, error)
        elif not message.overflow:
            actor.cancel(message.call)

    def _refuse(self, actor: ActorThread | Holder, item: Item, error: AccelError) -> None:
        """Fail a call that was admitted and will not run."""
        self._on_stage.endings.fail(EndedCall(actor, item, b"", [], described(item.message.id, error)))
        if item.staged is not None:
            item.staged.drop()

    def enter(self, context: "ContextActor") -> None:
        """Set the actors up: the context is open and is the active one of the device."""
        self.rehearsals.begin(None)
        self.attached = context.attached
        admission = CallAdmission(
            context, self._actors, self._gone_because, self.channel.shared, self._give_back, self.attached
        )
        self.stage = Stage(context, admission, CallEndings(context, admission.running))
        context.residents_busy = lambda: {actor.id: actor.busy.seconds for actor in self._actors.values()}
        context.residents_ran = self._ran
        for actor in self._actors.values():
            self._enter(actor)

    def _ran(self, call: int) -> float:
        """Seconds since a call began; 0 if it has not, or has ended."""
        _, item = self._on_stage.admission.running.get(call, (None, None))
        return time.monotonic() - item.began if item is not None and item.began else 0.0

    def _start(self, message: StartActor) -> None:
        if message.recipe is None:
            holder = self._actors[message.actor] = Holder(message.actor, message.name, self)
            self._holders.append(holder)
            self._enter(holder)
            return
        collecting.as_usual()
        try:
            actor = ActorThread(message, self)
        except RuntimeError as e:
            short = shortage(e, f"resident actor {message.name}")
            if short is None:
                raise
            self._gone_because[message.actor] = f"resident actor {message.name} has stopped: {short}"
            self.channel.send(ActorEvent(message.actor, "stopped", described(0, short)))
            return
        self._actors[message.actor] = actor
        self._enter(actor)

    def _enter(self, actor: ActorThread | Holder) -> None:
        if self.stage is None or actor.timeline is not None:
            return
        context = self.stage.context
        try:
            timeline = context.streams.acquire(actor.name)
        except Exception as e:  # from the system or a driver: raised again unless memory is short
            short = shortage(e, f"a stream of resident actor {actor.name}")
            if short is None:
                raise
            self._without_stream[actor.id] = described(0, short)
            actor.stop()
            return
        actor.enter(self.site(context, timeline))

    def site(self, context: "ContextActor", timeline: Timeline) -> Site:
        """A location in a context."""
        on_host = context.device.info.compute_capability == (0, 0)
        native = getattr(context.device, "native", 0)
        return Site(context.device, timeline, on_host, native, context.libraries, context.config.memory_limit)

    @property
    def _on_stage(self) -> Stage:
        assert self.stage is not None
        return self.stage

    def ended(self) -> bool:
        """Tell all actors to end after their running calls; True when all have. Does not wait."""
        self.abandon()
        return not self._actors and self.rehearsals.ended

    def join(self) -> None:
        """Wait until the threads of all actors have ended, which were told to end."""
        for actor in list(self._actors.values()):
            actor.join()

    def abandon(self) -> None:
        """Tell all actors to end; does not wait."""
        for actor in self._actors.values():
            actor.stop()

    # -- notes from the actors' threads --------------------------------------------------------------------------------

    def post_ended(self, ended: EndedCall) -> None:
        """Note that a call has ended."""
        self.post(lambda: self._on_stage.endings.end(ended))

    def post_gone(self, actor: ActorThread | Holder, cause: FailureMessage | None) -> None:
        """Note that the thread ends; ``cause`` is the failure of the actor, None after a requested stop."""
        self.post(lambda: self._gone(actor, cause))

    def post_prepared(self, actor: ActorThread) -> None:
        """Note that the actor has tried to make and prepare its first instance."""
        self.post(lambda: self.rehearsals.prepared(actor))

    def post_event(
        self, actor: ActorThread, event: str, error: FailureMessage | None = None, *, at_once: bool = False
    ) -> None:
        """Tell the application of an event; ``at_once``: before this returns, unless both are one process's loop."""
        if at_once and not self.channel.on_loop:
            self.channel.send(ActorEvent(actor.id, event, error))
        else:
            self.post(lambda: self.channel.send(ActorEvent(actor.id, event, error)))

    def post_room_wanted(self, item: Item, nbytes: int) -> None:
        self.post(lambda: self.channel.send(RoomWanted(item.message.id, nbytes)))

    def post_device_room_wanted(self, item: Item, nbytes: int) -> None:
        self.post(lambda: self.channel.send(DeviceRoomWanted(item.message.id, nbytes)))

    def post_trim(self) -> None:
        """Note that memory was short."""
        self.post(self._trim)

    def post_lost(self, error: Exception) -> None:
        """Note that the context is dead."""

        def lose() -> None:
            raise error

        self.post(lose)

    def post_dying(self, block: AdoptedBlock) -> None:
        """The last ref to the block was dropped (admitting thread)."""
        self._on_stage.endings.dying.append(block)

    def _give_back(self, call: int) -> None:
        self._returned.append(call)
        if threading.get_ident() != self._reporting:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the note is not needed any more
                self.channel.wake()

    def post(self, note: Callable[[], None]) -> None:
        """Note that ``note`` is to be called on the admitting thread."""
        self.notes.append(note)
        self.channel.wake()

    def memory_at(self, room: Room, nbytes: int) -> HostMemory:
        """The memory for a result; any thread.

        Raises:
            OutOfMemory: This process has no room for the arena.
        """
        mapped = self._on_stage.context.admission.arenas.mapped.get(room.place[0])
        if mapped is None:
            raise OutOfMemory(f"the context host has no memory for an arena with a result of {nbytes:,} bytes")
        return HostMemory(mapped[0] + room.place[1], nbytes)

    # -- one iteration of the admitting loop ---------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """True if user code runs on threads other than the serving one."""
        if self.stage is None:
            return False
        holder = None if self.helm is None else self.helm.holder
        return any(
            actor is not holder and actor not in self._holders for actor, _ in self.stage.admission.running.values()
        )

    @property
    def quiet(self) -> bool:
        """True if no call is pending and none can arrive except from other devices: another thread may serve ops."""
        stage = self.stage
        return (
            len(self._holders) == len(self._actors)
            and not self.notes
            and (stage is None or not (stage.admission.running or stage.admission.ready))
        )

    @property
    def waiting(self) -> bool:
        """True if a call in another process waits for the users of its arrays."""
        return any(holder.waiting for holder in self._holders)

    def all_ready(self, messages: Sequence[object]) -> bool:
        """True if all of these were calls, all are ready for their actors, and no other work is pending."""
        return (
            self.stage is not None
            and len(self.stage.admission.ready) == len(messages) > 0
            and all(type(message) is ActorCall for message in messages)
            and not self.notes
        )

    def dispatch(self) -> None:
        """Hand the calls that were admitted to their actors; one that is called alone serves from now on."""
        if self.stage is None or not self.stage.admission.ready:
            return
        admission = self.stage.admission
        ready = admission.ready = [entry for entry in admission.ready if not entry[1].claimed]  # cancelled meanwhile
        if not ready:
            return
        running, alone = admission.running, ready[0][0]
        if self._crowded:
            self._crowded = max(0, self._crowded - len(ready))
        elif (
            self.helm is not None
            and alone.is_short
            and self.helm.holder is not alone
            and len(running) == len(ready)
            and all(actor is alone for actor, _ in ready)
        ):
            self.helm.pass_to(alone, self._hand_over)
            return
        self._hand_over()

    def _hand_over(self) -> None:
        """Queue ready calls."""
        assert self.stage is not None
        admission = self.stage.admission
        ready, admission.ready = admission.ready, []
        for actor, item in ready:
            actor.put(item)

    def share(self, memory: Memory) -> bytes:
        """The handle by which another process opens this memory; raises as :meth:`Shares.handle`."""
        return self._on_stage.context.shares.handle(memory)

    def run(self, actor: ActorThread, item: Item) -> Outcome:
        """Run a call on the thread that serves."""
        self._reporting = threading.get_ident()
        try:
            return actor.outcome(item)
        finally:
            self._reporting = 0

    def crowd(self) -> None:
        """Ops had to wait for a call on the serving thread: run calls on other threads for a while."""
        self._crowded = PATIENCE

    def end(self, ended: EndedCall) -> None:
        """Settle a call; on the thread that serves."""
        self._on_stage.endings.end(ended)

    def fail(self, ended: EndedCall) -> None:
        """Settle a call that has failed; on the thread that serves."""
        self._on_stage.endings.fail(ended)

    def advance(self) -> None:
        """Act on the notes; called before the context polls its streams.

        Raises:
            ContextPoisoned, Unrecoverable: An actor found the context dead.
        """
        notes = self.notes
        while notes:
            notes.popleft()()

    def report(self) -> None:
        """Tell the application which memory it has back, after the completions, which calls wait for."""
        if self._returned:
            self.channel.send(Returned(self.take_returned()))

    def take_returned(self) -> list[int]:
        """The calls whose arguments' memory the application has back, since the last time."""
        return [self._returned.popleft() for _ in range(len(self._returned))]

    def settle(self) -> bool:
        """Decide calls that waited for completions, once the context has settled; True if ops may be launched."""
        launched = self.stage is not None and self.stage.endings.settle()
        for holder in self._holders:
            holder.advance()
        self._leaving = [timeline for timeline in self._leaving if not self._has_left(timeline)]
        return launched

    def _gone(self, actor: ActorThread | Holder, cause: FailureMessage | None) -> None:
        """A thread has ended: fail the calls that it did not run, and one that an error of the host has interrupted."""
        actor.stop()  # calls that are admitted from now on are refused
        if self.stage is not None:
            self._hand_over()
        cause = self._without_stream.pop(actor.id, cause)
        text = f"resident actor {actor.name} has stopped"
        if cause is not None:
            text += f": {cause.attributes.get('type', cause.error)}: {cause.message}"
        self._gone_because[actor.id] = text
        for item in actor.left():
            if item.claim(refuse=True):
                self._refuse(actor, item, ActorStopped(text))
        if self.stage is not None:
            for item in self.stage.endings.unanswered(actor):
                self._refuse(actor, item, ActorStopped(text))
        self._actors.pop(actor.id, None)
        if isinstance(actor, Holder):
            self._holders.remove(actor)
        self.channel.send(ActorEvent(actor.id, "stopped", cause))
        if actor.timeline is not None:
            self._leaving.append(actor.timeline)

    def _has_left(self, timeline: Timeline) -> bool:
        if timeline.ops or timeline.completed < timeline.issued or not timeline.stream.query():
            return False  # not idle: work in flight, or a wait that was enqueued for a call that did not run
        self._on_stage.context.streams.release(timeline)
        return True

    def _trim(self) -> None:
        if self.stage is not None:
            self.stage.endings.trim()
