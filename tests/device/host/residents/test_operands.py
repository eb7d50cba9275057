"""What user code gets of device arrays on a GPU; no GPU is needed for what is refused."""

import numpy as np
import pytest

from callboard.backends.cpu.stream import CpuStream
from callboard.core.dtype import as_dtype
from callboard.core.layout import layout_of
from callboard.device.host.residents.operands import DeviceView


def test_numpy_cannot_read_a_view_of_a_gpus_memory_and_says_so() -> None:
    stream = CpuStream(0)
    try:
        view = DeviceView(4096, layout_of(as_dtype("f32"), (3,)), True, 0, stream)
        with pytest.raises(BufferError, match=r"f32\[3\] is on a GPU, where NumPy cannot read it; use view.torch"):
            np.from_dlpack(view)
    finally:
        stream.close()
