"""The blocking twin, for scripts and notebooks: no ``async``, no ``await``, the same names.

::

    import numpy as np, callboard as cb

    with cb.sync.device("auto") as gpu:
        a = gpu.put(np.random.rand(512, 512).astype("f4"))
        print(gpu.blas.gemm(a, a).get())

Ops are still accepted at once and give refs of values to come; what has to wait (``ref.get()``, ``ref.result()``,
``gpu.stats()``, calls of resident actors) waits on the calling thread, which may be any. Ctrl-C ends a wait at once; the op goes on. Where the
async API raises ``MailboxFull``, a call here waits for room. Devices that are still open when the interpreter exits are
closed then. The event loop behind it runs on one thread of its own, so it does not mind a loop that runs already.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np

from callboard._background import BackgroundLoop, open_loop
from callboard._blocking import BlockingRefs, PerGeneration, ResidentRef
from callboard.actors import Props
from callboard.core.dtype import DTypeLike
from callboard.core.errors import AskTimeout, DeviceStopped, MailboxFull
from callboard.core.mode import Blocking
from callboard.core.op import Op
from callboard.core.ref import GpuRef, GpuToken
from callboard.device.config import DeviceConfig
from callboard.device.faces import Faces, Shape
from callboard.device.handle import Device as AsyncDevice
from callboard.device.line.status import DeviceHealth, DeviceStats, TraceRecord
from callboard.device.resident.actor import ResidentActor
from callboard.device.resident.ref import ResidentRef as AsyncResidentRef
from callboard.device.supervision.supervisor import DeviceSupervisor
from callboard.device.supervision.watch import DeviceEvent, Stopped
from callboard.system import System as AsyncSystem

__all__ = ["Device", "PerGeneration", "Ref", "ResidentRef", "System", "device"]

A = TypeVar("A", bound=ResidentActor)
T = TypeVar("T")
Array = np.ndarray[Any, Any]

Ref = GpuRef[Blocking]
"""A ref of a blocking device: ``ref.get()`` is the array, ``ref.result()`` waits for its op and gives the ref."""


class System:
    """Devices that are closed together: ``with cb.sync.System("demo") as system: gpu = system.device()``."""

    def __init__(self, name: str = "callboard") -> None:
        self.name = name
        self._lock = threading.Lock()
        self._background: BackgroundLoop | None = None
        self._system: AsyncSystem | None = None
        self._devices: dict[AsyncDevice, Device] = {}

    def device(
        self,
        which: str = "auto",
        *,
        supervisor: DeviceSupervisor | None = None,
        config: DeviceConfig | None = None,
        wait: bool = True,
        **options: Any,
    ) -> "Device":
        """The device, opened on first use; arguments and errors as :meth:`callboard.System.device`."""
        with self._lock:
            if self._background is None or self._background.forked:
                self._background = open_loop(self.close)
                self._system = self._background.run(_started(self.name))
                self._devices = {}
            background, system = self._background, self._system
        assert system is not None
        try:
            opened = background.run(system.device(which, supervisor=supervisor, config=config, wait=wait, **options))
            with self._lock:
                return self._devices.get(opened) or self._devices.setdefault(opened, Device(self, background, opened))
        finally:
            self._close_if_unused()

    def close(self) -> None:
        """Close all devices; nothing of them is left when this returns. Closing twice is harmless."""
        with self._lock:
            background, system = self._background, self._system
            self._background = self._system = None
            self._devices = {}
        if background is not None and system is not None:
            try:
                background.run(system.stop())
            finally:
                background.leave(self.close)

    def _close(self, device: AsyncDevice) -> None:
        with self._lock:
            background = self._background
            known = self._devices.pop(device, None)
        if known is not None and background is not None:
            background.run(device.close())
            self._close_if_unused()

    def _close_if_unused(self) -> None:
        if not self._devices:
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<cb.sync.System {self.name!r}: {', '.join(d.name for d in self._devices.values()) or 'no device open'}>"
        )


async def _started(name: str) -> AsyncSystem:
    return await AsyncSystem(name).start()


class Device(Faces[Blocking]):
    """A device whose refs and methods block. Any thread may use it; ops keep the program order of each.

    As a context manager it is closed when the outermost ``with`` is left.
    """

    def __init__(self, system: System, background: BackgroundLoop, opened: AsyncDevice) -> None:
        super().__init__(self._call, opened._transfers, opened._interop)
        self._system = system
        self._background = background
        self._device = opened
        self._port = opened._port
        self._entered = 0
        self._port.bind(BlockingRefs(self, opened))

    # -- calls that wait for room --------------------------------------------------------------------------------------

    def _call(self, op: Op[Any, Any]) -> Any:
        try:
            return self._port.submit(op)
        except MailboxFull:
            return self._patiently(lambda: self._port.submit(op))

    def _patiently(self, call: Callable[[], T]) -> T:
        """Wait for room while ``call`` raises ``MailboxFull`` and something in flight may still make some."""
        waited = False
        while True:
            try:
                return call()
            except MailboxFull:
                if waited and not self._port.in_flight:
                    raise
            self.drain()
            waited = True

    def put(self, array: Any, *, dtype: DTypeLike | None = None, non_blocking: bool = False) -> Ref:
        put = super().put
        return self._patiently(lambda: put(array, dtype=dtype, non_blocking=non_blocking))

    def host_empty(self, shape: Shape, dtype: DTypeLike = "f32") -> Array:
        return self._patiently(lambda: super(Device, self).host_empty(shape, dtype))

    def resolve(self, token: GpuToken) -> Ref:
        """The ref that a token was made of; see :meth:`callboard.Device.resolve`."""
        ref: GpuRef[Any] = self._device.resolve(token)
        return ref

    def room(self, n: int = 1) -> None:
        """Wait until ``n`` more ops can be called without waiting."""
        self._background.run(self._device.room(n))

    def drain(self) -> None:
        """Wait until every op called before has its verdict (failures stay with their refs)."""
        self._background.run(self._device.drain())

    # -- resident actors -----------------------------------------------------------------------------------------------

    def actor_of(self, props: Props[A], name: str | None = None) -> ResidentRef[A]:
        """Start an actor of yours in the device's context host; arguments and errors as :meth:`Device.actor_of
        <callboard.Device.actor_of>`.

        ``emb = gpu.actor_of(cb.Props(Embedder), name="embedder")``, then ``emb.call(Embedder.embed, ["hello"])``, which
        waits for the answer and gives it.
        """
        return ResidentRef(self, self._background.run(_actor_of(self._device, props, name)))

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
    def isolation(self) -> str:
        """``"process"`` or ``"thread"``."""
        return self._device.isolation

    @property
    def config(self) -> DeviceConfig:
        """What it was opened with."""
        return self._device.config

    @property
    def stopped(self) -> bool:
        """Whether it takes no more work."""
        return self._device.stopped

    @property
    def generation(self) -> int:
        """The generation that ops belong to now."""
        return self._device.generation

    def wait_generation(self, since: int | None = None, timeout: float | None = None) -> int:
        """Wait until a context of a later generation than ``since`` (than the present one, when None) is ready.

        ``seen = gpu.wait_generation(seen)`` in a loop misses no last change; those in between may be.

        Args:
            since: A generation, as :attr:`generation` or this method gave it.
            timeout: Seconds; None waits as long as the device lives.

        Returns:
            The generation of that context.

        Raises:
            AskTimeout: None was ready in time.
            DeviceStopped: None will be.
        """
        since = self.generation if since is None else since
        return self._background.run(_later_generation(self._device, since, timeout))

    def ready(self) -> Self:
        """Wait until a context is ready; gives the handle.

        Raises:
            DeviceStopped, BackendUnavailable: It will not be.
        """
        self._background.run(self._device.ready())
        return self

    def stats(self) -> DeviceStats:
        """Figures of device and host (within 5 s)."""
        return self._background.run(self._device.stats())

    def health(self) -> DeviceHealth:
        """What is known without asking the host."""
        return self._device.health()

    def trim(self) -> None:
        """Give cached device memory back to the driver."""
        self._background.run(self._device.trim())

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
        """Have ``hook`` called with a record of every op that gets its verdict from now on.

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

    def per_generation(self, make: "Callable[[Device], T]") -> "PerGeneration[T]":
        """``make(device)``, made again on first use in each generation.

        ``weights = gpu.per_generation(lambda d: d.put(w))``, then ``weights()`` wherever they are needed.
        """
        return PerGeneration(self, make)

    # -- life ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the device: nothing of it is left when this returns. Ops in flight fail with ``DeviceStopped``."""
        self._system._close(self._device)

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


async def _subscribed(device: AsyncDevice) -> AsyncIterator[DeviceEvent]:
    return device.events()


async def _actor_of(device: AsyncDevice, props: Props[A], name: str | None) -> AsyncResidentRef[A]:
    return device.actor_of(props, name)


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
        raise DeviceStopped(f"{device.name} has stopped; no generation comes after {since}")
    return watch.value


async def _next(events: AsyncIterator[DeviceEvent]) -> DeviceEvent:
    return await anext(events)


def device(which: str = "auto", **options: Any) -> Device:
    """A blocking device: ``with cb.sync.device("auto") as gpu``, or without ``with`` in a notebook.

    Arguments and errors as :meth:`callboard.System.device`. The same device gives the same handle while it is open.
    """
    return _default.device(which, **options)


_default = System()
