"""``Interop``: arrays of other packages as refs, and refs as arrays of other packages.

Thread isolation: without a copy, both ways. Process isolation: a device address means nothing in the application, and
every way across names the way out instead.
"""

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from callboard.actors.loops.posting import post
from callboard.core.backend import Memory
from callboard.core.errors import DeviceStopped, GpuRefStale
from callboard.core.layout import Layout
from callboard.core.ref import Allocation, GpuRef, stale
from callboard.core.ref.hostarrays import told
from callboard.device.protocol.lending import Borrow, Lend, LendingRequest, Lent, Return
from callboard.device.protocol.residents import dlpack
from callboard.device.protocol.residents.dlpack import UNNAMED, Consumer
from callboard.device.protocol.residents.foreign import (
    LEGACY_STREAM,
    device_memory,
    dlpack_device,
    host_memory,
)
from callboard.device.protocol.residents.hostview import held_array
from callboard.kernel.memory import Copy

if TYPE_CHECKING:
    from callboard.device.client.line.port import OpPort
    from callboard.device.supervision.actor import DeviceActor

__all__ = ["Interop", "is_foreign"]

AnyRef = GpuRef[Any]

SLICE = 0.25
"""Seconds between looks whether the host that is waited for still lives."""


def is_foreign(array: Any) -> bool:
    """True for an array on a device, which NumPy cannot read.

    Raises:
        TypeError: It is a ref, or does not say where it is.
    """
    if isinstance(array, _OF_THE_HOST):
        return False
    refuse_ref(array)
    device = dlpack_device("put", array)
    if device is not None:
        return device[0] not in dlpack.HOST_LIKE
    name = "__cuda_array_interface__"
    return told("put", array, name, lambda: hasattr(array, name))


