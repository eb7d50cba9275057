"""``Device``: the handle of a device. Libraries, memory, state and statistics."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Generic, Literal, TypeVar, overload

import numpy as np

from callboard.actors import ActorRef, Props
from callboard.actors.handles import Handle
from callboard.actors.loops.posting import post
from callboard.core.backend import AccelBackend
from callboard.core.mode import Asynchronous
from callboard.core.ref import GpuRef, GpuToken
from callboard.device.client.api import DeviceApi
from callboard.device.client.graphs import RecordingStats
from callboard.device.client.holding import Holding
from callboard.device.client.line.answers import Answers
from callboard.device.client.line.interop import Interop
from callboard.device.client.line.port import OpPort
from callboard.device.client.line.status import (
    MEMORY_STEP,
    DeviceHealth,
    DeviceStats,
    HostStats,
    MemoryFigures,
    MemoryPoolStats,
    TraceRecord,
)
from callboard.device.client.line.transfers import Transfers
from callboard.device.client.memory.pinned import PinnedBufferPool
from callboard.device.client.peers.peer import Peer
from callboard.device.client.refs import DeviceRefs
from callboard.device.client.residents.ref import ResidentRef
from callboard.device.config import DeviceConfig, StandbySetting
from callboard.device.configure import device_config
from callboard.device.protocol.residents.actor import ResidentActor
from callboard.device.supervision.actor import DeviceActor
from callboard.device.supervision.lifecycle import State
from callboard.device.supervision.watch import DeviceEvent, GenerationWatch

__all__ = ["Device", "PerGeneration"]

T = TypeVar("T")
A = TypeVar("A", bound=ResidentActor)
Array = np.ndarray[Any, Any]

CONTROL_TIMEOUT = 5.0
"""Seconds for control requests; ops have no timeout."""
GRACE = 10.0
"""Seconds that closing may take beyond the hosts' time."""


