"""``Residents``: the resident actors of a device, in the application, over all its contexts."""

import asyncio
import itertools
import logging
import math
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from callboard.actors import Props
from callboard.actors._runtime.direct import ref_class
from callboard.actors.errors import ActorStopped, AskTimeout, NameInUse
from callboard.core.errors import AccelError
from callboard.device.client.line.port import OpPort
from callboard.device.client.line.status import ResidentState, ResidentStats
from callboard.device.client.residents.caller import Caller
from callboard.device.client.residents.ending import Killable, stop
from callboard.device.client.residents.line import on_loop
from callboard.device.client.residents.ref import ResidentRef, how_to_call
from callboard.device.client.residents.resident import Resident
from callboard.device.protocol.arena import ArenaPool
from callboard.device.protocol.failures import as_error
from callboard.device.protocol.messages import (
    ActorEvent,
    DeviceRoomWanted,
    FromHost,
    Held,
    ProtocolError,
    Returned,
    RoomWanted,
    StartActor,
    StopActor,
)
from callboard.device.protocol.residents.actor import ResidentActor, check_options
from callboard.device.protocol.residents.code import dumps
from callboard.device.protocol.residents.values import MAX_BODY
from callboard.device.protocol.wire import as_text
from callboard.device.supervision.hosts.base import Host

__all__ = ["Resident", "Residents"]

log = logging.getLogger("callboard.resident")

MAX_NAME = 1 << 10

MAX_GIVEN_UP = 64
"""Actors that have stopped after failures whose figures are kept."""

A = TypeVar("A", bound=ResidentActor)

_ids = itertools.count(1)


