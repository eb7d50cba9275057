"""``CudaMemory``: fills and copies on a GPU."""

import threading
from collections.abc import Callable
from ctypes import addressof, c_int, c_void_p
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from callboard.backends.cuda.axes import joint_axes
from callboard.backends.cuda.copies import Copier, copier, too_many_axes
from callboard.backends.cuda.fills import Filler, filler
from callboard.backends.cuda.rows import Transfer, transfer
from callboard.backends.cuda.stream import CudaStream
from callboard.core.backend import Memory
from callboard.core.dtype import DType
from callboard.core.layout import Layout, layout_of
from callboard.core.library import Library, launches, prepares
from callboard.core.operand import Operand
from callboard.kernel.memory import Copy, Download, Empty, Fill, Upload

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaMemory"]

Converter = Callable[[int, int], None]
"""``convert(stream, src)``: one element into the scratch slot."""


def refuse_fill(op: Fill) -> str | None:
    value, out = op.fill_value, op.out
    if isinstance(value, Operand) and value.dtype.is_complex and not out.dtype.is_complex:
        return f"fill_value is {value.layout!r} and out is {out.layout!r}; take its real part first"
    return too_many_axes(joint_axes(out.layout))


def refuse_copy(op: Copy) -> str | None:
    return too_many_axes(joint_axes(_out_of(op), op.src.strides))


def _out_of(op: Copy | Upload) -> Layout:
    return op.infer()["out"] if op.out is None else op.out.layout


class CudaMemory(Library):
    """Serves :mod:`callboard.kernel.memory` with memory sets, memory copies and kernels of our own."""

    name = "memory"
    lanes: ClassVar = {Download: "download"}
    device: "CudaDevice"

    def __init__(self, device: "CudaDevice", stream: CudaStream) -> None:
        super().__init__(device, stream)
        self._driver = device.driver
        self._scratch: Memory | None = None  # one converted element; its users follow each other on the one stream
        self._making = threading.Lock()  # plans are made on two threads

    def warm_up(self) -> None:
        self.device.kernels.get("memory", "copy_4")

    def close(self) -> None:
        if self._scratch is not None:
            self.device.release(self._scratch)
            self._scratch = None

    @launches(Empty)
    def empty(self, stream: CudaStream, plan: Empty, out: int) -> None:
        """Do nothing: the host has allocated it."""

    # -- fill ----------------------------------------------------------------------------------------------------------

    @prepares(Fill)
    def plan_fill(self, op: Fill) -> Callable[[int, int, Any], None]:
        if isinstance(op.fill_value, Operand):
            return self._plan_broadcast(op.fill_value.layout, op.out.layout)
        fill = filler(self._driver, self.device.kernels, op.out.layout)
        return _fill_with_number(fill, op.out.dtype)

    @launches(Fill, refuses=refuse_fill)
    def fill(self, stream: CudaStream, plan: Callable[[int, int, Any], None], out: int, fill_value: Any) -> None:
        plan(stream.native, out, fill_value)

    def _plan_broadcast(self, value: Layout, out: Layout) -> Callable[[int, int, Any], None]:
        element = layout_of(out.dtype, out.shape, (0,) * out.ndim)
        copy = copier(self._driver, self.device.kernels, element, out)
        if value.dtype is out.dtype:
            return lambda stream, out, value: copy(stream, value, out)
        return self._converting(copy, value.dtype, out.dtype)

    def _converting(self, copy: Copier, source: DType, target: DType) -> Callable[[int, int, Any], None]:
        with self._making:
            if self._scratch is None:
                self._scratch = self.device.allocate(16)
        scratch = self._scratch.address
        function = self.device.kernels.get("memory", "convert")
        driver = self._driver
        arguments = (c_void_p(), c_void_p(scratch), c_int(source.code), c_int(target.code))
        params = (c_void_p * 4)(*map(addressof, arguments))

        def fill(stream: int, out: int, value: int) -> None:
            arguments[0].value = value
            code = driver.launch_kernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, None)
            driver.check(code, "cuLaunchKernel")
            copy(stream, scratch, out)

        return fill

    # -- copies --------------------------------------------------------------------------------------------------------

    @prepares(Copy)
    def plan_copy(self, op: Copy) -> Copier:
        return copier(self._driver, self.device.kernels, op.src.layout, _out_of(op))

    @launches(Copy, refuses=refuse_copy)
    def copy(self, stream: CudaStream, plan: Copier, src: int, out: int) -> None:
        plan(stream.native, src, out)

    @prepares(Upload, inline=True)
    def plan_upload(self, op: Upload) -> Transfer:
        return transfer(self._driver, op.host.layout, _out_of(op), up=True)

    @launches(Upload)
    def upload(self, stream: CudaStream, plan: Transfer, host: int, out: int) -> None:
        plan(stream.native, host, out)

    @prepares(Download, inline=True)
    def plan_download(self, op: Download) -> Transfer:
        return transfer(self._driver, op.src.layout, op.host.layout, up=False)

    @launches(Download)
    def download(self, stream: CudaStream, plan: Transfer, src: int, host: int, after: int | None) -> None:
        plan(stream.native, src, host)


def _fill_with_number(fill: Filler, dtype: DType) -> Callable[[int, int, Any], None]:
    element = np.zeros(1, dtype.np)

    def run(stream: int, out: int, value: Any) -> None:
        with np.errstate(all="ignore"):  # as on a device: an overflow gives an infinity
            element[...] = np.asarray(value)  # of an integer, i64 or u64: not every dtype takes Python's
        fill(stream, out, element.tobytes())

    return run