class Device(DeviceApi[Asynchronous]):
    """A handle of a device. Methods return refs at once; awaiting a ref waits for its value.

    Ops may be called from any thread, in program order per thread; awaiting and control belong to the system's loop.

    Attributes:
        array, blas, blas_lt, cub, cutlass, dnn, elementwise, event, fft, ipc, managed, module, nvrtc, rng, solver,
            sparse, sparse_lt, tensor: The libraries, see :class:`DeviceApi <callboard.device.client.api.DeviceApi>`.
            ``help(device.fft)`` lists the ops of one; the message of an op documents its arguments:
            ``help(callboard.kernel.fft.Fft)``.
    """

    blocking = False
    """Refs of this device raise while an extent is unknown; those of :class:`callboard.sync.Device` wait."""

    def __init__(self, ref: "ActorRef[DeviceActor]", actor: DeviceActor, transfers: Transfers) -> None:
        super().__init__(actor.port.submit, transfers, Interop(actor.port, actor))
        self.ref = ref
        self._actor = actor
        self._port: OpPort = actor.port
        self._answers = Answers(actor)
        actor.own.traces = self._answers.traces
        self._peer = Peer(self._port, transfers, actor, self._answers)
        if actor.config.isolation == "thread" and self._port.recorded is None:
            self._port.holding = Holding(self._port, transfers, bool(actor.config.host.trace))
        self._refs = self._port.services = DeviceRefs(self._port, transfers, self._interop, actor.ordinals.of)

    # -- refs ----------------------------------------------------------------------------------------------------------

    def resolve(self, token: GpuToken) -> GpuRef:
        """The ref that a token was made of: pending while that is, failed if that has failed.

        Raises:
            TypeError: ``token`` is not a ``GpuToken``, or one of its fields has another type.
            DeviceMismatch: The token names another device.
            ShapeError: Its layout or offset is not one of an array in that buffer: no token was made so.
            GpuRefStale: Its generation is lost, or no ref holds the buffer any more.
        """
        return self._refs.resolve(token)

    # -- resident actors -----------------------------------------------------------------------------------------------

    @overload
    def actor_of(
        self,
        props: "Props[A]",
        name: str | None = None,
        *,
        wait: Literal[False] = False,
        own_process: bool = False,
        standby: StandbySetting = None,
    ) -> "ResidentRef[A]": ...
    @overload
    def actor_of(
        self,
        props: "Props[A]",
        name: str | None = None,
        *,
        wait: Literal[True],
        own_process: bool = False,
        standby: StandbySetting = None,
    ) -> "Coroutine[Any, Any, ResidentRef[A]]": ...
    def actor_of(
        self,
        props: "Props[A]",
        name: str | None = None,
        *,
        wait: bool = False,
        own_process: bool = False,
        standby: StandbySetting = None,
    ) -> "ResidentRef[A] | Coroutine[Any, Any, ResidentRef[A]]":
        """Start your actor in the device's context host: ``gpu.actor_of(cb.Props(Embedder), name="embedder")``.

        The actor is started again in each new context. Its class and arguments are sent to the host: by reference if
        the host can import them, by value if they belong to ``__main__`` or a notebook, or to a module that opens a
        device while it is imported. Names that such a class uses must be defined above the call.

        Args:
            props: A :class:`ResidentActor <callboard.ResidentActor>` class and its constructor's arguments.
            name: Unique among the device's living resident actors; made from the class when None.
            wait: Return a coroutine for the ref, done when the actor is ready: ``await gpu.actor_of(..., wait=True)``.
                The actor is started by this call in any case. If it stops before it is ready, or the wait is cancelled,
                it is stopped and its name is free again. The coroutine raises as :meth:`ResidentRef.ready
                <callboard.ResidentRef.ready>`.
            own_process: Give it a process of its own, with a context of its own on the same device. Python code of the
                actor then does not slow the ops of the device, and when it crashes only this actor is restarted; each
                such process takes memory of host and device. See docs/guides/inside.md.
            standby: Standbys of that process, as the setting of a device: ``"hot"``, ``2``, ``("hot", 2)`` …; None: a
                new process is started after a loss.

        Processes that the actor starts end with its host, but continue if the application is killed (SIGKILL, out of
        memory) or crashes, unless the device was opened with ``guardian=True``.

        Raises:
            TypeError: ``props`` is not of a ``ResidentActor``, or an argument cannot be sent.
            NameInUse: A living actor of the device has this name.
            ValueError: The name is not valid, ``standby`` is not, or is given without ``own_process``, code and
                arguments exceed 32 MiB, or the device has ``guardian=True`` and the actor would live in a thread.
            DeviceStopped
        """
        config = self._own_config(own_process, standby)
        ref = self._start_resident(props, name, self._recipe(props, own_process), config)
        return ref._residents.when_ready(ref) if wait else ref

    def _recipe(self, props: "Props[A]", own_process: bool) -> Any:
        """The message that starts the actor; made on the caller's thread, which may be importing the module."""
        return self._actor.residents.recipe(Props.checked(props), isolated=own_process)

    def _interrupt(self) -> None:  # any thread
        post(self._port.loop, self._actor.interrupt)

    def _own_config(self, own_process: bool, standby: StandbySetting) -> DeviceConfig | None:
        """Settings of the actor's own process; None if it is to have none."""
        if own_process:
            return device_config("process", self.config, {"isolation": "process", "standby": standby})
        if standby is not None:
            raise ValueError(
                f"standby = {standby!r} is of an actor with own_process=True; other actors are in the device's host, "
                "whose standbys are a setting of the device: cb.device(..., standby=...)"
            )
        return None

    def _start_resident(
        self, props: "Props[A]", name: str | None, recipe: Any, own: DeviceConfig | None
    ) -> "ResidentRef[A]":
        if own is None:
            return self._actor.residents.start(props, name, recipe)
        return self._actor.own.start(props, name, recipe, own)

    # -- recordings ----------------------------------------------------------------------------------------------------

    async def _recording_stats(self, recording: int) -> RecordingStats:
        known = await self._answers.ask("recording", recording, timeout=CONTROL_TIMEOUT, type=RecordingStats | None)
        return known or RecordingStats()

    # -- flow ----------------------------------------------------------------------------------------------------------

    async def ready(self) -> "Device":
        """Wait until a context is ready and return the handle.

        Raises:
            DeviceStopped, BackendUnavailable: The context cannot become ready.
        """
        await self._actor.until_ready()
        return self

    async def standby_ready(self) -> bool:
        """Wait until all standbys are ready, so that as many losses cost little; False at once if none is kept.

        A standby is ready when it has imported its packages, has opened its context if it is hot, and when the resident
        actors have prepared in it (``prepare``, and ``warm_up`` if it is hot).

        Raises:
            DeviceStopped
        """
        return await self._actor.until_standby()

    async def room(self, n: int = 1) -> None:
        """Wait until ``n`` more ops can be called without ``MailboxFull``."""
        await self._port.room(n)

    async def drain(self) -> None:
        """Wait until every op called before has its completion (failures stay with their refs)."""
        await self._port.drain()
        await self._actor.own.drain()

    # -- host memory ---------------------------------------------------------------------------------------------------

    def pinned_pool(self, max_buffers: int = 32, *, max_bytes: int | None = None) -> PinnedBufferPool:
        """A pool that lends page-locked host arrays, up to a limit, first come first served.

        :meth:`host_empty` has no limit of its own and does not wait.

        Args:
            max_buffers: Buffers that may be lent at once.
            max_bytes: Bytes that may be lent at once; None: only the device's ``max_staged_bytes`` is a limit.

        Raises:
            ValueError: A cap is less than 1.
        """
        return self._transfers.pinned_pool(max_buffers, max_bytes)

    # -- what it tells -------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """``"cpu:0"``, ``"cuda:1"``."""
        return self._port.name

    @property
    def uuid(self) -> str:
        """Identity of the device."""
        return self._port.uuid

    @property
    def backend(self) -> str:
        return self._actor.backend.name

    @property
    def accel_backend(self) -> AccelBackend:
        """The backend. Only the host opens its devices."""
        return self._actor.backend

    @property
    def isolation(self) -> str:
        """``"process"`` or ``"thread"``."""
        return "process" if self._actor.isolated else "thread"

    @property
    def config(self) -> DeviceConfig:
        """The settings it was opened with."""
        return self._actor.config

    @property
    def stopped(self) -> bool:
        """True if it takes no more work."""
        return self._port.stopped is not None

    @property
    def generation(self) -> int:
        """The generation that ops belong to now."""
        return self._port.generation

    @property
    def available(self) -> bool:
        """True if its context is ready: neither starting, nor being rebuilt, nor stopped."""
        return self._actor.state is State.READY

    @property
    def in_flight(self) -> int:
        """Ops and calls without a completion, those not yet sent included."""
        return self._port.in_flight

    async def stats(self) -> DeviceStats:
        """Statistics of the device and its host, requested from the host.

        Raises:
            AskTimeout: No answer within 5 s: the host is busy, or no context is ready.
            ContextLost, DeviceStopped
        """
        host: HostStats = await self._answers.ask("stats", timeout=CONTROL_TIMEOUT, type=HostStats)
        actor, port = self._actor, self._port
        busy = host.residents_busy | await actor.own.busy()
        return DeviceStats(
            name=port.name,
            uuid=port.uuid,
            backend=self.backend,
            isolation=self.isolation,
            generation=port.generation,
            ordinal=actor.ordinals.of(port.generation),
            restarts=actor.port.losses,
            compute_capability=host.compute_capability,
            free_bytes=host.free_bytes,
            total_bytes=host.total_bytes,
            used_bytes=host.used_bytes,
            cached_bytes=host.cached_bytes,
            staged_bytes=actor.arenas.stats.used,
            buffers=host.buffers,
            allocations=host.allocations,
            fused=0 if port.deferrals is None else port.deferrals.saved,
            recorded=0 if port.chains is None else port.chains.saved,
            queue_depth=port.queued,
            in_flight=port.in_flight,
            parked=host.parked,
            live_streams=host.live_streams,
            completed=port.unanswered.completed,
            failed=port.unanswered.failed,
            out_of_memory=port.unanswered.out_of_memory,
            plans=host.plans,
            libraries=host.libraries,
            library_restarts=host.library_restarts,
            residents=actor.residents.stats(busy),
        )

    def health(self) -> DeviceHealth:
        """The state of the device, without a request to the host; never waits."""
        actor = self._actor
        ready, wanted = actor.own.standbys()
        return DeviceHealth(
            state=actor.state.value,
            ok=actor.state is State.READY,
            generation=self._port.generation,
            ordinal=actor.ordinals.of(self._port.generation),
            restarts=actor.port.losses,
            standby=actor.standby_state,
            standbys_ready=actor.standbys_ready + ready,
            standbys_wanted=actor.standbys_wanted + wanted,
            host_pid=actor.host.pid if actor.host is not None else None,
            error=None if actor.error is None else str(actor.error),
            residents=actor.residents.states(),
        )

    def watch_generation(self) -> GenerationWatch:
        """The generation as a watchable value: ``.value``, ``await .changed()``, ``async for``."""
        return self._actor.watch_generation

    def events(self) -> AsyncIterator[DeviceEvent]:
        """``Lost``, ``Recovered`` and ``Stopped`` from now on; ends after ``Stopped``."""
        return self._actor.events.subscribe()

    async def trace(self, hook: Callable[[TraceRecord], None]) -> Callable[[], Awaitable[None]]:
        """Have ``hook`` called, on the loop, with a record of every op that gets its completion from now on.

        The records include calls of resident actors, but not rejected calls and ops. They arrive in batches with the
        completions, also from later contexts. To record from the very beginning, open the device with ``trace=True``.

        Returns:
            An async function that removes it, once it was told of every op that has had its completion.
        """
        return await self._answers.tell(hook, CONTROL_TIMEOUT)

    async def watch_memory(
        self, hook: Callable[[MemoryFigures], None], *, step: int = MEMORY_STEP
    ) -> Callable[[], Awaitable[None]]:
        """Have ``hook`` called, on the loop, with the device's memory: now, and when our use of it has changed.

        The host reports changes as they happen; nothing is polled. The figures include the use of other processes, but
        changes in that use alone are not reported. The watch belongs to the current context; install it again after
        ``Recovered``.

        Args:
            hook: Takes the figures.
            step: Change in use, in bytes, that triggers a report; the smallest step of all hooks applies.

        Returns:
            An async function that removes it.

        Raises:
            ValueError: A step below 1.
            AskTimeout, ContextLost, DeviceStopped
        """
        if step < 1:
            raise ValueError(f"watch_memory: step is {step}; it is at least 1")
        answers = self._answers
        answers.memory[hook] = step
        await answers.watch_memory(CONTROL_TIMEOUT)

        async def remove() -> None:
            if answers.memory.pop(hook, None) is not None and self.available:  # a context that comes has no watch
                await answers.watch_memory(CONTROL_TIMEOUT)

        return remove

    async def pool_stats(self) -> MemoryPoolStats:
        """Device memory of the context, block by block, requested from the host; errors as :meth:`stats`."""
        stats: MemoryPoolStats = await self._answers.ask("pool", timeout=CONTROL_TIMEOUT, type=MemoryPoolStats)
        return stats

    async def trim(self, keep_bytes: int = 0) -> None:
        """Return cached device memory to the driver, and the caches of torch and CuPy in the host.

        Args:
            keep_bytes: Bytes of callboard's own cache to keep. The largest blocks are freed first; blocks that work in
                flight uses are always kept.

        Raises:
            ValueError: A negative number.
            AskTimeout, ContextLost, DeviceStopped
        """
        if keep_bytes < 0:
            raise ValueError(f"trim: keep_bytes is {keep_bytes}; it is at least 0")
        self._port.flush()
        if keep_bytes:
            await self._answers.ask("trim", keep_bytes, timeout=CONTROL_TIMEOUT)
        else:
            await self._actor.own.freed_shared(self._answers.ask)

    async def set_memory_limit(self, nbytes: int | None) -> None:
        """Change ``memory_limit``, in this context and later ones.

        Memory in use beyond it stays: ops that need more fail with ``OutOfMemory`` until enough is freed. Arrays that
        resident actors make by themselves keep the configured limit.

        Args:
            nbytes: Most bytes of device memory that arrays may take; None for no limit.

        Raises:
            ValueError: Less than 1.
            AskTimeout, ContextLost, DeviceStopped
        """
        if nbytes is not None and nbytes < 1:
            raise ValueError(f"set_memory_limit: nbytes is {nbytes}; it is at least 1, or None")
        self._actor.set_memory_limit(nbytes)
        await self._answers.ask("limit", nbytes, timeout=CONTROL_TIMEOUT)

    def per_generation(self, make: "Callable[[Device], T | Awaitable[T]]") -> "PerGeneration[T]":
        """Keep ``make(device)``, made again on first use in each generation.

        ``weights = dev.per_generation(lambda d: d.put(w))``, then ``await weights()``.
        """
        return PerGeneration(self, make)

    async def close(self, *, timeout: float | None = None) -> None:
        """Close the device and wait until its host has ended. Ops in flight fail with ``DeviceStopped``.

        Args:
            timeout: Seconds to wait for the host's work in flight; ``close_timeout`` of the configuration by default.
        """
        self._limit_close(timeout)
        # One close_timeout for actors in processes of their own, then for a thread's work, then for its current call.
        await self.ref.stop_and_wait(timeout=3 * self._actor.close_timeout + GRACE)
        self._transfers.close()

    def _hurry(self) -> None:
        """Make :meth:`close`, later or under way, take little time: the application was interrupted."""
        self._actor.hurry()

    def _limit_close(self, timeout: float | None) -> None:
        """Let a later :meth:`close` wait at most ``timeout`` seconds for work in flight; None changes nothing."""
        if timeout is not None:
            self._actor.close_timeout = min(timeout, self._actor.close_timeout)

    def __repr__(self) -> str:
        number = self._actor.ordinals.of(self._port.generation)
        return f"<Device {self.name} ({self.isolation}), {self._actor.state.value}, generation {number}>"


class PerGeneration(Handle, Generic[T]):
    """A value that is made again on first use in each generation. Concurrent first uses share one call of ``make``."""

    def __init__(self, device: Device, make: Callable[[Device], T | Awaitable[T]]) -> None:
        self._device = device
        self._make = make
        self._generation = 0
        self._task: asyncio.Future[T] | None = None

    async def __call__(self) -> T:
        """The value of the current generation."""
        if self._task is None or self._generation != self._device.generation or _failed(self._task):
            self._generation = self._device.generation
            self._task = asyncio.ensure_future(self._run())
        return await asyncio.shield(self._task)

    async def _run(self) -> T:
        value = self._make(self._device)
        if isinstance(value, Awaitable):
            made: T = await value
            return made
        return value


def _failed(task: "asyncio.Future[Any]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