async def _unable(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("no host is connected")


class Residents:
    """Starts resident actors in every new context, and tracks their states.

    Args:
        port: The op line of the device.
        arenas: Host memory shared with the contexts.
        hosts: Returns the active host and the standbys, as far as they exist.
        isolated: Hosts are processes: code travels by value where it must.

    Attributes:
        port, isolated: As given.
        caller: Calls them.
        on_end: Called when one has ended.
        on_failed: Called when one has stopped after a failure.
        drop_standby: Replaces the standbys, for a reason.
        expect: Called with the id of an actor that the standbys prepare from now on.
        changed: Called when the host has said something about the state of an actor.
        ask: Sends a control request to the host; see :meth:`Answers.ask`.
        suspected: Ids of actors that :class:`Starts` sets up alone; standbys do not have them.
        own: Process that has no other actor and no ops; None: the actors live in the device's host.
    """

    def __init__(self, port: OpPort, arenas: ArenaPool, hosts: Callable[[], Iterable[Host]], isolated: bool) -> None:
        self.port = port
        self.isolated = isolated
        self._hosts = hosts
        self._actors: dict[int, Resident] = {}
        self._external: dict[int, Resident] = {}  # in processes of their own
        self._held_for: dict[int, StartActor] = {}  # those of them that have used device arrays
        self._given_up: dict[str, ResidentStats] = {}
        self._lock = threading.Lock()
        self.caller = Caller(port, arenas)
        self.caller.residents = self
        self.ask: Callable[..., Awaitable[Any]] = _unable
        self.on_end: Callable[[Resident], None] = lambda _: None
        self.on_failed: Callable[[ActorStopped], None] = lambda _: None
        self.drop_standby: Callable[[str], None] = lambda _: None
        self.expect: Callable[[int], None] = lambda _: None
        self.changed: Callable[[], None] = lambda: None
        self.suspected: set[int] = set()
        self.own: Killable | None = None

    # -- actors --------------------------------------------------------------------------------------------------------

    def start(self, props: Props[A], name: str | None, recipe: Any) -> ResidentRef[A]:
        """See :meth:`callboard.Device.actor_of`; ``recipe`` is the result of :meth:`recipe` for ``props``."""
        port = self.port
        if port.stopped is not None:
            raise port.why_stopped()
        actor_id = next(_ids)
        with self._lock:
            name = self._named(name or props.name, props.label)
            self._given_up.pop(name, None)
            message = StartActor(actor_id, name, recipe, alone=self.caller.lender is not None)
            actor = self._actors[actor_id] = Resident(message, props, port)
        on_loop(self.port, lambda: self.post(actor.message))
        return ref_class(ResidentRef, actor.cls, how_to_call)(self, actor)

    def register_external(
        self, props: Props[A], name: str | None, start: Callable[[str], ResidentRef[A]]
    ) -> ResidentRef[A]:
        """List an actor that ``start(name)`` starts in a separate process, under a unique name."""
        with self._lock:
            name = self._named(name or props.name, props.label)
            self._given_up.pop(name, None)
            ref = start(name)
            self._external[ref._actor.id] = ref._actor
        return ref

    def unregister_external(self, actor: Resident) -> None:
        """Remove an actor that has ended from the list, unless it failed."""
        self.forget(actor)

    async def when_ready(self, ref: ResidentRef[A]) -> ResidentRef[A]:
        """The ref of an actor that was just started, when it is ready; else the actor is stopped and its name is free.

        Raises:
            ActorStopped, DeviceStopped
        """
        try:
            return await ref.ready()
        except BaseException:  # a cancellation, too
            actor = ref._actor
            actor.named = False  # now: a setup that still runs ends when it likes
            stop(self, actor)
            raise

    def recipe(self, props: Props[Any], *, isolated: bool = False) -> Any:
        """The description from which a host creates the actor: the props, or their code. Any thread.

        Args:
            props: Props of the actor.
            isolated: It is to live in a process of its own, whatever the isolation of the device.

        Raises:
            TypeError: No ``ResidentActor``, or something that cannot be sent.
            ValueError: More code and arguments than may be sent; a class attribute with a value that it may not have;
                a guardian for an actor in a thread.
        """
        factory: Any = props._factory
        if isinstance(factory, type):
            if not issubclass(factory, ResidentActor):
                raise TypeError(
                    f"{factory.__qualname__} is not a ResidentActor; derive from it, or make it with system.actor_of"
                )
            check_options(factory)  # again: they may have been set since the class was made
        if not (self.isolated or isolated):
            if self.port.config.guardian:
                raise ValueError(
                    f"{props.label}: guardian=True, but processes that an actor in a thread starts are children of the "
                    "application, and continue when it is killed; open the device with isolation='process', or start "
                    "the actor with own_process=True"
                )
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
        taken = {actor.name for actor in self._listed() if actor.named}
        if name is not None:
            if not name or "/" in name or as_text(name, MAX_NAME) != name:
                raise ValueError(f"name {name!a:.200}: pass Unicode text without '/', of at most {MAX_NAME} bytes")
            if name in taken:
                ends = any(a.name == name and a.stopped is not None for a in self._listed())
                cure = "; it was stopped and has not ended yet: await stop_and_wait(kill=True)" if ends else ""
                raise NameInUse(f"{self.port.name} has a resident actor {name!r} already{cure}")
            return name
        return next(n for i in itertools.count(1) if (n := f"{label.lower()}-{i}") not in taken)

    def kill(self, actor: Resident, why: str) -> None:
        """Kill the process in which the code of an actor runs that was stopped."""
        if self.own is not None:
            actor.stopped = ActorStopped(f"{self.port.name}: {why}, so its process was killed")
            log.error("%s", actor.stopped, extra={"device": self.port.name, "resident": actor.name})
            self.own.kill()
            self.forget(actor)
            return
        if not actor.was_ready:  # the standby runs the same code
            self.drop_standby(why)
        host = self.port.outbox.host
        if host is not None:
            host.kill_stuck(why)

    def has(self, actor: Resident) -> bool:
        """True until it has ended."""
        return actor.id in self._actors

    def find(self, actor: int) -> Resident | None:
        """The actor of an id; None if it has ended."""
        return self._actors.get(actor)

    def living_actors(self) -> list[Resident]:
        """The actors that have not been stopped."""
        with self._lock:
            return [actor for actor in self._actors.values() if actor.stopped is None]

    async def ran(self, call: int, timeout: float) -> float | None:
        """See :meth:`CallReply.ran`."""
        try:
            seconds: float = await self.ask("ran", call, timeout=timeout, type=float)
        except AskTimeout:
            return None
        except NotImplementedError:  # a node of an earlier version
            return math.inf
        except AccelError:  # the context is lost
            return 0.0
        return seconds

    def may_run(self, besides: Collection[int]) -> bool:
        """True if the host may run something else than these calls: another call, an op, or the setup of an actor."""
        flying = self.caller.flying
        if any(actor.state in (ResidentState.STARTING, ResidentState.RESTARTING) for actor in self.living_actors()):
            return True
        if any(op not in flying for op in list(self.port.unanswered.entries)):
            return True
        actors = {end.actor.id: end.actor for end in list(flying.values())}
        in_turn = (call for actor in actors.values() for call in actor.in_turn())
        return any(call not in besides and not self.caller.waits(call) for call in in_turn)

    def starts(self) -> list[StartActor]:
        """The messages that a new host gets first, without those of suspects."""
        actors = [actor.message for actor in self.living_actors() if actor.id not in self.suspected]
        with self._lock:
            return actors + list(self._held_for.values())

    def suspects(self) -> list[StartActor]:
        """The further messages of a host that is to be the active one: suspects wait in it."""
        found = (actor.message for actor in self.living_actors() if actor.id in self.suspected)
        return [msgspec.structs.replace(message, held=True) for message in found]

    def stop_everywhere(self, actor: Resident) -> None:
        """Stop an actor in all hosts."""
        self.post(StopActor(actor.id))

    def new_id(self) -> int:
        """An id that no actor of this process has, for one outside this device that arrays are to be held for."""
        return next(_ids)

    def hold_for(self, actor: int, name: str) -> None:
        """Have the hosts hold arrays for an actor in a separate process."""
        with self._lock:
            message = self._held_for[actor] = StartActor(actor, name, None)
        self.post(message)

    def hold_no_more(self, actor: int) -> None:
        """It has ended."""
        with self._lock:
            del self._held_for[actor]
        self.post(StopActor(actor))

    def forget(self, actor: Resident) -> None:
        """It has ended: its name is free."""
        if actor.overdue is not None:
            actor.overdue.cancel()
        with self._lock:
            self._actors.pop(actor.id, None)
            self._external.pop(actor.id, None)
            if actor.named and actor.stopped is not None and actor.cause is not None:
                self._given_up[actor.name] = actor.stats(0.0)
                for name in list(self._given_up)[:-MAX_GIVEN_UP]:
                    del self._given_up[name]
        actor.changed()
        waiting, actor.waiting = actor.waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
        self.on_end(actor)

    def _listed(self) -> list[Resident]:
        return [*self._actors.values(), *self._external.values()]

    async def until_stopped(self, actor: Resident) -> None:
        """Wait until it has ended."""
        if actor.id in self._actors:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            actor.waiting.append(future)
            await future

    def post(self, message: StartActor | StopActor) -> None:
        """Send a message to the active host and to the standbys."""
        for host in self._hosts():
            host.post(message)
        if isinstance(message, StartActor) and message.recipe is not None:
            self.expect(message.actor)

    def living(self) -> list[int]:
        """The ids of the actors that a new host starts."""
        return [message.actor for message in self.starts() if message.recipe is not None]

    def set_up_now(self) -> bool:
        """Whether an instance of one is being made in the active host."""
        with self._lock:
            states = [actor.state for actor in self._actors.values()]
        return ResidentState.STARTING in states or ResidentState.RESTARTING in states

    def states(self) -> dict[str, ResidentState]:
        """The state of each actor, by name, including failed ones. Any thread."""
        with self._lock:
            states = dict.fromkeys(self._given_up, ResidentState.STOPPED)
            return states | {actor.name: actor.state for actor in self._listed() if actor.named}

    def stats(self, busy: Mapping[int, float]) -> dict[str, ResidentStats]:
        """The figures of each actor, by name; ``busy`` has the seconds measured by the host, by the actor's id."""
        with self._lock:
            actors = [actor for actor in self._listed() if actor.named]
            return self._given_up | {actor.name: actor.stats(busy.get(actor.id, 0.0)) for actor in actors}

    # -- the device ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the copying threads, and the timers."""
        for actor in self._actors.values():
            if actor.overdue is not None:
                actor.overdue.cancel()
        self.caller.close()

    def lost(self) -> None:
        """The context is lost."""
        self.caller.lost()
        for actor in list(self._actors.values()):
            if actor.state is ResidentState.STOPPED:
                self.forget(actor)
            else:
                actor.is_lost()

    # -- what hosts say ------------------------------------------------------------------------------------------------

    def take(self, host: Host | None, message: FromHost) -> bool:
        """Act on a message if it is about resident actors; returns whether it was."""
        match message:
            case ActorEvent():
                self._event(message)
                self.changed()
            case Held():
                loan = self.caller.loans.get(message.id)
                if loan is not None:
                    loan.held(message.regions)
            case DeviceRoomWanted():
                if host is not None:
                    self.caller.device_room(message, host)
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
        name = f"{self.port.name}: resident actor {actor.name}"
        if message.event == "restarting":
            actor.is_restarting(None if message.error is None else as_error(message.error))
        elif message.event == "restarted":
            actor.restarts += 1
            actor.is_ready()
            log.warning(
                "%s was restarted after a failure", name, extra={"device": self.port.name, "resident": actor.name}
            )
        elif message.event == "stopped":
            if message.error is not None and actor.stopped is None:
                cause = as_error(message.error)
                actor.stopped = ActorStopped(f"{name} has stopped: {type(cause).__name__}: {cause}")
                actor.stopped.__cause__ = cause
                log.error("%s", actor.stopped, extra={"device": self.port.name, "resident": actor.name})
                self.on_failed(actor.stopped)
            elif actor.stopped is None:
                actor.stopped = ActorStopped(f"{name} has stopped")
            self.post(StopActor(actor.id))
            self.forget(actor)
        elif message.event == "ready":
            actor.is_ready()
        elif message.event != "prepared":  # of a host that has taken over, or is about to open its context
            raise ProtocolError(f"{message.event!r:.80} is not an event")
