"""The kernels of ``data/tensor_*.cu``, from their argument structures, on host memory.

Everything is computed in f64, complex128 or integers that wrap around; what is shown is where they read and write.
"""

from typing import Any

import numpy as np

from callboard.backends.cuda.tensor.arguments import (
    BELOW,
    IRREGULAR,
    PACK,
    PACKS,
    SAME_A,
    SAME_C,
    ElementArgs,
    ReduceArgs,
)
from callboard.core.dtype import DTYPES
from callboard.kernel.tensor.operators import BINARY, UNARY

JOINS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
FUNCTIONS = {
    "identity": lambda x: x,
    "conj": np.conj,
    "neg": np.negative,
    "abs": np.abs,
    "relu": lambda x: np.maximum(x, 0),
    "sqrt": np.sqrt,
    "exp": np.exp,
    "tanh": np.tanh,
}


class Reader:
    """Arrays at the addresses of one launch."""

    def __init__(self, driver: Any, array_at: Any, name: str) -> None:
        self.dtype = DTYPES[name].np
        half = name in ("f16", "bf16")
        self.scale = np.dtype("f4") if half else self.dtype
        self.wide: Any = (
            np.complex128 if self.dtype.kind == "c" else self.dtype if self.dtype.kind == "i" else np.float64
        )
        self._driver = driver
        self._array_at = array_at

    def factor(self, cell: Any) -> Any:
        if cell.at:
            assert self._driver.on_device(cell.at)
            return self._array_at(cell.at, self.scale, (1,), (1,)).astype(self.wide)[0]
        number = complex(cell.re, cell.im)
        return self.wide(number) if self.wide is np.complex128 else np.dtype(self.wide).type(number.real)

    def array(self, address: int, extents: Any, steps: Any) -> Any:
        return self._array_at(address, self.dtype, tuple(extents), tuple(steps))

    def term(self, address: int, extents: Any, steps: Any, factor: Any, operator: int) -> Any:
        """``factor * operator(array)``; 0, unread, where the factor is 0."""
        if factor == 0:
            return np.zeros(tuple(extents), self.wide)
        return factor * FUNCTIONS[UNARY[operator]](self.array(address, extents, steps).astype(self.wide))


def elementwise(reader: Reader, address: int) -> None:
    p = ElementArgs.from_address(address)
    extents = p.extent[: p.axes]
    assert p.count == int(np.prod(extents))
    if p.regular != IRREGULAR:
        _check_regular(p, PACK // reader.dtype.itemsize)
    value = reader.term(p.a, extents, p.a_step[: p.axes], reader.factor(p.alpha), p.op_a)
    if p.has_b:
        second = reader.term(p.b, extents, p.b_step[: p.axes], reader.factor(p.beta), p.op_b)
        value = JOINS[BINARY[p.op_ab]](value, second)
    if p.has_c:
        third = reader.term(p.c, extents, p.c_step[: p.axes], reader.factor(p.gamma), p.op_c)
        value = JOINS[BINARY[p.op_abc]](value, third)
    reader.array(p.out, extents, p.out_step[: p.axes])[...] = value


def _check_regular(p: ElementArgs, pack: int) -> None:
    """What the kernel takes for granted."""
    *rows, row = p.extent[: p.axes]
    same = {PACKS: "", SAME_A: "a", SAME_C: "c"}[p.regular]
    assert row % pack == 0
    for name in ("out", "a", "c"):
        *steps, step = getattr(p, f"{name}_step")[: p.axes]
        assert step == (0 if name == same else 1)
        assert name == same or all(n % pack == 0 for n in steps)
    assert (p.op_a, p.op_c, p.has_b) == (0, 0, 0)
    if same:
        assert BINARY[p.op_abc] in ("add", "mul")
        assert p.groups == int(np.prod(rows[:-1])) * -(-rows[-1] // BELOW) * (row // pack)


def reduce(reader: Reader, address: int, *, end: bool) -> None:
    """All parts at once; the launch that ends a divided reduction finds its result in the first part."""
    p = ReduceArgs.from_address(address)
    extents = p.extent[: p.axes]
    parts = None
    if p.splits > 1:
        assert reader._driver.on_device(p.parts, p.splits * p.outputs * np.dtype(reader.scale).itemsize)
        parts = reader._array_at(p.parts, reader.scale, (p.outputs,), (1,))
    if end:
        assert parts is not None
        total = parts.astype(reader.wide).reshape(extents)
    else:
        inner = p.inner[: p.inner_axes]
        assert p.terms == 0 or p.terms == int(np.prod(inner))
        inner = inner if p.terms else [0]
        shape = (*extents, *inner)
        steps = [(*getattr(p, f"{x}_step")[: p.axes], *(getattr(p, f"{x}_inner")[: len(inner)])) for x in "ab"]
        value = reader.term(p.a, shape, steps[0], 1, p.op_a)
        if p.has_b:
            value = value * reader.term(p.b, shape, steps[1], 1, p.op_b)
        axes = tuple(range(len(extents), len(shape)))
        total = JOINS[BINARY[p.op_reduce]].reduce(value, axis=axes, dtype=reader.wide)
        if parts is not None:
            parts[...] = np.ravel(total)
            return
    alpha = reader.factor(p.alpha)
    value = alpha * total if alpha != 0 else np.zeros(tuple(extents), reader.wide)
    if p.has_c:
        value = value + reader.term(p.c, extents, p.c_step[: p.axes], reader.factor(p.beta), p.op_c)
    reader.array(p.out, extents, p.out_step[: p.axes])[...] = value
