"""Device arrays of others and our arrays in others' hands.

Thread isolation: without a copy, both ways. Process isolation: a device address means nothing in the application, and
every way across names the way out instead.
"""

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from callboard.core.backend import AccelStream, Memory
from callboard.core.dtype import as_dtype
from callboard.core.errors import DeviceStopped, GpuRefStale
from callboard.core.layout import Layout, layout_of
from callboard.core.ref import Allocation, GpuRef
from callboard.device.protocol.lending import Borrow, Lend, LendingRequest, Lent, Return
from callboard.device.protocol.residents import dlpack
from callboard.device.protocol.residents.hostview import host_view

if TYPE_CHECKING:
    from callboard.device.client.line.port import OpPort
    from callboard.device.supervision.actor import DeviceActor

__all__ = ["Interop", "is_foreign"]

AnyRef = GpuRef[Any]

LEGACY_STREAM = 1
"""CUDA's name for its default stream, which waits for every blocking stream."""

SLICE = 0.25
"""Seconds between looks whether the host that is waited for still lives."""


def is_foreign(array: Any) -> bool:
    """True for an array on a device, which NumPy cannot read.

    Raises:
        TypeError: It is a ref.
    """
    if isinstance(array, np.ndarray):
        return False
    refuse_ref(array)
    if hasattr(array, "__cuda_array_interface__"):
        return True
    return hasattr(array, "__dlpack_device__") and int(array.__dlpack_device__()[0]) not in dlpack.HOST_LIKE


