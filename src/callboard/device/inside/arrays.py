"""``LocalArrays``: arrays of NumPy, torch, CuPy … as refs of a resident actor, and its refs as arrays of those."""

import functools
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from callboard.core.dtype import DTypeLike, as_dtype
from callboard.core.errors import ShapeError
from callboard.core.mode import Blocking
from callboard.core.ref import Allocation, GpuRef
from callboard.core.ref.hostarrays import is_masked
from callboard.device.client.line.interop import is_foreign
from callboard.device.host.residents.operands import DeviceView, Pin, memory_of
from callboard.device.inside.port import LocalPort
from callboard.device.inside.regions import LocalRegion
from callboard.device.protocol.residents import dlpack
from callboard.device.protocol.residents.dlpack import UNNAMED, Consumer
from callboard.device.protocol.residents.foreign import Found, host_values
from callboard.device.protocol.residents.values import DeviceArray
from callboard.events.exports import load
from callboard.events.once import once
from callboard.kernel.memory import Copy, Download, Upload

if TYPE_CHECKING:
    from callboard.arrays.namespace import Namespace
    from callboard.numpylike.namespace import Numpy

__all__ = ["LocalArrays"]

Array = np.ndarray[Any, Any]
AnyRef = GpuRef[Any]


class LocalArrays:
    """The device services for the refs of one resident actor.

    Args:
        port: Port of the actor.
        ordinal: Ordinal of the device in this process.
    """

    blocking = True

    def __init__(self, port: LocalPort, ordinal: int) -> None:
        self._port = port
        self._ordinal = ordinal
        self.submit = port.submit

    @once
    def xp(self) -> "Namespace[Blocking]":
        """The array namespace, made on first use."""
        load("callboard.arrays.namespace")
        from callboard.arrays.namespace import Namespace  # with the messages of many libraries

        return Namespace(self._port.submit, self._upload, self._port.name)

    @once
    def np(self) -> "Numpy":
        """NumPy's names, made on first use."""
        load("callboard.numpylike.namespace")
        from callboard.numpylike.namespace import Numpy

        return Numpy(self.xp)

    def _upload(self, array: Any) -> AnyRef:
        return self.adopt(array) if is_foreign(array) else self.put(array, None)

    # -- arrays of others ----------------------------------------------------------------------------------------------

    def ref(self, value: Any) -> Any:
        """Return an array as a ref, without a copy if it is on the device; also inside sequences.

        Other values are returned unchanged.

        A NumPy array is used in place on a CPU, and copied to a GPU.
        """
        if isinstance(value, GpuRef):
            return value
        if isinstance(value, list | tuple) and any(_is_array(item) for item in value):
            return tuple(map(self.ref, value))
        if isinstance(value, np.ndarray) and not (self._port.on_host and value.flags.writeable):
            return self.put(value, None)
        return self.adopt(value) if _is_array(value) else value

    def adopt(self, array: Any) -> AnyRef:
        """See :meth:`callboard.Device.adopt`; here it works under every isolation."""
        found = self._place(array)
        layout = found.layout
        low, high = layout.span
        number = self._port.memory.borrow(found.address + low, high - low, found.owner)
        ref: AnyRef = GpuRef(self._port, Allocation(number, self._port.memory.released), layout, 0, -low)
        ref._resolve()
        return ref

    def elsewhere(self, array: Any) -> DeviceArray:
        """See :meth:`LocalDevice.elsewhere <callboard.device.inside.device.LocalDevice.elsewhere>`."""
        if isinstance(array, GpuRef):
            ref: AnyRef = array
        else:
            found = self._place(array)
            layout = found.layout
            if layout.contiguous and layout.size:  # no ref is needed to copy it
                read = functools.partial(self._port.bring, found.owner, found.address, layout)
                return DeviceArray(layout.dtype.np, layout.shape, read)
            ref = self.adopt(array)
        return DeviceArray(ref.dtype.np, ref.shape, lambda out: self.get(ref, out))

    def _place(self, array: Any) -> Found:
        """An array on this device; raises as :meth:`adopt`."""
        if isinstance(array, DeviceView):
            return Found(array.address, array.layout, array)
        return memory_of("ctx.device", array, on_host=self._port.on_host)

    def put(self, array: Any, dtype: DTypeLike | None) -> AnyRef:
        """See :meth:`callboard.Device.put`."""
        source = np.asarray(host_values("put", array, None if dtype is None else as_dtype(dtype)), order="C")
        ref: AnyRef = self._port.submit(Upload(host=LocalRegion(self._port, source)))
        return ref

    # -- refs in the hands of others -----------------------------------------------------------------------------------

    def get(self, ref: AnyRef, out: Array | None) -> Array:
        """See :meth:`GpuRef.get`; waits.

        Raises:
            GpuRefStale, ShapeError, LibraryError: ``out`` does not fit; an op called before has failed.
        """
        ref.access()
        if out is None:
            out = np.empty(ref.shape, ref.dtype.np)
        elif out.dtype != ref.dtype.np or out.shape != ref.shape or is_masked(out) or not _is_plain(out):
            raise ShapeError(
                f"get: out is {out.dtype}{list(out.shape)}, the array is {ref.layout!r}; "
                "pass a C-contiguous, writable array of that dtype and shape"
            )
        if out.nbytes:
            source = ref if ref.layout.contiguous else self._port.submit(Copy(src=ref))
            self._port.submit(Download(src=source, host=LocalRegion(self._port, out)))
        self._port.settle()
        return out

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
        """Implement :meth:`GpuRef.__dlpack__`, ordered with the actor's stream.

        Raises:
            BufferError: Another device or a copy is requested; the consumer cannot take such an array.
        """
        port = self._port
        here = (dlpack.CPU, 0) if port.on_host else (dlpack.CUDA, self._ordinal)
        if device_only:
            return here
        if copy is True or (dl_device not in (UNNAMED, None) and tuple(map(int, dl_device)) != here):
            raise BufferError(f"{ref.layout!r} is on DLPack device {here}; copy it with ref.get() or ctx.device.copy")
        consumer = Consumer(stream, max_version, dl_device, copy)
        consumer.check(ref.layout, on_host=port.on_host, cure="copy it with ref.get()")
        if not port.on_host and stream not in (UNNAMED, None, -1, port.stream.native):
            port.stream.synchronize()  # the consumer works elsewhere
        return dlpack.capsule_of(self.raw_device_ptr(ref), ref.layout, here, Pin(ref), consumer)

    def array_interface(self, ref: AnyRef) -> dict[str, Any]:
        """Implement :attr:`GpuRef.__cuda_array_interface__`.

        Raises:
            AttributeError: A CPU, or a dtype that NumPy has no code for.
        """
        port, dtype = self._port, ref.dtype
        if port.on_host or dtype.np.kind == "V":
            raise AttributeError(f"{ref.layout!r} on {port.name} has no __cuda_array_interface__; use DLPack")
        return {
            "version": 3,
            "shape": ref.shape,
            "typestr": dtype.np.str,
            "strides": tuple(s * dtype.itemsize for s in ref.strides),
            "data": (self.raw_device_ptr(ref) if ref.size else 0, False),
            "stream": port.stream.native or None,
        }

    def raw_device_ptr(self, ref: AnyRef) -> int:
        """Address of element 0."""
        return self._port.memory.address(ref.allocation.id) + ref.offset

    def last_write_stream(self, buffer: int) -> int | None:
        """Id of the actor's stream."""
        return self._port.stream.id

    def preview(self, ref: Any, *, most: int | None = None, wait: bool = False, within: float | None = None) -> None:
        """Return None: no notebook shows such refs."""

    def ordinal(self, generation: int) -> int:
        """Return the generation itself: a host knows no others."""
        return generation

    def remember(self, ref: AnyRef) -> NoReturn:
        """No token stands for an array inside a host.

        Raises:
            TypeError
        """
        raise TypeError("a ref of ctx.device has no token: return it with ctx.ref(ref), and the caller has one")


def _is_plain(out: Array) -> bool:
    return out.flags.c_contiguous and out.flags.writeable


def _is_array(value: Any) -> bool:
    kind = type(value)  # not the value, which may compute any attribute
    return hasattr(kind, "__dlpack__") or hasattr(kind, "__cuda_array_interface__")
