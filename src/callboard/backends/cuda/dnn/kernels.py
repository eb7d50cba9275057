"""Custom kernels of deep learning: texts of ``data/dnn_*.cu`` with their definitions, and their launches."""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_double, c_int64, c_uint32, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.kernels import data_text
from callboard.backends.cuda.launching import kernel_launcher
from callboard.backends.cuda.plans import Outcome
from callboard.core.dtype import DType
from callboard.core.errors import ShapeError
from callboard.core.layout import Layout
from callboard.kernel.dnn.operands import accumulator

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = [
    "STORED",
    "DividerArgs",
    "Launch",
    "aligned",
    "arguments",
    "divider_args",
    "faults",
    "kernel",
    "made",
    "types",
]

STORED = {"f16": "Half", "bf16": "Brain", "f32": "float", "f64": "double"}
"""The type of an element in the kernels."""

Launch = Callable[[int], None]
"""Enqueues a kernel on a native stream, with the current contents of its arguments."""


class DividerArgs(ctypes.Structure):
    """``Divider`` of ``data/dnn.cuh``."""

    _fields_ = (("divisor", c_uint32), ("factor", c_uint32), ("shift", c_uint32))


_FIELDS: dict[str, Any] = {"p": c_void_p, "i": c_int64, "d": c_double, "w": c_uint64, "v": DividerArgs}


def divider_args(divisor: int) -> DividerArgs:
    """Right for numbers below 2**31."""
    shift = (divisor - 1).bit_length()
    return DividerArgs(divisor, ((1 << 32) * ((1 << shift) - divisor)) // divisor + 1, shift)


def arguments(name: str, **fields: str) -> type[ctypes.Structure]:
    """A structure by the fields of each type: ``p`` addresses, ``i`` i64, ``w`` u64, ``d`` double, ``v`` dividers.

    Fields of one type are adjacent, in the order of the given types.
    """
    rows = [(field, _FIELDS[kind[0]]) for kind, names in fields.items() for field in names.split()]
    return type(name, (ctypes.Structure,), {"_fields_": tuple(rows)})


def types(dtype: DType, vec: int) -> dict[str, object]:
    """The type definitions required by ``dnn.cuh``."""
    return {"TYPE": STORED[dtype.name], "ACC": STORED[accumulator(dtype).name], "VEC": vec}


def kernel(
    device: "CudaDevice", source: str, defined: Mapping[str, object], name: str, args: Any, grid: int, block: int
) -> Launch:
    """A kernel of ``data/<source>.cu``, which may be compiled here.

    Args:
        device: The device.
        source: Name of the file, without its suffix.
        defined: Before its text; equal ones are compiled once.
        name: Name of the kernel.
        args: Arguments of the kernel; their contents at a launch apply.
        grid, block: Blocks, and threads of each.
    """
    before = "".join(f"#define {key} {value}\n" for key, value in defined.items())
    function = device.kernels.compile(source, before.encode() + data_text(f"{source}.cu"), name)
    return kernel_launcher(device.driver, function, grid, (block, 1), args)


def aligned(addresses: Sequence[int | None], masks: Sequence[int]) -> bool:
    """True if each address present is a multiple of its mask plus one."""
    return not any(address is not None and address & mask for address, mask in zip(addresses, masks, strict=True))


def made(op: Any, name: str = "out") -> Layout:
    """The layout of an output: of the given array, or of the one that the host makes."""
    given = getattr(op, name)
    layout: Layout = op.infer()[name] if given is None else given.layout
    return layout


def faults(device: "CudaDevice", says: Callable[[int, int], str]) -> Outcome:
    """Memory for out-of-range counts of kernels: ``u64`` the count, ``i64`` one of the values.

    Args:
        device: The device.
        says: The text of the error, from one of the values and their number.
    """

    def check(outcome: bytes) -> None:
        wrong = int.from_bytes(outcome[:8], "little")
        if wrong:
            raise ShapeError(says(int.from_bytes(outcome[8:16], "little", signed=True), wrong))

    return Outcome(device, 16, check)