class Interop:
    """Ways across between one device and the rest of its process.

    The context's tables belong to its admitting thread, so each way is a request in the one order (a
    :class:`~callboard.device.protocol.lending.LendingRequest`), and the calling thread waits for its answer.
    """

    def __init__(self, port: "OpPort", actor: "DeviceActor") -> None:
        self._port = port
        self._actor = actor

    # -- ours in others' hands -----------------------------------------------------------------------------------------

    def dlpack(
        self,
        ref: AnyRef,
        *,
        stream: Any = dlpack.UNNAMED,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
        device_only: bool = False,
    ) -> Any:
        """Implement :meth:`GpuRef.__dlpack__`.

        It waits for the ops called before that use the array, and pins it until the consumer is done with it.

        Raises:
            BufferError: Process isolation; another device or a copy is requested; DLPack has no such dtype.
            AccelError: The op that writes it has failed: the root cause.
        """
        if self._actor.isolated:
            refuse(ref, "DLPack", BufferError)
        here = (dlpack.CPU, 0) if self._on_host else (dlpack.CUDA, self._lend(ref, settled=False).ordinal)
        if device_only:
            return here
        if dl_device is not None and tuple(map(int, dl_device)) != here:
            raise BufferError(
                f"{ref.layout!r} is on DLPack device {here}, not {tuple(dl_device)}; copy it with ref.get()"
            )
        if not self._on_host:
            dlpack.check_consumer(ref.layout, stream, max_version, "copy it with ref.get()")
        stream = None if stream is dlpack.UNNAMED else stream
        if self._on_host:
            return self._host_capsule(ref, stream, max_version, copy)
        if copy:
            raise BufferError(f"{ref.layout!r}: copy it first (dev.copy)")
        if stream == 0:
            raise BufferError("stream 0 is ambiguous: pass 1 (legacy default), 2 (per-thread default) or a handle")
        consumer = LEGACY_STREAM if stream in (None, -1) else int(stream)
        lent = self._lend(ref, settled=True, consumer=consumer)
        owner = _Export(self, ref.allocation, lent, consumer)
        return dlpack.capsule_of(lent.address + ref.offset, ref.layout, here, owner)

    def _host_capsule(self, ref: AnyRef, stream: Any, max_version: tuple[int, int] | None, copy: bool | None) -> Any:
        if stream is not None:
            raise BufferError(f"stream is {stream!r}, but a CPU has no streams; pass None")
        lent = self._lend(ref, settled=True)
        owner = _Export(self, ref.allocation, lent, 0)
        address = lent.address + ref.offset
        if ref.dtype.np.kind not in "biufc" or ref.dtype.np.isbuiltin != 1:
            if copy:
                raise BufferError(f"{ref.layout!r}: copy it first (dev.copy)")
            return dlpack.capsule_of(address, ref.layout, (dlpack.CPU, 0), owner)
        view = owner.array(address, ref.layout)
        return view.__dlpack__(max_version=max_version, copy=copy)

    def host_view(self, ref: AnyRef) -> "np.ndarray[Any, Any]":
        """Implement :meth:`callboard.Device.host_view`."""
        if self._actor.isolated:
            refuse(ref, "a view on the host", BufferError)
        lent = self._lend(ref, settled=True)
        if not (self._on_host or lent.memory.on_host):
            raise BufferError(
                f"{ref.layout!r} on {ref.device} is in memory of the device; make it with dev.managed.allocate, or "
                "copy it with ref.get()"
            )
        return _Export(self, ref.allocation, lent, 0).array(lent.address + ref.offset, ref.layout)

    def array_interface(self, ref: AnyRef) -> dict[str, Any]:
        """Implement :attr:`GpuRef.__cuda_array_interface__`; waits like :meth:`dlpack`.

        The user of the memory holds the ref, which must not be freed meanwhile.

        Raises:
            AttributeError: Process isolation, a CPU device, or a dtype that NumPy has no code for.
        """
        if self._actor.isolated:
            refuse(ref, "__cuda_array_interface__", AttributeError)
        if self._on_host:
            raise AttributeError(f"{ref.device} is not a CUDA device; use np.from_dlpack(ref)")
        dtype = ref.dtype
        if dtype.np.kind == "V":
            raise AttributeError(f"__cuda_array_interface__ has no word for {dtype}; use DLPack")
        lent = self._lend(ref, settled=True, consumer=LEGACY_STREAM)
        return {
            "version": 3,
            "shape": ref.shape,
            "typestr": dtype.np.str,
            "strides": tuple(s * dtype.itemsize for s in ref.strides),
            "data": (lent.address + ref.offset if ref.size else 0, False),
            "stream": None,  # callboard has nothing in flight on it
        }

    def raw_device_ptr(self, ref: AnyRef) -> int:
        """Implement :meth:`GpuRef.raw_device_ptr`; waits only for the memory.

        Raises:
            TypeError: Process isolation.
        """
        if self._actor.isolated:
            refuse(ref, "the address", TypeError)
        return self._lend(ref, settled=False).address + ref.offset

    def last_write_stream(self, buffer: int) -> int | None:
        """Id of the stream of the last op called that writes it; None under process isolation."""
        if self._actor.isolated:
            return None
        return self._request(lambda answer: Lend(buffer, answer, settled=False)).writer

    # -- others' in ours -----------------------------------------------------------------------------------------------

    def adopt(self, array: Any) -> AnyRef:
        """Implement :meth:`callboard.Device.adopt`."""
        refuse_ref(array)
        if self._actor.isolated:
            refuse_foreign(array)
        port = self._port
        described: list[tuple[Layout, int]] = []

        def take(stream: AccelStream, ordinal: int) -> Memory:
            address, layout = _host_array(array) if self._on_host else _device_array(array, ordinal, stream)
            low, high = layout.span
            described.append((layout, -low))
            return Memory(address + low, high - low, array)

        allocation = port.allocation()
        allocation.foreign = True
        generation = port.generation
        try:
            self._request(lambda answer: Borrow(allocation.id, take, answer))
        except BaseException:  # Ctrl-C, too
            allocation.freed = True  # the host has not got it
            raise
        layout, offset = described[0]
        ref: AnyRef = GpuRef(port, allocation, layout, generation, offset)
        ref._resolve()
        return ref

    # -- inline launches -----------------------------------------------------------------------------------------------

    def returned(self, lent: Lent, consumer: int) -> None:
        """A borrower is done. Any thread, also inside a garbage collection: so not in the middle of the host's work."""
        host = self._port.outbox.host
        if consumer and host is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the context with it
                self._port.loop.call_soon_threadsafe(host.post, Return(lent.block, consumer))  # type: ignore[arg-type]

    def _lend(self, ref: AnyRef, *, settled: bool, consumer: int = 0) -> Lent:
        allocation = ref.allocation
        if self._port.deferrals is not None:
            self._port.deferrals.before_write(allocation)
        allocation.foreign = True
        buffer = allocation.id
        try:
            return self._request(lambda answer: Lend(buffer, answer, settled=settled, consumer=consumer))
        except GpuRefStale as e:
            raise GpuRefStale(f"{ref.layout!r} on {ref.device}: {e}", e.reason) from None

    def _request(self, make: Callable[[Callable[[Lent | None, BaseException | None], None]], LendingRequest]) -> Lent:
        """Send queued calls, then the inline launch, and wait for its answer."""
        answer: concurrent.futures.Future[Lent] = concurrent.futures.Future()
        hosts: list[Any] = []

        def done(lent: Lent | None, error: BaseException | None) -> None:
            if error is not None:
                answer.set_exception(error)
            elif lent is not None:
                answer.set_result(lent)

        def send() -> None:
            port = self._port
            port.flush()
            if port.outbox.host is None or port.queued:
                answer.set_exception(
                    BufferError(
                        f"{port.name}: ops called before cannot be sent yet; await the ref (or dev.ready()) first"
                    )
                )
                return
            hosts.append(port.outbox.host)
            port.outbox.host.post(make(done))  # type: ignore[arg-type]

        here = asyncio._get_running_loop() is self._port.loop
        if here:
            send()
        else:
            self._port.loop.call_soon_threadsafe(send)
        while True:
            if here and hosts and hosts[0].here:
                hosts[0].linger(answer.done, SLICE)  # it works on this very thread
            try:
                return answer.result(SLICE)
            except concurrent.futures.TimeoutError:
                if self._port.stopped is not None or (hosts and not hosts[0].serving):
                    raise DeviceStopped(f"{self._port.name}: the context has ended") from None

    @property
    def _on_host(self) -> bool:
        return self._actor.info.compute_capability == (0, 0)


