"""``OwnProcesses``: the resident actors of a device that live in processes of their own, on the same device.

Each is the only actor of a second, internal :class:`DeviceActor`: a context host of the same kind, replaced by the same
rules when it is lost. Nothing else is called there, so what it loses concerns one actor.
"""

import asyncio
import concurrent.futures
import contextlib
import math
from collections.abc import Awaitable, Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from callboard.actors import Props
from callboard.actors.errors import ActorStopped
from callboard.actors.refs import ActorRef
from callboard.core.errors import AccelError, AskTimeout, ContextLost, DeviceStopped
from callboard.device.client.line.answers import Answers
from callboard.device.client.line.refusals import marked
from callboard.device.client.line.status import HostStats, ResidentState, TraceRecord
from callboard.device.client.residents.lender import Lender
from callboard.device.client.residents.ref import ResidentRef
from callboard.device.client.residents.registry import Resident, Residents
from callboard.device.protocol.residents.actor import ResidentActor
from callboard.device.supervision.fleet import Fleet
from callboard.device.supervision.generations import next_generation
from callboard.device.supervision.hosts.base import Host
from callboard.device.supervision.hosts.starter import ProcessStarter
from callboard.device.supervision.lifecycle import Event, State
from callboard.device.supervision.supervisor import DeviceSupervisor

if TYPE_CHECKING:
    from callboard.device.supervision.actor import DeviceActor

__all__ = ["OwnProcesses"]

A = TypeVar("A", bound=ResidentActor)

CLOSING = 10.0
"""Seconds that closing may take beyond what the hosts get."""

CONTROL = 5.0
"""Seconds that the device's own host gets to answer a control request."""

ASKED = 1.0
"""Seconds that a process gets to answer a control request; its actor may keep the GIL for longer."""


