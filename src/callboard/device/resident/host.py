"""``HostActors``: the resident actors of a context host, seen from its admitting thread.

A turn is admitted in the one order like an op: it parks while something that it reads is not enqueued yet, holds its
device arrays while it runs, and counts as their writer afterwards. The actors' threads never touch any of this; they
leave notes, and wake the admitting thread.
"""

import contextlib
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from callboard.actors.errors import ActorStopped
from callboard.core.errors import AccelError, GpuRefStale, ShapeError, Withdrawn
from callboard.core.layout import Layout, layout_from_wire
from callboard.device.context.pending import FAILED, FLYING, Pending
from callboard.device.context.tracks import Track
from callboard.device.hosts.channel import Channel
from callboard.device.protocol import (
    ActorEvent,
    Failure,
    Plain,
    Returned,
    Room,
    RoomWanted,
    StartActor,
    StopActor,
    Turn,
)
from callboard.device.resident.exceptions import described
from callboard.device.resident.item import Ended, Item, Site
from callboard.device.resident.operands import Adopted, AdoptedBlock
from callboard.device.resident.staging import HostMemory, StagedTurn
from callboard.device.resident.turns import ActorThread

if TYPE_CHECKING:
    from callboard.device.context.actor import ContextActor

__all__ = ["HostActors"]


