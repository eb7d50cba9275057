"""Device arrays in user code on a GPU; the rejected cases need no GPU."""

import ctypes

import numpy as np
import pytest

from callboard.backends.cpu.stream import CpuStream
from callboard.core.dtype import as_dtype
from callboard.core.layout import layout_of
from callboard.device.host.residents.operands import DeviceView
from callboard.device.protocol.residents import dlpack
from callboard.device.protocol.residents.foreign import exported


class DividesUnsigned:
    """An array whose strides are what CuPy makes of negative ones: bytes, divided as unsigned numbers."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.alive = array, (ctypes.c_int64 * 1)((2**64 + array.strides[0]) // array.itemsize)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self) -> object:
        layout = layout_of(as_dtype(self.array.dtype), self.array.shape, (1,))
        capsule = dlpack.capsule_of(self.array.ctypes.data, layout, (1, 0), self)
        tensor = dlpack._Managed.from_address(dlpack._pointer(capsule, b"dltensor")).tensor
        tensor.strides = ctypes.cast(self.alive, type(tensor.strides))
        return capsule


@pytest.mark.parametrize("dtype", ["f2", "f8", "c16"])
@pytest.mark.parametrize("step", [-1, -3])
def test_negative_strides_of_cupy_are_understood(dtype: str, step: int) -> None:
    array = np.arange(9).astype(dtype)[::step]
    found = exported("test", DividesUnsigned(array))
    assert (found.shape, found.strides) == (array.shape, (step,))


def test_numpy_cannot_read_a_view_of_a_gpus_memory_and_says_so() -> None:
    stream = CpuStream(0)
    try:
        view = DeviceView(4096, layout_of(as_dtype("f32"), (3,)), True, 0, stream)
        with pytest.raises(BufferError, match=r"f32\[3\] is on a GPU, where NumPy cannot read it; use view.torch"):
            np.from_dlpack(view)
    finally:
        stream.close()