_OF_THE_HOST = np.ndarray, np.generic, list, tuple, int, float, complex


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
        stream: Any = UNNAMED,
        max_version: tuple[int, int] | None = None,
        dl_device: Any = UNNAMED,
        copy: Any = UNNAMED,
        device_only: bool = False,
    ) -> Any:
        """Implement :meth:`GpuRef.__dlpack__`.

        It waits for the ops called before that use the array, and pins it until the consumer is done with it.

        Raises:
            BufferError: Process isolation; another device or a copy is requested; the consumer cannot take such an
                array.
            AccelError: The op that writes it has failed: the root cause.
        """
        if self._actor.isolated:
            refuse(ref, "DLPack", BufferError)
        on_host = self._on_host
        here = (dlpack.CPU, 0) if on_host else (dlpack.CUDA, self._lend(ref, settled=False).ordinal)
        if device_only:
            return here
        if dl_device not in (UNNAMED, None) and tuple(map(int, dl_device)) != here:
            raise BufferError(
                f"{ref.layout!r} is on DLPack device {here}, not {tuple(dl_device)}; copy it with ref.get()"
            )
        consumer = Consumer(stream, max_version, dl_device, copy)
        consumer.check(ref.layout, on_host=on_host, cure="copy it with ref.get()")
        native = self._consumers_stream(ref.layout, consumer)
        lent = self._lend(ref, settled=True, consumer=native)
        owner = self._export(ref, lent, native)
        return dlpack.capsule_of(lent.address + ref.offset, ref.layout, here, owner, consumer)

    def _consumers_stream(self, layout: Layout, consumer: Consumer) -> int:
        stream = None if consumer.stream is UNNAMED else consumer.stream
        if self._on_host:
            if stream is not None:
                raise BufferError(f"stream is {stream!r}, but a CPU has no streams; pass None")
            return 0
        if consumer.copy is True:
            raise BufferError(f"{layout!r}: copy it first (dev.copy)")
        if stream == 0:
            raise BufferError("stream 0 is ambiguous: pass 1 (legacy default), 2 (per-thread default) or a handle")
        return LEGACY_STREAM if stream in (None, -1) else int(stream)

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
        return self._export(ref, lent, 0).array(lent.address + ref.offset, ref.layout)

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
        """Id of the stream of the last op called that writes it; None under process isolation, or if there is none."""
        if self._actor.isolated:
            return None
        return self._request(lambda answer: Lend(buffer, answer, settled=False)).writer

    # -- others' in ours -----------------------------------------------------------------------------------------------

    def adopt(self, array: Any) -> AnyRef:
        """Implement :meth:`callboard.Device.adopt`.

        The array's own methods are called here, on the caller's thread: what they raise is the caller's error, and the
        stream that is current in its package is the caller's.
        """
        refuse_ref(array)
        if self._actor.isolated:
            refuse_foreign(array)
        found = host_memory("adopt", array) if self._on_host else device_memory("adopt", array)
        port, layout = self._port, found.layout
        low, high = layout.span
        memory = Memory(found.address + low, high - low, found.owner)
        allocation = port.allocation()
        allocation.foreign = True
        generation = port.generation
        try:
            self._request(lambda answer: Borrow(allocation.id, memory, found.ordinal, found.follow, answer))
        except BaseException:  # Ctrl-C, too, which may come when the host has it already
            allocation.free()
            raise
        ref: AnyRef = GpuRef(port, allocation, layout, generation, -low)
        ref._resolve()
        if found.shared or self._on_host:
            return ref
        copied: AnyRef = port.services.submit(Copy(src=ref))
        return copied

    # -- inline launches -----------------------------------------------------------------------------------------------

    def returned(self, lent: Lent, consumer: int) -> None:
        """A borrower is done. Any thread, also inside a garbage collection: so not in the middle of the host's work."""
        host = self._port.outbox.host
        if consumer and host is not None:
            post(self._port.loop, host.post, Return(lent.block, consumer))

    def _export(self, ref: AnyRef, lent: Lent, consumer: int) -> "_Export":
        """Pin a buffer that has been lent.

        Raises:
            GpuRefStale: Another thread has freed it meanwhile.
        """
        if not ref.allocation.pin():
            self.returned(lent, consumer)
            raise stale(ref, "freed")
        return _Export(self, ref.allocation, lent, consumer)

    def _lend(self, ref: AnyRef, *, settled: bool, consumer: int = 0) -> Lent:
        allocation = ref.allocation
        allocation.foreign = True  # first: no other thread may defer an op that reads it from now on
        if self._port.deferrals is not None:
            self._port.deferrals.before_write(allocation)
        buffer = allocation.id
        try:
            lent = self._request(lambda answer: Lend(buffer, answer, settled=settled, consumer=consumer))
        except GpuRefStale as e:
            raise GpuRefStale(f"{ref.layout!r} on {ref.device}: {e}", e.reason) from None
        allocation.memory = lent.owner
        return lent

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
            if port.outbox.host is None or port.outbox.held:
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
        elif not post(self._port.loop, send):
            raise self._port.why_stopped()
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
    """Unpins an exported buffer at the end of the consumer's array."""

    __slots__ = ("__weakref__", "_allocation", "_consumer", "_interop", "_lent")

    def __init__(self, interop: Interop, allocation: Allocation, lent: Lent, consumer: int) -> None:
        self._interop = interop
        self._allocation = allocation
        self._lent = lent
        self._consumer = consumer

    def array(self, address: int, layout: Layout) -> "np.ndarray[Any, Any]":
        """The memory as an array that holds this."""
        return held_array(address, layout, layout.dtype.np, self)

    def __del__(self) -> None:
        self._interop.returned(self._lent, self._consumer)
        self._allocation.unpin()


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
        raise TypeError(f"{array._told()} is a ref already; copy it (dev.put, dev.copy) or take its values (ref.get())")


def refuse_foreign(array: Any) -> NoReturn:
    """An array of this process cannot be handed to a device in another.

    Raises:
        TypeError
    """
    raise TypeError(
        f"{type(array).__module__}.{type(array).__qualname__} is in this process and the context in another: copy it "
        "(dev.put of a host array), make it in a ResidentActor, or open the device with isolation='thread'"
    )
