"""``Residents``: the resident actors of a device, in the application, over all its contexts."""

import asyncio
import itertools
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from callboard.actors import Props
from callboard.actors._runtime.direct import ref_class
from callboard.actors.errors import ActorStopped, NameInUse
from callboard.core.errors import DeviceStopped
from callboard.device.client.line.port import OpPort
from callboard.device.client.line.refusals import marked
from callboard.device.client.residents.caller import Caller
from callboard.device.client.residents.line import on_loop
from callboard.device.client.residents.ref import ResidentRef, how_to_call
from callboard.device.protocol.arena import ArenaPool
from callboard.device.protocol.failures import as_error
from callboard.device.protocol.messages import (
    ActorEvent,
    FromHost,
    ProtocolError,
    Returned,
    RoomWanted,
    StartActor,
    StopActor,
)
from callboard.device.protocol.residents.actor import ResidentActor
from callboard.device.protocol.residents.code import dumps
from callboard.device.protocol.residents.values import MAX_BODY
from callboard.device.protocol.wire import as_text
from callboard.device.supervision.hosts.base import Host

__all__ = ["Resident", "Residents"]

log = logging.getLogger("callboard.resident")

AHEAD = 4 << 20
"""Most bytes that a call brings along for its result; for more, the host asks when it knows the size."""

SMALLER = 8
"""Smaller results in a row after which less memory is expected to be needed."""

MAX_NAME = 1 << 10

A = TypeVar("A", bound=ResidentActor)

_ids = itertools.count(1)


class Resident:
    """One actor, as the application knows it.

    Attributes:
        id, name: Of the actor.
        cls: Its class; None when a function makes it.
        limit: Calls without an answer that it may have.
        flying: Ids of the calls without an answer.
        expects: Bytes of memory that the result of the next call is expected to need.
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
        self.expects = 0
        self._smaller = 0  # results since the last that needed what is expected
        self.restarts = 0
        self.stopped: ActorStopped | None = None
        self.waiting: list[asyncio.Future[None]] = []

    def expect(self, nbytes: int) -> None:
        """A result has needed so much memory; so may the next."""
        if nbytes >= self.expects:
            self.expects, self._smaller = nbytes if nbytes <= AHEAD else 0, 0
            return
        self._smaller += 1
        if self._smaller >= SMALLER:
            self.expects, self._smaller = nbytes, 0


class Residents:
    """Starts resident actors in every new context, and knows what became of them.

    Args:
        port: The op line of the device.
        arenas: Host memory shared with the contexts.
        hosts: The active host and the standby, as far as they are there.
        isolated: Hosts are processes: code travels by value where it must.

    Attributes:
        caller: Calls them.
    """

    def __init__(self, port: OpPort, arenas: ArenaPool, hosts: Callable[[], Iterable[Host]], isolated: bool) -> None:
        self._port = port
        self._hosts = hosts
        self._isolated = isolated
        self._actors: dict[int, Resident] = {}
        self._lock = threading.Lock()
        self.caller = Caller(port, arenas)

    # -- actors --------------------------------------------------------------------------------------------------------

    def start(self, props: Props[A], name: str | None, recipe: Any) -> ResidentRef[A]:
        """See :meth:`callboard.Device.actor_of`; ``recipe`` is what :meth:`recipe` gave for ``props``."""
        port = self._port
        if port.stopped is not None:
            raise marked(DeviceStopped(f"{port.name}: {port.stopped}"), port.name, port.generation)
        actor_id = next(_ids)
        with self._lock:
            name = self._named(name or props.name, props.label)
            actor = self._actors[actor_id] = Resident(StartActor(actor_id, name, recipe), props)
        on_loop(self._port, lambda: self._post(actor.message))
        return ref_class(ResidentRef, actor.cls, how_to_call)(self, actor)

    def recipe(self, props: Props[Any]) -> Any:
        """What a host makes the actor from: the props, or their code. Any thread.

        Raises:
            TypeError: No ``ResidentActor``, or something that cannot be sent.
            ValueError: More code and arguments than may be sent.
        """
        factory: Any = props._factory
        if isinstance(factory, type) and not issubclass(factory, ResidentActor):
            raise TypeError(
                f"{factory.__qualname__} is no ResidentActor; derive from it, or make it with system.actor_of"
            )
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
            if not name or "/" in name or as_text(name, MAX_NAME) != name:
                raise ValueError(f"name {name!a:.200}: pass Unicode text without '/', of at most {MAX_NAME} bytes")
            if name in taken:
                raise NameInUse(f"{self._port.name} has a resident actor {name!r} already")
            return name
        return next(n for i in itertools.count(1) if (n := f"{label.lower()}-{i}") not in taken)

    def stop(self, actor: Resident) -> None:
        """End it after its current call; calls that wait fail with ``ActorStopped``."""
        if actor.stopped is None:
            actor.stopped = ActorStopped(f"{self._port.name}: resident actor {actor.name} was stopped")
            on_loop(self._port, lambda: self._stop_everywhere(actor))

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

    # -- the device ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the copying threads."""
        self.caller.close()

    def lost(self) -> None:
        """The context is gone."""
        self.caller.lost()
        for actor in [a for a in self._actors.values() if a.stopped is not None or self._port.stopped is not None]:
            self._forget(actor)

    # -- what hosts say ------------------------------------------------------------------------------------------------

    def take(self, host: Host | None, message: FromHost) -> bool:
        """Act on a message if it is about resident actors; says whether it was."""
        match message:
            case ActorEvent():
                self._event(message)
            case Returned():
                self.caller.returned(message.calls)
            case RoomWanted():
                if host is not None:
                    host.post(self.caller.room(message))
            case _:
                return False
        return True

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
        elif message.event != "ready":
            raise ProtocolError(f"{message.event!r:.80} is no event")
