"""A kernel that writes where it must not, and so poisons its CUDA context.

It is a few lines of PTX that the driver compiles, launched through ``libcuda`` itself: no package is needed. The demo
and the measurements of recovery use it.
"""

import ctypes
from collections.abc import Callable

__all__ = ["launch_illegal_write", "load_illegal_write"]

PTX = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry illegal_write()
{
    .reg .b64 %address;
    .reg .b32 %value;
    mov.u64 %address, 16;
    mov.u32 %value, 1;
    st.global.u32 [%address], %value;
    ret;
}
"""


def _checked(status: int, call: str) -> None:
    if status:
        raise RuntimeError(f"{call} answered {status}")


def load_illegal_write() -> Callable[[int], None]:
    """The kernel, compiled for the context that is current on this thread: a function that launches it on a stream.

    Raises:
        OSError: There is no driver.
        RuntimeError: The driver refuses the kernel.
    """
    driver = ctypes.CDLL("libcuda.so.1")
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    _checked(driver.cuModuleLoadData(ctypes.byref(module), PTX), "cuModuleLoadData")
    _checked(driver.cuModuleGetFunction(ctypes.byref(function), module, b"illegal_write"), "cuModuleGetFunction")

    def launch(stream: int) -> None:
        one, none = ctypes.c_uint(1), ctypes.c_uint(0)
        grid = (one,) * 6
        _checked(driver.cuLaunchKernel(function, *grid, none, ctypes.c_void_p(stream), None, None), "cuLaunchKernel")

    return launch


def launch_illegal_write() -> None:
    """Write to address 16 of the device, in no allocation. Returns at once; the context is dead soon after."""
    load_illegal_write()(0)