class OwnProcesses:
    """Starts and ends these actors.

    Args:
        device: The device that they belong to.
        make: Its class, which makes their devices, too.

    Attributes:
        traces: Hooks that are called with a record of each call.
    """

    def __init__(self, device: "DeviceActor", make: "type[DeviceActor]") -> None:
        self._device = device
        self._make = make
        self._processes: dict[int, _OwnProcess] = {}  # by the actor's id
        self._closing: dict[_OwnProcess, asyncio.Task[None]] = {}
        self._shared = False  # memory may be open in other processes
        self._freeing: set[asyncio.Future[None]] = set()
        self.traces: list[Callable[[TraceRecord], None]] = []

    def start(self, props: Props[A], name: str | None, recipe: bytes) -> ResidentRef[A]:
        """See :meth:`callboard.Device.actor_of`. Any thread."""
        loop, outbox = self._device.port.loop, self._device.port.outbox
        if get_ident() == outbox.thread:
            return self._start(props, name, recipe)
        started: concurrent.futures.Future[ResidentRef[A]] = concurrent.futures.Future()

        def start() -> None:
            try:
                started.set_result(self._start(props, name, recipe))
            except Exception as e:  # told to the thread that asked
                started.set_exception(e)

        loop.call_soon_threadsafe(start)
        return started.result(10.0)

    def _start(self, props: Props[A], name: str | None, recipe: bytes) -> ResidentRef[A]:
        device = self._device
        port = device.port
        if port.stopped is not None:
            raise marked(DeviceStopped(f"{port.name}: {port.stopped}"), port.name, port.generation)

        self._shared = self._shared or device.backend.shares

        def start(name: str) -> ResidentRef[A]:
            process = _OwnProcess(device, self._make, props, name, self.traces, self._ended)
            ref = process.residents.start(props, name, recipe)
            process.started(ref._actor)
            self._processes[ref._actor.id] = process
            return ref

        return device.residents.lodge(props, name, start)

    # -- the end -------------------------------------------------------------------------------------------------------

    def _ended(self, process: "_OwnProcess") -> None:
        """Its actor has stopped, and takes no more calls."""
        if self._processes.pop(process.resident.id, None) is not None:
            self._device.residents.unlodge(process.resident)
            task = self._device.port.loop.create_task(process.close(), name="callboard-own-process")
            self._closing[process] = task
            task.add_done_callback(lambda _: self._closing.pop(process))

    def stop(self, error: AccelError, reason: str) -> None:
        """The device has stopped, and with it the actors."""
        for process in list(self._processes.values()):
            process.stop(error, reason)

    async def close(self, timeout: float) -> None:
        """End them all and wait until their processes have ended; each gets about ``timeout`` seconds."""
        for process in list(self._processes.values()):
            self._ended(process)
        for process in self._closing:
            process.limit_close(timeout)
        while self._closing:
            await asyncio.wait(self._closing.values())

    # -- what they tell ------------------------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Wait until every call made before has its completion."""
        await asyncio.gather(*(process.port.drain() for process in self._processes.values()))

    async def busy(self) -> dict[int, float]:
        """Seconds that each has been in calls, by the actor's id; those that do not answer in time are left out."""
        asked = [process.ask("stats", type=HostStats) for process in self._processes.values()]
        answers = await asyncio.gather(*asked)
        return {actor: s for stats in answers if stats is not None for actor, s in stats.residents_busy.items()}

    # -- memory that they have open ------------------------------------------------------------------------------------

    def free_shared(self, ask: Callable[..., Awaitable[Any]], then: Callable[[], None]) -> None:
        """Have the device free what is not used any more and may be open in their processes; then call back."""
        if not self._shared:
            then()
            return

        async def free() -> None:
            with contextlib.suppress(AccelError):  # the context is lost, or does not answer in time
                await self.freed_shared(ask)
            then()

        task = asyncio.ensure_future(free())
        self._freeing.add(task)
        task.add_done_callback(self._freeing.discard)

    async def freed_shared(self, ask: Callable[..., Awaitable[Any]]) -> None:
        """Give cached memory back; what was shared, when no process has it open.

        What a process that does not answer may have open, or one that is being replaced, is left for the next time.
        """
        await ask("trim", timeout=CONTROL)
        if not self._shared:
            return
        handles = await ask("leaving", timeout=CONTROL, type=list[bytes])
        if handles and all(await asyncio.gather(*(process.detach(handles) for process in self._all()))):
            await ask("forget", handles, timeout=CONTROL)

    def _all(self) -> "list[_OwnProcess]":
        return [*self._processes.values(), *self._closing]

    async def trace(self, install: bool) -> None:
        """Begin or end to record calls, in later contexts too."""
        await asyncio.gather(*(process.trace(install) for process in self._processes.values()))