class _Export:
    """Pins an exported buffer; lives as long as the consumer's array."""

    __slots__ = ("__weakref__", "_allocation", "_consumer", "_interop", "_lent")

    def __init__(self, interop: Interop, allocation: Allocation, lent: Lent, consumer: int) -> None:
        allocation.pin()
        self._interop = interop
        self._allocation = allocation
        self._lent = lent
        self._consumer = consumer

    def array(self, address: int, layout: Layout) -> "np.ndarray[Any, Any]":
        """The memory as an array that holds this."""
        view = host_view(address, layout, writable=True)
        interface = {**view.__array_interface__}
        return np.asarray(_Interface(interface, self))

    def __del__(self) -> None:
        self._interop.returned(self._lent, self._consumer)
        self._allocation.unpin()


class _Interface:
    def __init__(self, interface: dict[str, Any], owner: object) -> None:
        self.__array_interface__ = interface
        self.owner = owner


def _host_array(array: Any) -> tuple[int, Layout]:
    if not isinstance(array, np.ndarray):
        if not hasattr(array, "__dlpack__"):
            raise TypeError(f"adopt: {type(array).__qualname__} is not an array; pass a NumPy array or a CPU tensor")
        array = np.from_dlpack(array)
    dtype = as_dtype(array.dtype)
    if not array.flags.writeable or not array.dtype.isnative or any(s % dtype.itemsize for s in array.strides):
        raise TypeError("adopt: the array is read-only, byte-swapped or oddly strided; use dev.put, which copies it")
    strides = tuple(s // dtype.itemsize for s in array.strides)
    return array.ctypes.data, layout_of(dtype, array.shape, strides if array.size else None)


def _device_array(array: Any, ordinal: int, stream: AccelStream) -> tuple[int, Layout]:
    if hasattr(array, "__dlpack__"):
        said = dlpack.described(array, stream.native)
        device = (dlpack.CUDA, ordinal)
        if said.device != device:
            raise TypeError(
                f"adopt: {type(array).__qualname__} is on DLPack device {said.device}, this device is {device}"
            )
        return said.address, layout_of(said.dtype, said.shape, said.strides if said.address else None)
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is None:
        raise TypeError(f"adopt: {type(array).__qualname__} is not a device array; pass one of torch, CuPy, Numba …")
    return _interface_array(interface, stream)


def _interface_array(interface: dict[str, Any], stream: AccelStream) -> tuple[int, Layout]:
    """Return address and layout from ``__cuda_array_interface__``, version 3.

    The interface names no device; the caller must check that.
    """
    dtype, shape = as_dtype(np.dtype(interface["typestr"])), tuple(interface["shape"])
    address, read_only = interface["data"]
    strides = interface.get("strides")
    if read_only or interface.get("mask") is not None or any(s % dtype.itemsize for s in strides or ()):
        raise TypeError("adopt: the array is read-only, masked or oddly strided; copy it first")
    owners = interface.get("stream", LEGACY_STREAM)
    if owners is not None:  # None: its owner's work is done
        stream.follow(owners)
    return address, layout_of(dtype, shape, None if strides is None else tuple(s // dtype.itemsize for s in strides))


def refuse(ref: AnyRef, what: str, kind: type[Exception]) -> NoReturn:
    """The device's memory lives in another process.

    Raises:
        BufferError, TypeError, AttributeError: As ``kind`` selects.
    """
    raise kind(
        f"{what} of {ref.layout!r} on {ref.device}: the array lives in the context host's process. Copy it with "
        "ref.get(), work on it in a ResidentActor, or open the device with isolation='thread'"
    )


def refuse_ref(array: Any) -> None:
    """Refuse a ref where another library's array is meant.

    Raises:
        TypeError: It is a ref.
    """
    if isinstance(array, GpuRef):
        raise TypeError(f"{array!r} is a ref already; copy it (dev.put, dev.copy) or take its values (ref.get())")


def refuse_foreign(array: Any) -> NoReturn:
    """An array of this process cannot be handed to a device in another.

    Raises:
        TypeError
    """
    raise TypeError(
        f"{type(array).__module__}.{type(array).__qualname__} is in this process and the context in another: copy it "
        "(dev.put of a host array), make it in a ResidentActor, or open the device with isolation='thread'"
    )
