"""The blocking twin, for scripts and notebooks: no ``async``, no ``await``, the same names.

::

    import numpy as np, callboard as cb

    with cb.sync.device("auto") as gpu:
        a = gpu.put(np.random.rand(512, 512).astype("f4"))
        print(gpu.blas.gemm(a, a).get())

Ops are still accepted at once and give refs of values to come; what has to wait (``ref.get()``, ``ref.result()``,
``gpu.stats()``) waits on the calling thread, which may be any. Ctrl-C ends a wait at once; the op goes on. Where the
async API raises ``MailboxFull``, a call here waits for room. Devices that are still open when the interpreter exits are
closed then. The event loop behind it runs on one thread of its own, so it does not mind a loop that runs already.
"""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import numpy as np

from callboard._background import BackgroundLoop, open_loop
from callboard.core.dtype import DTypeLike
from callboard.core.errors import MailboxFull
from callboard.core.mode import Blocking
from callboard.core.op import Op
from callboard.core.ref import GpuRef, GpuToken
from callboard.core.reply import Reply
from callboard.device.config import DeviceConfig
from callboard.device.faces import Faces, Shape
from callboard.device.handle import Device as AsyncDevice
from callboard.device.line.status import DeviceHealth, DeviceStats
from callboard.device.supervision.supervisor import DeviceSupervisor
from callboard.device.supervision.watch import DeviceEvent, Stopped
from callboard.system import System as AsyncSystem

__all__ = ["Device", "PerGeneration", "Ref", "System", "device"]

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
        self._port.bind(_BlockingRefs(self, opened))

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


class PerGeneration(Generic[T]):
    """A value that is made again on first use in each generation, by one thread at a time."""

    def __init__(self, device: Device, make: Callable[[Device], T]) -> None:
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


class _BlockingRefs:
    """Serves the refs of a blocking device: as the async one does, but ``get`` waits."""

    def __init__(self, device: Device, opened: AsyncDevice) -> None:
        self._device = device
        self.remember = opened.remember
        self.last_write_stream = opened.last_write_stream
        self.raw_device_ptr = opened.raw_device_ptr
        self.dlpack = opened.dlpack
        self.array_interface = opened.array_interface

    def fetch(self, ref: GpuRef[Any], out: Array | None) -> Array:
        device = self._device
        reply: Reply[Array] = device._patiently(lambda: device._transfers.get(ref, out))
        return reply.result()


async def _subscribed(device: AsyncDevice) -> AsyncIterator[DeviceEvent]:
    return device.events()


async def _next(events: AsyncIterator[DeviceEvent]) -> DeviceEvent:
    return await anext(events)


def device(which: str = "auto", **options: Any) -> Device:
    """A blocking device: ``with cb.sync.device("auto") as gpu``, or without ``with`` in a notebook.

    Arguments and errors as :meth:`callboard.System.device`. The same device gives the same handle while it is open.
    """
    return _default.device(which, **options)


_default = System()
