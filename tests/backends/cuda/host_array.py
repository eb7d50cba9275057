"""The kernels of ``data/array*.cu``, from their argument structures, on host memory."""

import re
from typing import Any

import numpy as np

from callboard.backends.cuda.array.arguments import PickArgs, RangeArgs
from callboard.backends.cuda.launching import CopyArgs
from callboard.core.dtype import BY_CODE, DTYPES


def cast(array_at: Any, kind: str, address: int) -> None:
    args = CopyArgs.from_address(address)
    source, target = (_dtype(name) for name in re.findall(r"=(\w+)", kind))
    n = args.axes
    shape = tuple(args.extent[:n])
    out = array_at(args.out, target, shape, tuple(args.out_step[:n]))
    assert out.size == args.count
    out[...] = array_at(args.src, source, shape, tuple(args.src_step[:n])).astype(target)


def _dtype(name: str) -> "np.dtype[Any]":
    small = {"e4m3": "f8_e4m3", "e5m2": "f8_e5m2", "e2m1": "f4_e2m1"}
    return DTYPES[small.get(name.lower(), name.lower())].np


def arange(array_at: Any, address: int) -> None:
    args = RangeArgs.from_address(address)
    dtype = BY_CODE[args.type]
    if dtype.is_integer:
        numbers = np.arange(args.count, dtype=np.uint64) * np.uint64(args.whole_step) + np.uint64(args.whole_start)
    else:
        numbers = complex(*args.start) + np.arange(args.count) * complex(*args.step)
        numbers = numbers if dtype.is_complex else numbers.real
    array_at(args.out, dtype.np, (args.count,), (args.out_step,))[...] = numbers.astype(dtype.np)


def pick(array_at: Any, kind: str, address: int, work: str) -> None:
    args = PickArgs.from_address(address)
    fault = array_at(args.fault, np.int64, (3,), (1,))
    if work == "scatter" and fault[0]:
        return
    n = args.axes
    shape = tuple(args.extent[:n])
    assert int(np.prod(shape, dtype=np.int64)) == args.count
    walk = np.indices(shape).reshape(n, -1) if n else np.zeros((0, 1), int)
    source = np.array(args.src_step[:n], int) @ walk
    target = np.array(args.out_step[:n], int) @ walk
    inside = np.ones(args.count, bool)
    for p in range(args.picks):
        dtype = BY_CODE[args.kind[p]]
        index = array_at(args.index[p], dtype.np, shape, tuple(args.index_step[p][:n])).reshape(-1).astype(object)
        at = np.where(index < 0, index + args.limit[p], index)
        wrong = (at < 0) | (at >= args.limit[p])
        if wrong.any():
            fault[1:] = index[wrong][0] - (2**64 if index[wrong][0] >= 2**63 else 0), p
            fault[0] += int(wrong.sum())
        inside &= ~wrong.astype(bool)
        moved = target if work == "scatter" else source
        moved += (np.where(wrong, 0, at) * args.step[p]).astype(int)
    if work == "within":
        return
    item = int(kind.removesuffix("_wide"))
    for a, b in zip(source[inside], target[inside], strict=True):
        value = array_at(args.src + int(a) * item, f"V{item}", (1,), (1,))
        array_at(args.out + int(b) * item, f"V{item}", (1,), (1,))[...] = value
