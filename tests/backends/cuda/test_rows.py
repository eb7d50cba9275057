"""Transfers of rows over the stand-in for the driver: the call each becomes, and the bytes it copies."""

from typing import Any

import numpy as np
import pytest
from host_driver import HostDriver

from callboard.backends.cuda.device import CudaDevice
from callboard.backends.cuda.rows import transfer
from callboard.core.dtype import as_dtype
from callboard.core.layout import Layout, layout_of

VIEWS = {
    "memcpy": (lambda x: x[1:3], lambda x: x[2:]),
    "memcpy_2d": (lambda x: x[1, 2:8:2, :40], lambda x: x[0, :3, 24:]),
    "memcpy_3d": (lambda x: x[1:, 2:8, :40], lambda x: x[:3, 4:, 24:]),
}


def layout(array: "np.ndarray[Any, Any]") -> Layout:
    return layout_of(as_dtype(array.dtype), array.shape, tuple(s // array.itemsize for s in array.strides))


@pytest.mark.parametrize("up", [True, False])
@pytest.mark.parametrize("call", VIEWS)
def test_each_is_one_call(driver: HostDriver, device: CudaDevice, call: str, up: bool) -> None:
    on_device, on_host = VIEWS[call]
    host = np.random.default_rng(1).integers(0, 99, (4, 10, 64)).astype(np.int32)
    memory = device.allocate(host.nbytes)
    block = driver.blocks[memory.address].view(np.int32)[: host.size].reshape(host.shape)
    block[...] = -host
    expected = (block if up else host).copy()
    (on_device if up else on_host)(expected)[...] = (on_host(host) if up else on_device(block)).copy()
    there, here = on_device(block), on_host(host)
    src, out = (here, there) if up else (there, here)
    stream = device.stream()
    driver.calls.clear()
    transfer(driver, layout(src), layout(out), up=up)(stream.native, src.ctypes.data, out.ctypes.data)  # type: ignore[arg-type]
    assert driver.calls == [{"memcpy": "memcpy_htod" if up else "memcpy_dtoh"}.get(call, call)]
    np.testing.assert_array_equal(block if up else host, expected)


def test_nothing_is_no_call(driver: HostDriver) -> None:
    empty = layout(np.zeros((0, 3)))
    transfer(driver, empty, empty, up=True)(1, 0, 0)  # type: ignore[arg-type]
    assert driver.calls == []
