"""``LocalDevice``: ``ctx.device`` of a resident actor."""

import functools
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from callboard.actors.handles import Handle
from callboard.core.backend import AccelDevice, AccelStream
from callboard.core.dtype import DTypeLike, as_dtype
from callboard.core.errors import UnsupportedOp
from callboard.core.layout import shape_of
from callboard.core.mode import Blocking
from callboard.core.ref import GpuRef
from callboard.device.client.api import DeviceApi, Shape
from callboard.device.client.line.interop import is_foreign
from callboard.device.host.context.libraries import Libraries
from callboard.device.host.context.streams import SharedStreams
from callboard.device.host.context.timelines import Timeline
from callboard.device.inside.arrays import LocalArrays
from callboard.device.inside.memory import LocalMemory
from callboard.device.inside.port import LocalPort
from callboard.device.protocol.residents.values import DeviceArray
from callboard.device.strategies.streams import SingleStreamAllocator

if TYPE_CHECKING:
    from callboard.device.host.residents.item import Site

__all__ = ["LocalDevice"]

Array = np.ndarray[Any, Any]


class LocalDevice(DeviceApi[Blocking]):
    """The libraries of the device, called where the actor runs: ``c = ctx.device.blas.gemm(a, b)``.

    An op is enqueued on the actor's stream, after earlier work of torch, CuPy and other packages, and before their
    later work: nothing waits until ``ref.get()``, the ``result()`` of a number, or :meth:`synchronize`. On a CPU the op
    has finished when the call returns. Operands are refs of this device, arrays passed to a method, and arrays of
    torch, CuPy, Warp and NumPy; ``torch.from_dlpack(ref)`` and similar functions convert back, without a copy.

    An op that fails by itself (a matrix that is not positive definite) raises at the next wait, at the latest when the
    method returns. Arrays made here count towards a ``memory_limit`` of the actor's own. Refs end with the actor's
    instance; ``ctx.ref(ref)``, returned, lives as long as the caller needs it. For the actor's own thread.
    """

    def __init__(self, site: "Site", behind: AccelStream | None = None) -> None:
        device, shared = site.device, site.libraries
        stream = site.timeline.stream.waited if behind is None else device.stream()
        timeline = Timeline(stream)  # the host keeps its own state of the stream
        own = Libraries(device, shared.classes, _OneStream(device, timeline), shared.name)
        name = f"{device.info.backend}:{device.info.index}"
        self._site = site
        self._beside: list[LocalDevice] = []
        self._port = LocalPort(device, name, own, timeline, LocalMemory(device, site.memory_limit), behind)
        self._arrays = self._port.services = LocalArrays(self._port, site.ordinal)
        super().__init__(self._port.submit, cast(Any, None), cast(Any, None))

    def record(self, *ops: Any, **inputs: Any) -> Any:
        """Not here: ops are enqueued by this thread itself, so replays would save no message.

        Raises:
            UnsupportedOp: Always.
        """
        raise UnsupportedOp("ctx.device records nothing; record with the device's handle in the application")

    def library(self, api: Any) -> Any:
        return _Taking(super().library(api), self._arrays)

    def put(
        self, array: Any, *, dtype: DTypeLike | None = None, non_blocking: bool = False, out: Any = None
    ) -> GpuRef[Blocking]:
        """Copy a host array to the device; an array on the device is taken without a copy, as :meth:`adopt` does."""
        ref = self._adopted(array, dtype) if is_foreign(array) else self._arrays.put(array, dtype)
        return ref if out is None else self.copy(ref, out)

    def adopt(self, array: Any) -> GpuRef[Blocking]:
        """An array of torch, CuPy, Warp … on this device as a ref, without a copy; on a CPU, of NumPy, too.

        Raises:
            TypeError: It is not on this device, or of a dtype that no device holds.
        """
        return self._arrays.adopt(array)

    def elsewhere(self, array: Any) -> DeviceArray:
        """An array on this device as something that arrives at a caller as a NumPy array. Raises as :meth:`adopt`."""
        return self._arrays.elsewhere(array)

    def fill(self, out: Any, value: complex) -> GpuRef[Blocking]:
        """Set every element of ``out`` and return a ref of it."""
        return super().fill(self._arrays.ref(out), value)

    def copy(self, src: Any, out: Any = None) -> GpuRef[Blocking]:
        """``out = src`` on the device, any strides; a new row-major array when ``out`` is None."""
        return super().copy(self._arrays.ref(src), self._arrays.ref(out))

    def host_empty(self, shape: Shape, dtype: DTypeLike = "f32") -> Array:
        """A host array; here an ordinary one."""
        return np.empty(shape_of(shape), as_dtype(dtype).np)

    def beside(self) -> "LocalDevice":
        """The device once more, with a stream of its own: its ops run beside what is enqueued here after them.

        Each begins when all is done that has been enqueued on the actor's stream by then; also on a CPU, the call does
        not wait for it. Nothing here waits for such an op: before its arrays are read or written, call
        :meth:`synchronize` of the device that is returned. The arrays are kept alive until then.

        Operands are its own refs and arrays of torch, NumPy and others, not refs of this device.
        """
        device = LocalDevice(self._site, self._port.stream)
        self._beside.append(device)
        return device

    def finish(self) -> None:
        """A method returns: wait for ops that may still turn out to have failed. Raises as :meth:`synchronize`."""
        if self._port.has_unsettled:
            self._port.settle()

    def close(self) -> None:
        """The actor's instance has ended; the context is alive."""
        for device in self._beside:
            device.close()
            device._port.stream.close()
        self._port.close()

    def synchronize(self) -> None:
        """Wait until all ops are done, and all other work on the actor's stream.

        Raises:
            LibraryError: One of the ops has failed.
        """
        self._port.settle()

    def __repr__(self) -> str:
        return f"<LocalDevice {self._port.name}>"


class _OneStream(SharedStreams):
    def __init__(self, device: AccelDevice, timeline: Timeline) -> None:
        super().__init__(device, {}, SingleStreamAllocator())
        self._timeline = timeline

    def acquire(self, actor: str) -> Timeline:
        return self._timeline


class _Taking(Handle):
    """The methods of a library, which take arrays of others in place of refs."""

    def __init__(self, api: Any, arrays: LocalArrays) -> None:
        self._api = api
        self._arrays = arrays

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._api(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._api, name)
        ref = self._arrays.ref

        @functools.wraps(method)
        def taking(*args: Any, **kwargs: Any) -> Any:
            return method(*map(ref, args), **{key: ref(value) for key, value in kwargs.items()})

        self.__dict__[name] = taking
        return taking

    def __dir__(self) -> list[str]:
        return dir(self._api)