class HostActors:
    """Starts, stops and feeds the actors of one host.

    Args:
        channel: To the application; used on the admitting thread only, but for ``wake`` and ``busy``.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._context: ContextActor | None = None
        self._entered = False
        self._actors: dict[int, ActorThread] = {}
        self._running: dict[int, tuple[ActorThread, Item]] = {}
        self._notes: deque[Callable[[], None]] = deque()
        self._undecided: list[Ended] = []
        self._issued: list[tuple[Pending, list[Adopted]]] = []  # named by values whose verdict is not known
        self._dying: list[AdoptedBlock] = []
        self._returned: deque[int] = deque()
        self._leaving: list[Track] = []
        self._gone_because: dict[int, str] = {}

    # -- messages ------------------------------------------------------------------------------------------------------

    def take(self, message: Turn | Room | StartActor | StopActor) -> None:
        """Act on a message."""
        match message:
            case Turn():
                self.turn(message)
            case Room():
                running = self._running.get(message.id)
                if running is not None:
                    running[0].give_room(message)
            case StartActor():
                actor = self._actors[message.actor] = ActorThread(message, self)
                self._enter(actor)
            case StopActor():
                stopped = self._actors.get(message.actor)
                if stopped is not None:
                    stopped.stop()

    def enter(self, context: "ContextActor") -> None:
        """The context is open and the device's own: set the actors up."""
        self._context = context
        self._entered = True
        for actor in self._actors.values():
            self._enter(actor)

    def _enter(self, actor: ActorThread) -> None:
        context = self._context
        if context is None or not self._entered or actor.track is not None:
            return
        on_host = context.device.info.compute_capability == (0, 0)
        track = context.streams.acquire(actor.name)
        actor.enter(Site(context.device, track, on_host, getattr(context.device, "native", 0)))

    def close(self) -> None:
        """End all actors: the turns that run are waited for, others are dropped."""
        self.abandon()
        for actor in list(self._actors.values()):
            actor.join()
        self.advance()

    def abandon(self) -> None:
        """Tell all actors to end, and do not wait."""
        for actor in self._actors.values():
            actor.stop()

    # -- admission -----------------------------------------------------------------------------------------------------

    def turn(self, message: Plain) -> None:
        """Admit a turn, or park it."""
        assert isinstance(message, Turn)
        context = self._context
        assert context is not None
        actor = self._actors.get(message.actor)
        op = Pending(message.id, 0, None, ())
        if actor is None or actor.stopping:
            self._refuse(message, op, ActorStopped(self._gone_because.get(message.actor, "the actor was stopped")))
            return
        if message.withdrawn:
            self._refuse(message, op, Withdrawn("the call was cancelled before it was sent"))
            return
        reads, writes = _used(message)
        stem = f"actor:{message.actor}"
        parking = context.parking
        if parking.active and parking.blocks(reads, writes, stem, actor.holds):
            parking.park(message, self.turn, reads, writes, stem)
            return
        item = Item(message, op, self._staged(message))
        failed = self._resolve(item)
        if failed is not None:
            self._inherit(item, failed)
        elif op.failure is None:
            self._running[message.id] = (actor, item)
            if item.blocks:
                self._begin(actor, item)
            actor.put(item)

    def _resolve(self, item: Item) -> Pending | None:
        """Find its device arrays; gives the failed op whose result it would read."""
        context, message, op = self._context, item.message, item.op
        assert context is not None
        sources: list[Pending] = []
        failed: Pending | None = None
        for i, (wire, writes) in enumerate(zip(message.layouts, message.writes, strict=True)):
            buffer, offset = message.places[2 * i : 2 * i + 2]
            layout = _layout(bytes(wire))
            block = context.admission.buffers.get(buffer)
            if block is None:
                self._refuse(message, op, GpuRefStale("an argument names no buffer of this context", "freed"), item)
                return None
            low, high = layout.span
            if offset + low < 0 or offset + high > block.nbytes:
                text = f"an argument reaches bytes {offset + low}..{offset + high} of a buffer of {block.nbytes}"
                self._refuse(message, op, ShapeError(text), item)
                return None
            source = block.source
            if source is not None and source.state == FAILED:
                failed = failed or source
            elif source is not None and source.state == FLYING:
                sources.append(source)
            item.operands.append((block.address + offset, layout, writes))
            item.blocks.append((block, writes))
        op.sources = sources
        return failed

    def _begin(self, actor: ActorThread, item: Item) -> None:
        """Order the actor's stream behind its operands' users, and keep others off them."""
        context, track = self._context, actor.track
        assert context is not None
        assert track is not None
        busy = not all(block.idle() for block, _ in item.blocks)
        for block, writes in item.blocks:
            if writes:
                block.before_write(track)
                block.source = item.op
            else:
                block.before_read(track)
            block.only = None  # its next user looks at its hazards
        if busy and context.device.info.compute_capability == (0, 0):
            item.start = track.stream.record()  # on a CPU the actor's thread itself touches the memory
        for holds in (actor.holds, context.parking.held):
            holds.add(*_used(item.message))
        item.holds = True

    def _staged(self, message: Turn) -> StagedTurn | None:
        if not message.staged:
            return None
        assert self._context is not None
        arena, offset, nbytes = message.staged
        base, size = self._context.admission.arenas[arena]
        assert offset + nbytes <= size
        return StagedTurn(message.id, base + offset, nbytes, self.channel.shared, self._give_back)

    def _refuse(self, message: Turn, op: Pending, error: AccelError, item: Item | None = None) -> None:
        assert self._context is not None
        self._context.ledger.fail(op, described(message.id, error))
        self._drop(message, item, op)

    def _inherit(self, item: Item, source: Pending) -> None:
        assert self._context is not None
        self._context.ledger.inherit(item.op, source, f"the call read what op {source.root} owed")
        self._drop(item.message, item, item.op)

    def _drop(self, message: Turn, item: Item | None, op: Pending) -> None:
        """The turn will not run: what it would have written fails for its readers."""
        assert self._context is not None
        buffers = self._context.admission.buffers
        for buffer, writes in zip(message.places[::2], message.writes, strict=True):
            block = buffers.get(buffer)
            if writes and block is not None:
                block.source = op
        if item is not None and item.staged is not None:
            item.staged.drop()
        elif message.staged:
            self._give_back(message.id)

    # -- notes of the actors' threads ----------------------------------------------------------------------------------

    def post_ended(self, ended: Ended) -> None:
        """A turn has ended."""
        self._post(lambda: self._end(ended))

    def post_gone(self, actor: ActorThread, cause: Failure | None) -> None:
        """The thread ends; ``cause`` says why the actor gave up."""
        self._post(lambda: self._gone(actor, cause))

    def post_event(self, actor: ActorThread, event: str) -> None:
        self._post(lambda: self.channel.send(ActorEvent(actor.id, event)))

    def post_room_wanted(self, actor: ActorThread, item: Item, nbytes: int) -> None:
        self._post(lambda: self.channel.send(RoomWanted(item.message.id, nbytes)))

    def post_trim(self) -> None:
        """Memory was short."""
        self._post(self._trim)

    def post_lost(self, error: Exception) -> None:
        """The context is dead."""

        def lose() -> None:
            raise error

        self._post(lose)

    def post_dying(self, block: AdoptedBlock) -> None:
        """Nobody can name the block any more (admitting thread)."""
        self._dying.append(block)

    def _give_back(self, turn: int) -> None:
        self._returned.append(turn)
        with contextlib.suppress(RuntimeError):  # a loop that is closed: nobody waits for it
            self.channel.wake()

    def _post(self, note: Callable[[], None]) -> None:
        self._notes.append(note)
        self.channel.wake()

    def memory_at(self, room: Room, nbytes: int) -> HostMemory:
        """Where a result may be written; any thread."""
        assert self._context is not None
        base, _ = self._context.admission.arenas[room.place[0]]
        return HostMemory(base + room.place[1], nbytes)

    # -- one round -----------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Act on the notes; before the context looks at its events.

        Raises:
            ContextPoisoned, Unrecoverable: An actor found the context dead.
        """
        notes = self._notes
        while notes:
            notes.popleft()()
        if self._returned:
            turns = [self._returned.popleft() for _ in range(len(self._returned))]
            self.channel.send(Returned(turns))

    def settle(self) -> bool:
        """What waited for verdicts; after the context has settled. True when ops may have been launched."""
        if not (self._undecided or self._issued or self._dying or self._leaving):
            return False
        undecided, self._undecided = self._undecided, []
        for ended in undecided:
            self._fail(ended)
        for op, adopted in self._issued:
            if op.state == FAILED:
                for one in adopted:
                    self._take_back(one)
        self._issued = [entry for entry in self._issued if entry[0].state == FLYING]
        self._dying = [block for block in self._dying if not block.idle()]
        self._leaving = [track for track in self._leaving if not self._has_left(track)]
        return len(self._undecided) < len(undecided)

    def _end(self, ended: Ended) -> None:
        if ended.trim:
            self._trim()
        if ended.failure is not None:
            self._fail(ended)
            return
        op, actor = ended.item.op, ended.actor
        op.answer = ended.value
        ticket = self._ticket(actor)
        op.ticket = ticket
        if ended.adopted:
            self._issued.append((op, ended.adopted))
            for adopted in ended.adopted:
                self._issue(adopted, op, actor, ticket)
        self._finish(ended.item, actor, ticket)

    def _fail(self, ended: Ended) -> None:
        """A turn failed: of itself, unless an op failed whose result it read."""
        op = ended.item.op
        if any(source.state == FLYING for source in op.sources):
            self._undecided.append(ended)
            return
        context, failure = self._context, ended.failure
        assert context is not None
        assert failure is not None
        source = next((s for s in op.sources if s.state == FAILED), None)
        if source is not None:
            context.ledger.inherit(op, source, f"the call read what op {source.root} owed")
        else:
            context.ledger.fail(op, failure)
        if ended.asked:
            ended.actor.decide(own=source is None)
        self._finish(ended.item, ended.actor, self._ticket(ended.actor) if ended.item.blocks else 0)

    def _ticket(self, actor: ActorThread) -> int:
        """The turn's ticket. What a CPU's turn did is done when it ends; a stream may still be at it."""
        context, track = self._context, actor.track
        assert context is not None
        assert track is not None
        done = context.device.info.compute_capability == (0, 0) and track.completed == track.issued
        track.issued += 1
        if done:
            track.sealed = track.completed = track.issued
        else:
            track.seal()  # the stream is not idle while the actor's next turn enqueues on it
        return track.issued

    def _finish(self, item: Item, actor: ActorThread, ticket: int) -> None:
        context, op, track = self._context, item.op, actor.track
        assert context is not None
        assert track is not None
        del self._running[item.message.id]
        for block, writes in item.blocks:
            block.only = None
            if writes:
                block.readers.clear()
                block.writer, block.wrote = track, ticket
            else:
                block.readers[track] = ticket
        if op.state == FLYING:
            track.ops.append(op)
        parking = context.parking
        if item.holds:
            for holds in (actor.holds, parking.held):
                holds.remove(*_used(item.message))
        if len(parking):
            parking.retry()

    def _gone(self, actor: ActorThread, cause: Failure | None) -> None:
        """A thread has ended: fail what it did not come to."""
        actor.stop()  # what is admitted from now on is refused
        text = f"resident actor {actor.name} has stopped"
        if cause is not None:
            text += f": {cause.attributes.get('type', cause.error)}: {cause.message}"
        self._gone_because[actor.id] = text
        for item in actor.left():
            self._fail(Ended(actor, item, b"", [], described(item.message.id, ActorStopped(text))))
            if item.staged is not None:
                item.staged.drop()
        self._actors.pop(actor.id, None)
        self.channel.send(ActorEvent(actor.id, "stopped", cause))
        if actor.track is not None:
            self._leaving.append(actor.track)
        if self._context is not None and len(self._context.parking):
            self._context.parking.retry()  # parked turns of this actor are refused now

    # -- adopted memory ------------------------------------------------------------------------------------------------

    def _issue(self, adopted: Adopted, op: Pending, actor: ActorThread, ticket: int) -> None:
        """The value of a turn names an array of the actor's."""
        assert self._context is not None
        block = adopted.block
        block.issued += 1
        if block in self._dying:
            self._dying.remove(block)
        self._context.admission.buffers[block.id] = block
        block.writer, block.wrote, block.source = actor.track, ticket, op
        block.only = None

    def _take_back(self, adopted: Adopted) -> None:
        assert self._context is not None
        if adopted.block.give(self._context.pool):
            self._context.admission.buffers.pop(adopted.block.id, None)

    def _has_left(self, track: Track) -> bool:
        assert self._context is not None
        if track.ops or track.completed < track.issued:
            return False
        self._context.streams.release(track)
        return True

    def _trim(self) -> None:
        if self._context is not None:
            self._context.pool.trim()
            self._context.device.trim()


@lru_cache(maxsize=4096)
def _layout(wire: bytes) -> Layout:
    return layout_from_wire(*msgspec.msgpack.decode(wire))


def _used(turn: Turn) -> tuple[list[int], list[int]]:
    """Buffers that it reads only, and those that it may write."""
    reads: list[int] = []
    writes: list[int] = []
    for buffer, written in zip(turn.places[::2], turn.writes, strict=True):
        (writes if written else reads).append(buffer)
    return reads, writes
