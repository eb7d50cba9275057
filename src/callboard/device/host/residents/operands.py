"""Device arrays in user code: the caller's, for the duration of a call, and adopted ones of the actor."""

import itertools
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from callboard.core.backend import Memory
from callboard.core.errors import BackendUnavailable
from callboard.core.layout import HasLayout, Layout
from callboard.core.ref import GpuRef, stale
from callboard.device.host.context.blocks import Block, BlockPool
from callboard.device.protocol.residents import dlpack
from callboard.device.protocol.residents.dlpack import UNNAMED, Consumer
from callboard.device.protocol.residents.foreign import Found, device_memory, host_memory
from callboard.device.protocol.residents.tensors import tensor_memory

if TYPE_CHECKING:
    from callboard.core.backend import AccelStream

__all__ = ["Adopted", "AdoptedBlock", "DeviceView", "Pin", "memory_of"]

Array = np.ndarray[Any, Any]

# Ids of buffers that hosts make are negative. They are never used again, not even by the next host of the device.
_ids = itertools.count(-time.time_ns(), -1)


class DeviceView(HasLayout):
    """A caller's array on a CUDA device, valid during the call that passed it.

    ``torch.from_dlpack(view)``, ``cupy.asarray(view)``, ``wp.from_dlpack(view)`` … make an array of the package without
    a copy, in order with ``ctx.stream``.

    Attributes:
        address: Address of element 0.
    """

    __slots__ = ("_ordinal", "_stream", "_writable", "address", "layout")

    def __init__(self, address: int, layout: Layout, writable: bool, ordinal: int, stream: "AccelStream") -> None:
        self.address = address
        self.layout = layout
        self._writable = writable
        self._ordinal = ordinal
        self._stream = stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        dtype = self.layout.dtype
        if dtype.np.kind == "V":
            raise AttributeError(f"__cuda_array_interface__ has no word for {dtype}; use DLPack")
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": dtype.np.str,
            "strides": tuple(s * dtype.itemsize for s in self.strides),
            "data": (self.address if self.size else 0, not self._writable),
            "stream": self._stream.native or None,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self._ordinal

    def __dlpack__(
        self, *, stream: Any = UNNAMED, max_version: Any = None, dl_device: Any = UNNAMED, copy: Any = UNNAMED
    ) -> Any:
        consumer = Consumer(stream, max_version, dl_device, copy)
        consumer.check(self.layout, on_host=False, cure="use view.torch() or view.cupy()")
        if copy is True:
            raise BufferError(f"{self!r}: copy it in the package that takes it")
        if stream not in (UNNAMED, None, -1, self._stream.native):
            self._stream.synchronize()  # the consumer works elsewhere
        return dlpack.capsule_of(self.address, self.layout, self.__dlpack_device__(), self, consumer)

    def torch(self) -> Any:
        """The array as a ``torch.Tensor``."""
        return _loaded("torch").from_dlpack(self)

    def cupy(self) -> Any:
        """The array as a ``cupy.ndarray``."""
        return _loaded("cupy").from_dlpack(self)

    def __repr__(self) -> str:
        return f"<DeviceView {self.layout!r}>"


def _loaded(package: str) -> Any:
    module = sys.modules.get(package)
    if module is None:
        raise BackendUnavailable(f"{package} is not imported in the context host; import it in prepare()")
    return module


class AdoptedBlock(Block):
    """Memory of an array that user code owns. Keeps the array alive while the application has a ref to it.

    Attributes:
        id: The buffer's id.
        issued: The number of times it was given to the application and has not been freed.
    """

    __slots__ = ("__weakref__", "_on_free", "id", "issued")

    def __init__(self, memory: Memory, on_free: Callable[["AdoptedBlock"], None]) -> None:
        super().__init__(memory, memory.nbytes)
        self.id = next(_ids)
        self.issued = 0
        self._on_free = on_free

    def give(self, pool: BlockPool) -> bool:
        self.issued -= 1
        if self.issued > 0:
            return False
        self._on_free(self)
        return True


class Adopted:
    """The result of ``ctx.ref(array)``; it arrives at the caller as a :class:`GpuRef <callboard.GpuRef>`."""

    __slots__ = ("block", "layout", "offset")

    def __init__(self, block: AdoptedBlock, layout: Layout, offset: int) -> None:
        self.block = block
        self.layout = layout
        self.offset = offset

    @property
    def wire(self) -> list[Any]:
        """``[buffer, offset, dtype, shape, strides]``."""
        layout = self.layout
        return [self.block.id, self.offset, layout.dtype.code, layout.shape, layout.strides]

    def __repr__(self) -> str:
        return f"<ctx.ref {self.layout!r}>"


class Pin:
    """Keeps the memory of a ref of ``ctx.device``, which may be freed meanwhile; so may the actor's instance end."""

    __slots__ = ("_allocation", "_memory")

    def __init__(self, ref: GpuRef) -> None:
        if not ref.allocation.pin():
            raise stale(ref, "freed")
        self._allocation = ref.allocation
        self._memory = ref._port.memory  # type: ignore[attr-defined] # of a LocalPort

    def __del__(self) -> None:
        self._allocation.unpin()


def memory_of(what: str, array: Any, *, on_host: bool) -> Found:
    """An array of user code on the device, in host memory or on a GPU, made on the current stream.

    Raises:
        TypeError: It is none, or one that no ref can represent; ``what`` asks.
    """
    known = tensor_memory(array, on_host=on_host)
    if known is not None:
        return Found(*known, array)
    return host_memory(what, array) if on_host else device_memory(what, array, -1)
