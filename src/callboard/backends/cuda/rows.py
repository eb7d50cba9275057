"""Transfers of rows between host and device, worked out once per pair of layouts."""

import ctypes
from collections.abc import Callable

from callboard.backends.cuda.driver import MEMORY_DEVICE, MEMORY_HOST, Driver, Memcpy2D, Memcpy3D
from callboard.core.layout import Layout, rows_of

__all__ = ["Transfer", "transfer"]

Transfer = Callable[[int, int, int], None]
"""``copy(stream, src, out)``: enqueue it; addresses of element 0."""


def transfer(driver: Driver, src: Layout, out: Layout, *, up: bool) -> Transfer:
    """Return the function that copies ``src`` to ``out``; :func:`rows_of` must have accepted them as one transfer.

    Args:
        driver: The CUDA driver API.
        src, out: Layouts of one dtype and shape.
        up: Copy from the host to the device; else from the device to the host.
    """
    rows = rows_of(src, out)
    assert rows is not None, "the message has refused it"
    if not rows.width:
        return lambda stream, src, out: None
    if rows.height == 1 and rows.depth == 1:
        return _flat(driver, rows.width, up)
    kinds = (MEMORY_HOST, MEMORY_DEVICE) if up else (MEMORY_DEVICE, MEMORY_HOST)
    if rows.depth == 1:
        plane = Memcpy2D(
            src_type=kinds[0],
            dst_type=kinds[1],
            src_pitch=rows.src_pitch,
            dst_pitch=rows.out_pitch,
            width=rows.width,
            height=rows.height,
        )
        return _pitched(driver, plane, driver.memcpy_2d, "cuMemcpy2DAsync", up)
    box = Memcpy3D(
        src_type=kinds[0],
        dst_type=kinds[1],
        src_pitch=rows.src_pitch,
        src_height=rows.src_rows,
        dst_pitch=rows.out_pitch,
        dst_height=rows.out_rows,
        width=rows.width,
        height=rows.height,
        depth=rows.depth,
    )
    return _pitched(driver, box, driver.memcpy_3d, "cuMemcpy3DAsync", up)


def _flat(driver: Driver, nbytes: int, up: bool) -> Transfer:
    memcpy, name = (driver.memcpy_htod, "cuMemcpyHtoDAsync") if up else (driver.memcpy_dtoh, "cuMemcpyDtoHAsync")

    def copy(stream: int, src: int, out: int) -> None:
        code = memcpy(out, src, nbytes, stream)
        if code:
            raise driver.error(code, name)

    return copy


def _pitched(driver: Driver, what: Memcpy2D | Memcpy3D, memcpy: Callable[..., int], name: str, up: bool) -> Transfer:
    where = ctypes.addressof(what)

    def copy(stream: int, src: int, out: int) -> None:
        if up:
            what.src_host, what.dst_device = src, out
        else:
            what.src_device, what.dst_host = src, out
        code = memcpy(where, stream)
        if code:
            raise driver.error(code, name)

    return copy
