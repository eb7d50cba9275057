"""``OwnProcesses``: the resident actors of a device that live in processes of their own, on the same device.

Each is the only actor of a second, internal :class:`DeviceActor`: a context host of the same kind, replaced by the same
rules when it is lost. No other calls go there, so its loss concerns one actor only.
"""

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Awaitable, Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from callboard.actors import Props
from callboard.actors.loops.posting import post
from callboard.core.errors import AccelError, UnsupportedOp
from callboard.device.client.line.status import HostStats, TraceRecord
from callboard.device.client.residents.ref import ResidentRef
from callboard.device.config import DeviceConfig
from callboard.device.protocol.residents.actor import ResidentActor
from callboard.device.supervision.hosts.base import Host
from callboard.device.supervision.ownprocess import OwnProcess
from callboard.events.ring import EVENTS

if TYPE_CHECKING:
    from callboard.device.client.residents.lender import Lender
    from callboard.device.supervision.actor import DeviceActor

__all__ = ["OwnProcesses"]

A = TypeVar("A", bound=ResidentActor)

CONTROL = 5.0
"""Seconds that the device's own host gets to answer a control request."""


class Borrower(Protocol):
    """The host of another device, which opens memory of this one for copies.

    Attributes:
        lender: Lends it arrays.
    """

    @property
    def lender(self) -> "Lender": ...

    async def detach(self, handles: list[bytes]) -> bool:
        """Have it close memory; returns whether none of it is open."""
        ...


class OwnProcesses:
    """Starts and ends these actors.

    Args:
        device: The device that they belong to.
        make: Device class, which also creates the actors' devices.

    Attributes:
        traces: Hooks that are called with a record of each call.
        trace_every: One op in so many is recorded; 0: none.
    """

    def __init__(self, device: "DeviceActor", make: "type[DeviceActor]") -> None:
        self._device = device
        self._make = make
        self._processes: dict[int, OwnProcess] = {}  # by the actor's id
        self._closing: dict[OwnProcess, asyncio.Task[None]] = {}
        self._borrowers: list[Borrower] = []
        self._shared = False  # memory may be open in other processes
        self._freeing: set[asyncio.Future[None]] = set()
        self.traces: list[Callable[[TraceRecord], None]] = []
        self.trace_every = 1 if device.config.host.trace else EVENTS.every

    def start(self, props: Props[A], name: str | None, recipe: bytes, config: DeviceConfig) -> ResidentRef[A]:
        """See :meth:`callboard.Device.actor_of`; ``config`` has the standbys of the process. Any thread."""
        loop, outbox = self._device.port.loop, self._device.port.outbox
        if get_ident() == outbox.thread:
            return self._start(props, name, recipe, config)
        started: concurrent.futures.Future[ResidentRef[A]] = concurrent.futures.Future()

        def start() -> None:
            try:
                started.set_result(self._start(props, name, recipe, config))
            except Exception as e:  # passed to the requesting thread
                started.set_exception(e)

        if not post(loop, start):
            raise self._device.port.why_stopped()
        return started.result(10.0)

    def _start(self, props: Props[A], name: str | None, recipe: bytes, config: DeviceConfig) -> ResidentRef[A]:
        device = self._device
        port = device.port
        if port.stopped is not None:
            raise port.why_stopped()

        if device.remote:
            raise UnsupportedOp("own_process: the device is on another machine; start the actor in its host")
        self._shared = self._shared or device.backend.shares

        def start(name: str) -> ResidentRef[A]:
            process = OwnProcess(device, self._make, props, name, config, self.traces, self._ended)
            process.trace_every = self.trace_every
            ref = process.residents.start(props, name, recipe)
            process.started(ref._actor)
            self._processes[ref._actor.id] = process
            return ref

        return device.residents.register_external(props, name, start)

    @property
    def hosts(self) -> list[Host]:
        """The processes, and their standbys."""
        return [host for process in self._processes.values() for host in process.hosts]

    # -- the end -------------------------------------------------------------------------------------------------------

    def _ended(self, process: "OwnProcess") -> None:
        """Its actor has stopped and rejects calls."""
        if self._processes.pop(process.resident.id, None) is not None:
            self._device.residents.unregister_external(process.resident)
            task = self._device.port.loop.create_task(process.close(), name="callboard-own-process")
            self._closing[process] = task
            task.add_done_callback(lambda _: self._closing.pop(process))

    def lost(self) -> None:
        """The device's context is lost."""
        for borrower in (*self._processes.values(), *self._borrowers):
            borrower.lender.lost()

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

    def hurry(self, timeout: float) -> None:
        """Limit the time that each of them gets to end, also those that are ending."""
        for process in (*self._processes.values(), *self._closing):
            process.hurry(timeout)

    def standbys(self) -> tuple[int, int]:
        """The numbers of their standbys that are ready, and that are wanted."""
        counts = [process.standbys for process in self._processes.values()]
        return sum(ready for ready, _ in counts), sum(wanted for _, wanted in counts)

    async def until_standby(self) -> bool:
        """Wait until all their standbys are ready; False if none is kept."""
        return any([await process.until_standby() for process in list(self._processes.values())])

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
        """Have the device free unused memory that may be open in their processes; then call back."""
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
        """Release cached memory; shared memory once no process has it open.

        Memory is kept until a later call if a process does not answer or is being replaced, since that process may have
        it open.
        """
        await ask("trim", timeout=CONTROL)
        if not self._shared:
            return
        handles = await ask("leaving", timeout=CONTROL, type=list[bytes])
        if handles and all(await asyncio.gather(*(process.detach(handles) for process in self._all()))):
            await ask("forget", handles, timeout=CONTROL)

    def _all(self) -> "list[OwnProcess | Borrower]":
        return [*self._processes.values(), *self._closing, *self._borrowers]

    def lend_to(self, borrower: "Borrower") -> None:
        """The host of another device will open memory of this one."""
        self._borrowers.append(borrower)
        self._shared = True

    async def trace(self, every: int) -> None:
        """Have calls and one op in ``every`` recorded, or nothing (0), in later contexts too."""
        self.trace_every = every
        await asyncio.gather(*(process.trace(every) for process in self._processes.values()))
