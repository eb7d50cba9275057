"""``HostActors``: the resident actors of a context host, seen from its admitting thread.

Their turns are admitted (:mod:`callboard.device.resident.hosted.admission`) and ended
(:mod:`callboard.device.resident.hosted.endings`) on it. The actors' threads never touch any of this; they leave
notes, and wake the admitting thread.
"""

import contextlib
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from callboard.actors.errors import ActorStopped
from callboard.device.context.tracks import Track
from callboard.device.hosts.channel import Channel
from callboard.device.protocol import ActorEvent, Failure, Returned, Room, RoomWanted, StartActor, StopActor, Turn
from callboard.device.resident.exceptions import described
from callboard.device.resident.hosted.admission import TurnAdmission
from callboard.device.resident.hosted.endings import TurnEndings
from callboard.device.resident.hosted.item import Ended, Item, Site
from callboard.device.resident.hosted.staging import HostMemory
from callboard.device.resident.hosted.turns import ActorThread
from callboard.device.resident.operands import AdoptedBlock

if TYPE_CHECKING:
    from callboard.device.context.actor import ContextActor

__all__ = ["HostActors"]


class Stage(NamedTuple):
    """What turns need; it is there from the moment on when the context is the device's own."""

    context: "ContextActor"
    admission: TurnAdmission
    endings: TurnEndings


class HostActors:
    """Starts, stops and feeds the actors of one host.

    Args:
        channel: To the application; used on the admitting thread only, but for ``wake`` and ``busy``.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._stage: Stage | None = None
        self._actors: dict[int, ActorThread] = {}
        self._notes: deque[Callable[[], None]] = deque()
        self._returned: deque[int] = deque()
        self._leaving: list[Track] = []
        self._gone_because: dict[int, str] = {}

    # -- messages ------------------------------------------------------------------------------------------------------

    def take(self, message: Turn | Room | StartActor | StopActor) -> None:
        """Act on a message."""
        match message:
            case Turn():
                self._on_stage.admission.turn(message)
            case Room():
                running = self._on_stage.admission.running.get(message.id)
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
        admission = TurnAdmission(context, self._actors, self._gone_because, self.channel.shared, self._give_back)
        self._stage = Stage(context, admission, TurnEndings(context, admission.running))
        for actor in self._actors.values():
            self._enter(actor)

    def _enter(self, actor: ActorThread) -> None:
        if self._stage is None or actor.track is not None:
            return
        context = self._stage.context
        on_host = context.device.info.compute_capability == (0, 0)
        track = context.streams.acquire(actor.name)
        actor.enter(Site(context.device, track, on_host, getattr(context.device, "native", 0)))

    @property
    def _on_stage(self) -> Stage:
        assert self._stage is not None
        return self._stage

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

    # -- notes of the actors' threads ----------------------------------------------------------------------------------

    def post_ended(self, ended: Ended) -> None:
        """A turn has ended."""
        self._post(lambda: self._on_stage.endings.end(ended))

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
        self._on_stage.endings.dying.append(block)

    def _give_back(self, turn: int) -> None:
        self._returned.append(turn)
        with contextlib.suppress(RuntimeError):  # a loop that is closed: nobody waits for it
            self.channel.wake()

    def _post(self, note: Callable[[], None]) -> None:
        self._notes.append(note)
        self.channel.wake()

    def memory_at(self, room: Room, nbytes: int) -> HostMemory:
        """Where a result may be written; any thread."""
        base, _ = self._on_stage.context.admission.arenas[room.place[0]]
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
        launched = self._stage is not None and self._stage.endings.settle()
        self._leaving = [track for track in self._leaving if not self._has_left(track)]
        return launched

    def _gone(self, actor: ActorThread, cause: Failure | None) -> None:
        """A thread has ended: fail what it did not come to."""
        actor.stop()  # what is admitted from now on is refused
        text = f"resident actor {actor.name} has stopped"
        if cause is not None:
            text += f": {cause.attributes.get('type', cause.error)}: {cause.message}"
        self._gone_because[actor.id] = text
        for item in actor.left():
            self._on_stage.endings.fail(Ended(actor, item, b"", [], described(item.message.id, ActorStopped(text))))
            if item.staged is not None:
                item.staged.drop()
        self._actors.pop(actor.id, None)
        self.channel.send(ActorEvent(actor.id, "stopped", cause))
        if actor.track is not None:
            self._leaving.append(actor.track)
        if self._stage is not None and len(self._stage.context.parking):
            self._stage.context.parking.retry()  # parked turns of this actor are refused now

    def _has_left(self, track: Track) -> bool:
        if track.ops or track.completed < track.issued:
            return False
        self._on_stage.context.streams.release(track)
        return True

    def _trim(self) -> None:
        if self._stage is not None:
            self._stage.endings.trim()
