"""What is written by hand of :mod:`callboard.sync`'s ``Device``, its refs and its values; the rest is generated."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import numpy as np

from callboard._background import BackgroundLoop
from callboard.actors import Props
from callboard.actors.handles import Handle
from callboard.core.dtype import DTypeLike
from callboard.core.errors import AccelError, AskTimeout, DeviceStopped, MailboxFull
from callboard.core.mode import Blocking
from callboard.core.op import Op
from callboard.core.ref import GpuRef, GpuToken
from callboard.core.reply import DONE, Reply
from callboard.device.client.api import DeviceApi, Shape
from callboard.device.client.graphs import RecordingStats
from callboard.device.client.handle import Device as AsyncDevice
from callboard.device.client.interrupting import Interrupts
from callboard.device.client.memory import pinned
from callboard.device.client.residents.ref import ResidentRef as AsyncResidentRef
from callboard.device.config import StandbySetting
from callboard.device.protocol.residents.actor import ResidentActor
from callboard.device.supervision.watch import DeviceEvent, Stopped
from callboard.events.exports import load
from callboard.events.once import once

if TYPE_CHECKING:
    from callboard._blocking import Device
    from callboard.arrays.namespace import Namespace
    from callboard.numpylike.namespace import Numpy

__all__ = ["BlockingRefs", "DeviceBase", "PerGeneration", "PinnedBufferPoolBase", "Ref"]

A = TypeVar("A", bound=ResidentActor)
T = TypeVar("T")
Array = np.ndarray[Any, Any]

Ref = GpuRef[Blocking]
"""A ref of a blocking device: ``ref.get()`` is the array, ``ref.result()`` waits for its op and returns the ref."""

PREVIEW = 1.0
"""Seconds that a notebook waits for the values of a ref that has been computed."""

LATE = 1.0
"""Seconds for which displays do not wait after one that waited too long: a list of refs may be displayed."""


class DeviceBase(DeviceApi[Blocking]):
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
        if opened.isolation == "process":
            self._port.interrupted = Interrupts(self._in_flight, opened._interrupt).pressed

    def _in_flight(self) -> Collection[int]:
        return list(self._port.unanswered.entries)

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
        return self._patiently(lambda: super(DeviceBase, self).host_empty(shape, dtype))

    def resolve(self, token: GpuToken) -> Ref:
        """The ref of a token; see :meth:`callboard.Device.resolve`."""
        ref: GpuRef[Any] = self._device.resolve(token)
        return ref

    # -- resident actors, and what it tells ----------------------------------------------------------------------------

    def _start_resident(
        self, props: Props[A], name: str | None, wait: bool, own_process: bool, standby: StandbySetting
    ) -> AsyncResidentRef[A]:
        device = self._device
        own = device._own_config(own_process, standby)
        # Pickled on this thread: it may be importing the class's module, and the loop's thread would wait for that.
        recipe = device._recipe(props, own_process)

        async def started() -> AsyncResidentRef[A]:
            ref = device._start_resident(props, name, recipe, own)
            return await ref._residents.when_ready(ref) if wait else ref

        return self._background.run(started())

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
        since = self._device.generation if since is None else since
        return self._background.run(_later_generation(self._device, since, timeout))

    def _each(self, subscribe: Callable[[], AsyncIterator[DeviceEvent]]) -> Iterator[DeviceEvent]:
        return self._next_of(self._background.call(subscribe))

    def _next_of(self, events: AsyncIterator[DeviceEvent]) -> Iterator[DeviceEvent]:
        while True:
            event = self._background.run(_next(events))
            yield event
            if isinstance(event, Stopped):
                return

    def _removing(self, remove: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        def removed() -> None:
            with contextlib.suppress(DeviceStopped):  # and so has what would be removed
                self._background.run(_awaited(remove))

        return removed

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

    def __repr__(self) -> str:
        return repr(self._device)


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


class PerGeneration(Handle, Generic[T]):
    """A value that is made again on first use in each generation, by one thread at a time."""

    def __init__(self, device: "Device", make: "Callable[[Device], T]") -> None:
        self._device = device
        self._make = make
        self._lock = threading.RLock()
        self._made: tuple[int, T] | None = None

    def __call__(self) -> T:
        """The value of the current generation."""
        with self._lock:
            generation = self._device.generation
            if self._made is None or self._made[0] != generation:
                self._made = generation, self._make(self._device)
            return self._made[1]


class PinnedBufferPoolBase(Handle):
    """Blocking :class:`callboard.PinnedBufferPool`; ``acquire`` blocks: ``with pool.acquire(n) as a:``."""

    def __init__(self, background: BackgroundLoop, pool: pinned.PinnedBufferPool) -> None:
        self._background = background
        self._pool = pool

    def close(self) -> None:
        """Stop lending; waiting calls fail with ``DeviceStopped``. Lent buffers stay valid."""
        self._background.call(self._pool.close)


def _size(ref: GpuRef[Any]) -> int:
    """The number of elements; 0 while it depends on data that is still computed."""
    return 0 if hasattr(ref.layout, "extents") else ref.size


class BlockingRefs:
    """Serves the refs of a blocking device: as the async one does, but ``get`` and extents that depend on data wait."""

    blocking = True

    def __init__(self, device: DeviceBase, opened: AsyncDevice) -> None:
        self._device = device
        served = opened._port.services
        self.submit: Callable[..., Any] = device._call
        self.patiently = device._patiently
        self.remember = served.remember
        self.ordinal = served.ordinal
        self.last_write_stream = served.last_write_stream
        self.raw_device_ptr = served.raw_device_ptr
        self.dlpack = served.dlpack
        self.array_interface = served.array_interface
        self._late = 0.0  # when displays may wait again

    @once
    def xp(self) -> "Namespace[Blocking]":
        """The array namespace, made on first use."""
        load("callboard.arrays.namespace")
        from callboard.arrays.namespace import Namespace  # with the messages of many libraries

        device = self._device
        return Namespace(device._call, device.put, device.name)

    @once
    def np(self) -> "Numpy":
        """NumPy's names, made on first use."""
        load("callboard.numpylike.namespace")
        from callboard.numpylike.namespace import Numpy

        return Numpy(self.xp)

    def preview(
        self, ref: GpuRef[Any], *, most: int | None = None, wait: bool = False, within: float | None = None
    ) -> Array | None:
        """The first elements of a ref that has its values, as many as the device's ``preview`` allows."""
        allowed = self._device.config.preview
        if not allowed or ref.is_stale:
            return None
        limit = most or allowed
        if wait and ref._state != DONE and _size(ref) <= limit:
            if within is not None and time.monotonic() < self._late:
                within = 0.0
            try:
                ref.result(within)
            except AskTimeout:
                self._late = time.monotonic() + LATE
                return None
            except (AccelError, TypeError, RuntimeError):  # it has failed, or cannot be waited for here
                return None
        if ref._state != DONE or (wait and ref.size > limit):
            return None
        edge = max(1, int(limit ** (1 / max(1, ref.ndim))))
        part = ref[tuple(slice(0, edge) for _ in ref.shape)] if ref.size > limit else ref
        try:
            reply: Reply[Array] = self._device._transfers.get(part, None)
            return reply.result(PREVIEW)
        except AccelError:
            return None

    def get(self, ref: GpuRef[Any], out: Array | None) -> Array:
        device = self._device
        reply: Reply[Array] = device._patiently(lambda: device._transfers.get(ref, out))
        return reply.result()
