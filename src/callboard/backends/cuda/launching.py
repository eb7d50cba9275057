"""Launch shapes and argument structures of the strided kernels in ``data/memory.cu``."""

import ctypes
from collections.abc import Callable
from ctypes import c_int, c_int64, c_uint, c_uint32, c_uint64, c_void_p

from callboard.backends.cuda.axes import AXES
from callboard.backends.cuda.driver import Driver

__all__ = ["CopyArgs", "FillArgs", "LaunchConfig", "TransposeArgs", "kernel_launcher", "linear_grid", "suffix"]

THREADS = 256
MAX_BLOCKS = 1 << 14
"""Enough to fill any GPU several times; the kernels step over the rest."""

_Steps = c_int64 * AXES


class LaunchConfig(ctypes.Structure):
    """``CUlaunchConfig``."""

    _fields_ = (
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("stream", c_void_p),
        ("attributes", c_void_p),
        ("count", c_uint),
    )


class FillArgs(ctypes.Structure):
    """``FillArgs`` of the kernels."""

    _fields_ = (
        ("out", c_void_p),
        ("count", c_int64),
        ("value", c_uint64 * 2),
        ("extent", _Steps),
        ("step", _Steps),
        ("axes", c_int),
    )


class CopyArgs(ctypes.Structure):
    """``CopyArgs`` of the kernels."""

    _fields_ = (
        ("src", c_void_p),
        ("out", c_void_p),
        ("count", c_int64),
        ("extent", _Steps),
        ("src_step", _Steps),
        ("out_step", _Steps),
        ("axes", c_int),
    )


class TransposeArgs(ctypes.Structure):
    """``TransposeArgs`` of the kernels."""

    _fields_ = (
        ("src", c_void_p),
        ("out", c_void_p),
        ("rows", c_int64),
        ("cols", c_int64),
        ("src_col", c_int64),
        ("out_row", c_int64),
        ("extent", _Steps),
        ("src_step", _Steps),
        ("out_step", _Steps),
        ("tiles", c_uint32),
        ("axes", c_int),
    )


def linear_grid(count: int) -> int:
    """Blocks of :data:`THREADS` for ``count`` items."""
    return max(1, min(-(-count // THREADS), MAX_BLOCKS))


def suffix(itemsize: int, count: int) -> str:
    """The kernel variant: ``"4"``, or ``"4_wide"`` if the count exceeds 32 bits (strides have 64 bits in both)."""
    return str(itemsize) if count < 1 << 32 else f"{itemsize}_wide"


def kernel_launcher(
    driver: Driver, function: int, grid: int, block: tuple[int, int], args: ctypes.Structure, shared: int = 0
) -> Callable[[int], None]:
    """A function that launches the kernel on a stream with the current contents of ``args``.

    The driver copies the arguments at the call, so the structure can be changed for the next one. ``shared``: bytes of
    shared memory in addition to the kernel's static shared memory, at most 48 KiB in all.
    """
    launch = driver.launch_kernel_ex  # of 4 arguments, where cuLaunchKernel has 11: ctypes takes a microsecond less
    config = LaunchConfig((c_uint * 3)(grid, 1, 1), (c_uint * 3)(*block, 1), shared)
    params = (c_void_p * 1)(ctypes.addressof(args))
    config_at, params_at, last = ctypes.addressof(config), ctypes.addressof(params), 0

    def run(stream: int) -> None:
        nonlocal last
        if stream != last:
            config.stream = last = stream
        code = launch(config_at, function, params_at, None)
        if code:
            raise driver.error(code, "cuLaunchKernelEx")

    run.keeps = args, params  # type: ignore[attr-defined] # config and params point into them
    return run