class _OwnProcess:
    """The process of one actor.

    Attributes:
        port, residents: Of the internal device.
        resident: The actor.
    """

    def __init__(
        self,
        owner: "DeviceActor",
        make: "type[DeviceActor]",
        props: Props[Any],
        name: str,
        traces: list[Callable[[TraceRecord], None]],
        ended: Callable[["_OwnProcess"], None],
    ) -> None:
        loop = owner.port.loop
        config = owner.config
        host = msgspec.structs.replace(config.host, trace=config.host.trace or bool(traces))
        config = msgspec.structs.replace(config, isolation="process", dispatcher="own", standby=None, host=host)
        strategy = getattr(props._factory, "supervision", ResidentActor.supervision)
        within = math.inf if strategy.within is None else strategy.within
        supervisor = DeviceSupervisor(strategy.max_restarts, within)
        backend, info = owner.backend, owner.info
        self.resident: Resident
        self.port = port = owner.port.beside(f"{owner.port.name}/{name}", config)
        port.generation = next_generation()
        self._device: DeviceActor | None = None
        self._answers: Answers | None = None
        self._traces = traces
        self._close_timeout = owner.close_timeout
        fleet = Fleet(loop, config.max_staged_bytes, True, self._serving)
        self.residents = residents = Residents(port, fleet.arenas, self._serving, isolated=True)
        residents.caller.lender = self._lender = Lender(
            owner.residents, name, fleet.arenas, not backend.shares, residents.caller.copy, fleet.when_reaped
        )
        self.residents.on_end = lambda _: ended(self)
        starter = ProcessStarter(backend.environment(info), config)

        def own_process() -> "DeviceActor":
            device = make(info, backend, config, supervisor, starter, port, crew=(fleet, self.residents))
            self._answers = Answers(device)
            self._answers.traces = traces
            heard = device.on_loss
            device.on_loss = lambda error: self._lost(heard, error)
            device.on_stop = self._why_stopped
            self._device = device
            device.close_timeout = self._close_timeout
            return device

        self._ref: ActorRef[DeviceActor] = owner.system.actor_of(Props(own_process))

    def started(self, resident: Resident) -> None:
        """The actor has been made."""
        self.resident = resident
        self._lender.actor = resident.id

    def _serving(self) -> list[Host]:
        return [] if self._device is None else self._device._serving()

    # -- losses --------------------------------------------------------------------------------------------------------

    def _lost(self, heard: Callable[[AccelError], None], error: AccelError) -> None:
        """The process is gone: to the actor that is a failure of its own."""
        heard(error)
        actor = self.resident
        if actor.state is not ResidentState.STOPPED:
            actor.restarts += 1
            if actor.state is ResidentState.RESTARTING:
                actor.is_restarting(error)

    def _why_stopped(self, event: Event, error: AccelError, cause: AccelError) -> AccelError:
        """What the calls without an answer fail with, and later ones are refused with."""
        actor = self.resident
        if actor.stopped is None and event is Event.STOP:
            return error  # the device is closed
        if actor.stopped is None:  # the process was lost too often, or no other could be started
            actor.stopped = ActorStopped(f"resident actor {actor.name} has stopped: {error}")
            actor.stopped.__cause__ = cause
        stopped = ActorStopped(str(actor.stopped))
        stopped.__cause__ = actor.stopped.__cause__
        return stopped

    def stop(self, error: AccelError, reason: str) -> None:
        """The device that the actor belongs to has stopped."""
        if self._device is not None:
            self._device._stop(error, Event.STOP, reason)

    def limit_close(self, timeout: float) -> None:
        """Let :meth:`close` wait at most so long for the actor's calls."""
        self._close_timeout = min(timeout, self._close_timeout)
        if self._device is not None:
            self._device.close_timeout = self._close_timeout

    async def close(self) -> None:
        """End the process; nothing of it is left when this returns."""
        if (
            self.port.outbox.host is not None
        ):  # what the actor's end has answered comes behind the word that it has ended
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ASKED):
                    await self.port.drain()
        with contextlib.suppress(TimeoutError):  # the log has an error of the host that could not be ended
            await self._ref.stop_and_wait(timeout=2 * self._close_timeout + CLOSING)
        self._lender.stop()

    # -- control -------------------------------------------------------------------------------------------------------

    async def ask(self, what: str, argument: Any = None, type: Any = Any) -> Any:
        """Ask the process; None where it has no context, or does not answer in time."""
        if self._answers is None or self._device is None or self._device.state is not State.READY:
            return None
        try:
            return await self._answers.ask(what, argument, timeout=ASKED, type=type)
        except (AskTimeout, ContextLost, DeviceStopped):
            return None

    async def detach(self, handles: list[bytes]) -> bool:
        """Have it close memory; says whether it has none of that open."""
        device = self._device
        if device is None or device.state is not State.READY or not device.fleet.hosts <= set(device._serving()):
            return device is None
        return bool(await self.ask("detach", handles, type=bool))

    async def trace(self, install: bool) -> None:
        device = self._device
        if device is not None:  # else it was made with the setting that holds now
            host = msgspec.structs.replace(device.config.host, trace=install)
            device.config = msgspec.structs.replace(device.config, host=host)
            await self.ask("trace", install)
