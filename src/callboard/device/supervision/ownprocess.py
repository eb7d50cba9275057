"""``OwnProcess``: the process of one resident actor, as an internal device of which it is the only actor."""

import asyncio
import contextlib
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from callboard.actors import Props
from callboard.actors.errors import ActorStopped
from callboard.actors.refs import ActorRef
from callboard.core.errors import AccelError, AskTimeout, ContextLost, DeviceStopped
from callboard.device.client.line.answers import Answers
from callboard.device.client.line.status import ResidentState, TraceRecord
from callboard.device.client.residents.lender import Lender
from callboard.device.client.residents.registry import Resident, Residents
from callboard.device.config import DeviceConfig
from callboard.device.protocol.residents.actor import ResidentActor
from callboard.device.supervision.fleet import Fleet
from callboard.device.supervision.generations import next_generation
from callboard.device.supervision.hosts.base import Host
from callboard.device.supervision.hosts.starter import ProcessStarter
from callboard.device.supervision.lifecycle import Event, State
from callboard.device.supervision.supervisor import DeviceSupervisor

if TYPE_CHECKING:
    from callboard.device.supervision.actor import DeviceActor

__all__ = ["ASKED", "OwnProcess"]

CLOSING = 10.0
"""Seconds that closing may take beyond the hosts' time."""

ASKED = 1.0
"""Seconds that a process gets to answer a control request; its actor may keep the GIL for longer."""


