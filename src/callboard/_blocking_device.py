"""``Device`` of :mod:`callboard.sync`, whose methods block."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from callboard._background import BackgroundLoop
from callboard._blocking import BlockingRefs, PerGeneration, ResidentRef
from callboard._blocking_memory import PinnedBufferPool
from callboard.actors import Props
from callboard.actors._runtime.direct import ref_class
from callboard.core.backend import AccelBackend
from callboard.core.dtype import DTypeLike
from callboard.core.errors import AskTimeout, DeviceStopped, MailboxFull
from callboard.core.mode import Blocking
from callboard.core.op import Op
from callboard.core.ref import GpuRef, GpuToken
from callboard.device.client.api import DeviceApi, Shape
from callboard.device.client.graphs import RecordingStats
from callboard.device.client.handle import Device as AsyncDevice
from callboard.device.client.line.status import (
    MEMORY_STEP,
    DeviceHealth,
    DeviceStats,
    MemoryFigures,
    MemoryPoolStats,
    TraceRecord,
)
from callboard.device.client.residents.ref import ResidentRef as AsyncResidentRef
from callboard.device.client.residents.ref import how_to_call
from callboard.device.config import DeviceConfig, StandbySetting
from callboard.device.protocol.residents.actor import ResidentActor
from callboard.device.supervision.watch import DeviceEvent, Stopped

__all__ = ["Device", "Ref"]

A = TypeVar("A", bound=ResidentActor)
T = TypeVar("T")
Array = np.ndarray[Any, Any]

Ref = GpuRef[Blocking]
"""A ref of a blocking device: ``ref.get()`` is the array, ``ref.result()`` waits for its op and returns the ref."""


class Device(DeviceApi[Blocking]):
    """A device whose refs and methods block. Any thread may use it; ops keep the program order of each.

    As a context manager, the device is closed when the outermost ``with`` block exits.
    """

    blocking = True
    """Refs of this device wait for what they do not know yet; those of :class:`callboard.Device` raise."""

    def __init__(self, background: BackgroundLoop, opened: AsyncDevice, close: Callable[[AsyncDevice], None]) -> None:
        super().__init__(self._call, opened._transfers, opened._interop)
        self._close = close
        self._background = background
        self._device = opened
        self._port = opened._port
        self._peer = opened._peer
        self._entered = 0
        self._port.services = BlockingRefs(self, opened)

    # -- calls that wait for room --------------------------------------------------------------------------------------

    def _call(self, op: Op[Any, Any]) -> Any:
        try:
            return self._port.submit(op)
        except MailboxFull:
            return self._patiently(lambda: self._port.submit(op))

    def _patiently(self, call: Callable[[], T]) -> T:
        """Repeat ``call`` while it raises ``MailboxFull`` and something that is under way may make room.

        A call that is refused has called nothing, so what it waits for is always the work of others.
        """
        while True:
            try:
                return call()
            except MailboxFull as e:
                if e.more is None or not self._background.run(e.more()):
                    raise

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._background.run(coroutine)

    def _recording_stats(self, recording: int) -> RecordingStats:
        return self._background.run(self._device._recording_stats(recording))

    def put(
        self, array: Any, *, dtype: DTypeLike | None = None, non_blocking: bool = False, out: Ref | None = None
    ) -> Ref:
        put = super().put

        def patiently() -> Ref:
            return self._patiently(lambda: put(array, dtype=dtype, non_blocking=non_blocking, out=out))

        source = array._port.services if isinstance(array, GpuRef) else None
        return source.patiently(patiently) if isinstance(source, BlockingRefs) else patiently()

    def host_empty(self, shape: Shape, dtype: DTypeLike = "f32") -> Array:
        return self._patiently(lambda: super(Device, self).host_empty(shape, dtype))

    def resolve(self, token: GpuToken) -> Ref:
        """The ref of a token; see :meth:`callboard.Device.resolve`."""
        ref: GpuRef[Any] = self._device.resolve(token)
        return ref

    def room(self, n: int = 1) -> None:
        """Wait until ``n`` more ops can be called without waiting."""
        self._background.run(self._device.room(n))

    def drain(self) -> None:
        """Wait until every op called before has its completion (failures stay with their refs)."""
        self._background.run(self._device.drain())

    def pinned_pool(self, max_buffers: int = 32, *, max_bytes: int | None = None) -> PinnedBufferPool:
        """A pool of page-locked host arrays; see :meth:`callboard.Device.pinned_pool`."""
        return PinnedBufferPool(self._background, self._device.pinned_pool(max_buffers, max_bytes=max_bytes))

    # -- resident actors -----------------------------------------------------------------------------------------------

    def actor_of(
        self,
        props: Props[A],
        name: str | None = None,
        *,
        wait: bool = False,
        own_process: bool = False,
        standby: StandbySetting = None,
    ) -> ResidentRef[A]:
        """Start your actor in the device's context host.

        ``emb = gpu.actor_of(cb.Props(Embedder), name="embedder")``, then ``emb.call(Embedder.embed, ["hello"])`` waits
        for the answer and gives it. With ``wait=True`` this returns when the actor is ready. Arguments and errors as
        :meth:`callboard.Device.actor_of`.
        """
        # Pickled on this thread: it may be importing the class's module, and the loop's thread would wait for that.
        config = self._device._own_config(own_process, standby)
        recipe = self._device._recipe(props, own_process)
        opened = self._background.run(_actor_of(self._device, props, name, recipe, wait, config))
        return ref_class(ResidentRef, opened._actor.cls, how_to_call)(self, opened)

    # -- what it tells -------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """``"cpu:0"``, ``"cuda:1"``."""
        return self._device.name

    @property
    def uuid(self) -> str:
        """Identity of the device."""
        return self._device.uuid

    @property
    def backend(self) -> str:
        return self._device.backend

    @property
    def accel_backend(self) -> AccelBackend:
        """The backend. Only the host opens its devices."""
        return self._device.accel_backend

    @property
    def isolation(self) -> str:
        """``"process"`` or ``"thread"``."""
        return self._device.isolation

    @property
    def config(self) -> DeviceConfig:
        """The settings it was opened with."""
        return self._device.config

    @property
    def stopped(self) -> bool:
        """True if it takes no more work."""
        return self._device.stopped

    @property
    def generation(self) -> int:
        """The generation that ops belong to now."""
        return self._device.generation

    @property
    def available(self) -> bool:
        """True if its context is ready: neither starting, nor being rebuilt, nor stopped."""
        return self._device.available

    @property
    def in_flight(self) -> int:
        """Ops and calls without a completion, those not yet sent included."""
        return self._device.in_flight

    def wait_generation(self, since: int | None = None, timeout: float | None = None) -> int:
        """Wait until a context of a later generation than ``since`` (than the present one, when None) is ready.

        ``seen = gpu.wait_generation(seen)`` in a loop always returns the latest generation, and may skip earlier ones.

        Args:
            since: A generation, from :attr:`generation` or this method.
            timeout: Seconds; None waits as long as the device lives.

        Returns:
            The generation of that context.

        Raises:
            AskTimeout: No context was ready in time.
            DeviceStopped: The device has stopped.
        """
        since = self.generation if since is None else since
        return self._background.run(_later_generation(self._device, since, timeout))

    def ready(self) -> Self:
        """Wait until a context is ready and return the handle.

        Raises:
            DeviceStopped, BackendUnavailable: The context cannot become ready.
        """
        self._background.run(self._device.ready())
        return self

    def standby_ready(self) -> bool:
        """Wait until all standbys are ready; False at once if none is kept.

        Raises:
            DeviceStopped
        """
        return self._background.run(self._device.standby_ready())

    def stats(self) -> DeviceStats:
        """Statistics of the device and its host; errors as :meth:`callboard.Device.stats`."""
        return self._background.run(self._device.stats())

    def health(self) -> DeviceHealth:
        """The state of the device, without a request to the host."""
        return self._device.health()

    def pool_stats(self) -> MemoryPoolStats:
        """The device memory that the context holds, block by block; errors as :meth:`callboard.Device.stats`."""
        return self._background.run(self._device.pool_stats())

    def trim(self, keep_bytes: int = 0) -> None:
        """Return cached device memory to the driver; see :meth:`callboard.Device.trim`."""
        self._background.run(self._device.trim(keep_bytes))

    def set_memory_limit(self, nbytes: int | None) -> None:
        """Change ``memory_limit``; see :meth:`callboard.Device.set_memory_limit`."""
        self._background.run(self._device.set_memory_limit(nbytes))

    def events(self) -> Iterator[DeviceEvent]:
        """``Lost``, ``Recovered`` and ``Stopped`` from now on, each waited for; ends after ``Stopped``."""
        return self._each(self._background.run(_subscribed(self._device)))

    def _each(self, events: AsyncIterator[DeviceEvent]) -> Iterator[DeviceEvent]:
        while True:
            event = self._background.run(_next(events))
            yield event
            if isinstance(event, Stopped):
                return

    def trace(self, hook: Callable[[TraceRecord], None]) -> Callable[[], None]:
        """Have ``hook`` called with a record of every op that gets its completion from now on.

        It is called on the thread of the event loop, in batches, and must not wait there: put the records into a list
        or a queue. As :meth:`callboard.Device.trace`, it belongs to the current context.

        Returns:
            A function that removes it.
        """
        remove = self._background.run(self._device.trace(hook))

        def removed() -> None:
            with contextlib.suppress(DeviceStopped):  # and so has the trace
                self._background.run(_awaited(remove))

        return removed

    def watch_memory(self, hook: Callable[[MemoryFigures], None], *, step: int = MEMORY_STEP) -> Callable[[], None]:
        """Have ``hook`` called with the device's memory: now, and when our use of it has changed.

        ``hook`` is called on the thread of the event loop and must not wait there. Otherwise like
        :meth:`callboard.Device.watch_memory`.

        Args:
            hook, step: See there.

        Returns:
            A function that removes it.
        """
        remove = self._background.run(self._device.watch_memory(hook, step=step))

        def removed() -> None:
            with contextlib.suppress(DeviceStopped):  # and so has the watch
                self._background.run(_awaited(remove))

        return removed

    def per_generation(self, make: "Callable[[Device], T]") -> "PerGeneration[T]":
        """``make(device)``, made again on first use in each generation.

        ``weights = gpu.per_generation(lambda d: d.put(w))``, then ``weights()`` wherever they are needed.
        """
        return PerGeneration(self, make)

    # -- life ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the device and wait until its host has ended. Ops in flight fail with ``DeviceStopped``."""
        self._close(self._device)

    def __enter__(self) -> Self:
        self._entered += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered -= 1
        if not self._entered:
            self.close()

    if not TYPE_CHECKING:  # checkers refuse it

        async def __aenter__(self):
            raise TypeError(
                "a device of cb.sync is for programs without asyncio: use `with`, or in asyncio "
                "`async with cb.device(...)`"
            )

        async def __aexit__(self, *_):
            """Defined so that ``async with`` calls ``__aenter__``."""

    def __repr__(self) -> str:
        return repr(self._device)


async def _subscribed(device: AsyncDevice) -> AsyncIterator[DeviceEvent]:
    return device.events()


async def _actor_of(
    device: AsyncDevice, props: Props[A], name: str | None, recipe: Any, wait: bool, own: DeviceConfig | None
) -> AsyncResidentRef[A]:
    ref = device._start_resident(props, name, recipe, own)
    return await ref._residents.when_ready(ref) if wait else ref


async def _awaited(call: Callable[[], Awaitable[T]]) -> T:
    return await call()


async def _later_generation(device: AsyncDevice, since: int, timeout: float | None) -> int:
    watch = device.watch_generation()
    try:
        async with asyncio.timeout(timeout):
            while watch.value <= since and not watch.closed:
                await watch.changed(watch.value)
    except TimeoutError:
        raise AskTimeout(f"{device.name}: no generation after {since} within {timeout} s") from None
    if watch.value <= since:
        raise DeviceStopped(f"{device.name} has stopped; no generation follows {since}")
    return watch.value


async def _next(events: AsyncIterator[DeviceEvent]) -> DeviceEvent:
    return await anext(events)
