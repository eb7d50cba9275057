"""The kernels of ``data/sparse*.cu``: their arguments, and how they are launched."""

import ctypes
from collections.abc import Callable
from ctypes import c_double, c_int, c_int64, c_void_p
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.launching import THREADS, kernel_launcher, linear_grid
from callboard.core.operand import Operand

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = [
    "WARP",
    "BlockArgs",
    "Factor",
    "ListArgs",
    "OrderArgs",
    "ProductArgs",
    "RowArgs",
    "SparseArgs",
    "launcher",
    "scan_blocks",
]

WARP = 32
SCAN_THREADS = 1024
"""Threads of a block of the ``sums`` and ``scan`` kernels, and the most blocks that they have."""

SCAN_SHARE = 4096
"""Numbers for a block, if there are not too many."""


class SparseArgs(ctypes.Structure):
    """``SparseArgs`` of the kernels."""

    source = "sparse"
    _fields_ = (
        *((name, c_void_p) for name in ("src", "out", "first", "second", "first_out", "second_out")),
        *((name, c_void_p) for name in ("pointers", "count", "faults")),
        *((name, c_int64) for name in ("major", "minor", "entries", "room", "major_step", "minor_step")),
        *((name, c_int) for name in ("coordinates", "ordered", "least")),
    )


class BlockArgs(ctypes.Structure):
    """``BlockArgs`` of the kernels."""

    source = "sparse_blocks"
    _fields_ = (
        *((name, c_void_p) for name in ("src", "out", "first", "second", "indices", "pointers", "count", "faults")),
        *((name, c_int64) for name in ("lines", "width", "down", "across", "entries", "room", "most")),
        *((name, c_int64) for name in ("row_step", "col_step")),
        *((name, c_int) for name in ("ell", "lowest", "ordered", "least", "share")),
    )


class ListArgs(ctypes.Structure):
    """``ListArgs`` of the kernels."""

    source = "sparse_lists"
    _fields_ = (
        *((name, c_void_p) for name in ("src", "indices", "places", "pointers", "cols", "numbers")),
        *((name, c_void_p) for name in ("out", "first_out", "second_out", "count")),
        *((name, c_int64) for name in ("lines", "width", "down", "across", "each", "most")),
        *((name, c_int64) for name in ("blocks", "entries", "unit", "row_step", "col_step")),
        ("coordinates", c_int),
    )


class Factor(ctypes.Structure):
    """A factor of a product: an array's address, or a number."""

    _fields_ = (("at", c_void_p), ("re", c_double), ("im", c_double))

    @classmethod
    def setter(cls, declared: Any) -> "Callable[[Factor, Any], None]":
        """A function that sets one from its launch argument; ``declared`` is the message's."""
        if isinstance(declared, Operand):
            return lambda factor, address: setattr(factor, "at", address)
        return _set_number


def _set_number(factor: Factor, value: complex) -> None:
    factor.re, factor.im = value.real, value.imag


class ProductArgs(ctypes.Structure):
    """``ProductArgs`` of the kernels."""

    source = "sparse_products"
    _fields_ = (
        *((name, c_void_p) for name in ("values", "indices", "pointers", "a", "b", "out")),
        ("alpha", Factor),
        ("beta", Factor),
        *((name, c_int64) for name in ("lines", "down", "across", "most", "entries", "cols", "terms")),
        *((name, c_int64) for name in ("a_row", "a_col", "b_row", "b_col", "out_row", "out_col")),
        ("ell", c_int),
    )


class RowArgs(ctypes.Structure):
    """``RowArgs`` of the kernels."""

    source = "sparse_rows"
    _fields_ = (
        *((name, c_void_p) for name in ("values", "indices", "pointers", "x", "out", "rows", "sums")),
        ("alpha", Factor),
        ("beta", Factor),
        *((name, c_int64) for name in ("lines", "entries", "blocks")),
    )


class OrderArgs(ctypes.Structure):
    """``OrderArgs`` of the kernels."""

    source = "sparse_order"
    _fields_ = (
        *((name, c_void_p) for name in ("src", "out", "major", "minor", "order", "places")),
        *((name, c_void_p) for name in ("first_out", "second_out", "second")),
        *((name, c_int64) for name in ("entries", "lines", "room")),
        ("coordinates", c_int),
    )


Args = SparseArgs | BlockArgs | ListArgs | ProductArgs | OrderArgs


def scan_blocks(items: int) -> int:
    """Return the blocks that sum up ``items`` numbers."""
    return max(1, min(-(-items // SCAN_SHARE), SCAN_THREADS))


def launcher(
    device: "CudaDevice", name: str, items: int, args: Args, *, part: str = "", each: int = 1
) -> Callable[[int], None]:
    """Return a function that launches a kernel for ``items`` items on a stream; may compile now.

    Args:
        device: The device.
        name: Name of the kernel in the source of the arguments' class.
        items: The number of items.
        args: Arguments of the launches; their contents at each launch apply.
        part: Part of the source, if that is compiled in parts.
        each: Threads for an item.
    """
    source = f"{args.source}-{part}" if part else args.source
    grid, threads = linear_grid(items * each), THREADS
    if name.startswith(("sums", "scan")):
        grid, threads = scan_blocks(items), SCAN_THREADS
    return kernel_launcher(device.driver, device.kernels.get(source, name), grid, (threads, 1), args)