class OwnProcess:
    """The process of one actor.

    Attributes:
        port, residents: Op port and resident actors of the internal device.
        trace_every: One op in so many is recorded; 0: none.
        lender: Lends it arrays.
        resident: The actor.
    """

    def __init__(
        self,
        owner: "DeviceActor",
        make: "type[DeviceActor]",
        props: Props[Any],
        name: str,
        config: DeviceConfig,
        traces: list[Callable[[TraceRecord], None]],
        ended: Callable[["OwnProcess"], None],
    ) -> None:
        loop = owner.port.loop
        config = msgspec.structs.replace(config, isolation="process", dispatcher="own")
        strategy = getattr(props._factory, "supervision", ResidentActor.supervision)
        within = math.inf if strategy.within is None else strategy.within
        supervisor = DeviceSupervisor(strategy.max_restarts, within)
        backend, info = owner.backend, owner.info
        self.resident: Resident
        self.port = port = owner.port.beside(f"{owner.port.name}/{name}", config)
        port.generation = next_generation()
        self._device: DeviceActor | None = None
        self._answers: Answers | None = None
        self.trace_every = 0
        self._close_timeout = owner.close_timeout
        self._detaching: set[asyncio.Task[bool]] = set()
        fleet = Fleet(loop, config.max_staged_bytes, True, self._serving)
        self.residents = residents = Residents(port, fleet.arenas, self._serving, isolated=True)
        residents.caller.lender = self.lender = Lender(
            owner.residents,
            name,
            fleet.arenas,
            not backend.shares,
            residents.caller.copy,
            fleet.when_reaped,
            self._detach_soon,
        )
        self.residents.on_end = lambda _: ended(self)
        self.residents.own = self
        self._on_failed = owner.residents.on_failed
        self._killed = False
        self._made, self._gone = asyncio.Event(), asyncio.Event()
        starter = ProcessStarter(backend.environment(info), config)

        def own_process() -> "DeviceActor":
            device = make(info, backend, config, supervisor, starter, port, parts=(fleet, self.residents))
            self._answers = Answers(device)
            self._answers.traces = traces
            heard = device.on_loss
            device.on_loss = lambda error: self._lost(heard, error)
            device.on_stop = self._why_stopped
            residents.on_failed = owner.residents.on_failed
            self._device = device
            device.close_timeout = self._close_timeout
            device.settings.set("trace", self.trace_every)
            self._made.set()
            return device

        self._ref: ActorRef[DeviceActor] = owner.system.actor_of(Props(own_process))

    def started(self, resident: Resident) -> None:
        """The actor has been made."""
        self.resident = resident
        self.lender.actor = resident.id

    def _serving(self) -> list[Host]:
        return [] if self._device is None else self._device._serving()

    @property
    def hosts(self) -> list[Host]:
        """The process, and its standbys."""
        return [] if self._device is None else list(self._device.fleet.hosts)

    # -- losses --------------------------------------------------------------------------------------------------------

    def _lost(self, heard: Callable[[AccelError], None], error: AccelError) -> None:
        """The process has ended: this counts as a failure of the actor."""
        heard(error)
        actor = self.resident
        if actor.state is not ResidentState.STOPPED:
            actor.restarts += 1
            if actor.state is ResidentState.RESTARTING:
                actor.is_restarting(error)

    def _why_stopped(self, event: Event, error: AccelError, cause: AccelError) -> AccelError:
        """The error of unanswered calls and of later ones."""
        actor = self.resident
        if actor.stopped is None and event is Event.STOP:
            return error  # the device is closed
        if actor.stopped is None:  # the process was lost too often, or no other could be started
            actor.stopped = ActorStopped(f"resident actor {actor.name} has stopped: {error}")
            actor.stopped.__cause__ = cause
            self._on_failed(actor.stopped)
        stopped = ActorStopped(str(actor.stopped))
        stopped.__cause__ = actor.stopped.__cause__
        return stopped

    def stop(self, error: AccelError, reason: str) -> None:
        """The device that the actor belongs to has stopped."""
        if self._device is not None:
            self._device._stop(error, Event.STOP, reason)

    def limit_close(self, timeout: float) -> None:
        """Limit the seconds that :meth:`close` waits for the actor's calls."""
        self._close_timeout = min(timeout, self._close_timeout)
        if self._device is not None:
            self._device.close_timeout = self._close_timeout

    def hurry(self, timeout: float) -> None:
        """The same, also for a :meth:`close` that is under way."""
        self._close_timeout = min(timeout, self._close_timeout)
        if self._device is not None:
            self._device.hurry()

    async def close(self) -> None:
        """End the process; nothing of it is left when this returns."""
        if self.port.outbox.host is not None and not self._killed:
            # Answers of the actor's end may arrive after the report that it has ended.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ASKED):
                    await self.port.drain()
        with contextlib.suppress(TimeoutError):  # the log has an error of the host that could not be ended
            await self._ref.stop_and_wait(timeout=2 * self._close_timeout + CLOSING)
        self.lender.stop()
        self._made.set()
        self._gone.set()

    def kill(self) -> None:
        """Have :meth:`close` end the process without waiting for the actor's code, which does not return."""
        self._killed = True
        self.limit_close(0.0)

    async def gone(self) -> None:
        """Wait until :meth:`close` has ended it."""
        await self._gone.wait()

    # -- standbys ------------------------------------------------------------------------------------------------------

    @property
    def standbys(self) -> tuple[int, int]:
        """The number of its standbys that are ready, and of those that are wanted."""
        device = self._device
        return (0, 0) if device is None else (device.standbys_ready, device.standbys_wanted)

    async def until_standby(self) -> bool:
        """Wait until its standbys are ready; False if none is kept, or the actor has stopped."""
        await self._made.wait()
        with contextlib.suppress(DeviceStopped):
            return self._device is not None and await self._device.until_standby()
        return False

    # -- control -------------------------------------------------------------------------------------------------------

    async def ask(self, what: str, argument: Any = None, type: Any = Any) -> Any:
        """Ask the process; None if it has no context, or does not answer in time."""
        if self._answers is None or self._device is None or self._device.state is not State.READY:
            return None
        try:
            return await self._answers.ask(what, argument, timeout=ASKED, type=type)
        except (AskTimeout, ContextLost, DeviceStopped):
            return None

    def _detach_soon(self, handles: list[bytes]) -> None:
        task = self.port.loop.create_task(self.detach(handles), name="callboard-detach")
        self._detaching.add(task)
        task.add_done_callback(self._detaching.discard)

    async def detach(self, handles: list[bytes]) -> bool:
        """Have it close memory; returns whether none of it is open."""
        device = self._device
        if device is None or device.state is not State.READY or not device.fleet.hosts <= set(device._serving()):
            return device is None
        return bool(await self.ask("detach", handles, type=bool))

    async def trace(self, every: int) -> None:
        """See :meth:`OwnProcesses.trace`."""
        self.trace_every = every
        device = self._device
        if device is not None:  # else it will be made with this setting
            device.settings.set("trace", every)
            await self.ask("trace", every)
