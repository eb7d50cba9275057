"""Plans of reductions: at most two kernels, the second of which combines the partial results of the first."""

import ctypes
import math
from collections.abc import Callable, Sequence
from ctypes import c_void_p
from typing import TYPE_CHECKING, Any, NamedTuple

from callboard.backends.cuda.elementwise.arguments import arguments_class, put_number
from callboard.backends.cuda.elementwise.axes import Walk, walk_of
from callboard.backends.cuda.elementwise.reduction_text import reduce_fields, reduce_text
from callboard.backends.cuda.elementwise.shape import THREADS, Shape, power, shape_of
from callboard.backends.cuda.elementwise.walking import put_walk
from callboard.core.dtype import DType
from callboard.core.layout import Layout
from callboard.core.library import plans
from callboard.kernel.elementwise import Reduce
from callboard.kernel.elementwise.map import shape_of_operands
from callboard.kernel.elementwise.reduce import axes_of, reduction_of
from callboard.kernel.elementwise.reduction import Reduction
from callboard.kernel.elementwise.shapes import spread

if TYPE_CHECKING:
    from callboard.backends.cuda.stream import CudaStream
    from callboard.backends.cuda.workspace import HasWorkspace, Room

__all__ = ["reduce"]


class Operands(NamedTuple):
    """The arrays of a reduction.

    Attributes:
        dtypes: The dtypes of the operands, then of the result.
        kept, reduced: Extents of the axes that the result has, and of the others.
        kept_steps: Steps of every array along the kept axes.
        reduced_steps: Steps of the operands along the reduced axes.
    """

    dtypes: tuple[DType, ...]
    kept: tuple[int, ...]
    reduced: tuple[int, ...]
    kept_steps: tuple[tuple[int, ...], ...]
    reduced_steps: tuple[tuple[int, ...], ...]

    @property
    def largest(self) -> int:
        """Return the operand whose memory order decides the order of elements: the one with most of them."""
        own = [
            sum((n - 1) * abs(s) for n, s in zip((*self.kept, *self.reduced), (*k, *r), strict=True)) * d.itemsize
            for k, r, d in zip(self.kept_steps, self.reduced_steps, self.dtypes, strict=False)
        ]
        return own.index(max(own))


def operands_of(op: Reduce, out: Layout) -> Operands:
    """The arrays of a message, by axes that are kept and axes that are reduced."""
    shape = shape_of_operands(op)
    axes = axes_of(op, len(shape))
    rest = [axis for axis in range(len(shape)) if axis not in axes]
    steps = [spread(operand.layout, shape) for operand in op.operands]
    result = [out.strides[axis] for axis in rest] if out.ndim == len(shape) else out.strides
    return Operands(
        (*(operand.dtype for operand in op.operands), out.dtype),
        tuple(shape[axis] for axis in rest),
        tuple(shape[axis] for axis in axes),
        (*(tuple(step[axis] for axis in rest) for step in steps), tuple(result)),
        tuple(tuple(step[axis] for axis in axes) for step in steps),
    )


class ReduceKernel:
    """The kernels for one way to walk the arrays, and their arguments."""

    def __init__(self, library: "HasWorkspace", reduction: Reduction, arrays: Operands, packed: bool) -> None:
        device = library.device
        self._driver = device.driver
        count = len(arrays.reduced_steps)
        terms = math.prod(arrays.reduced)
        sizes = [dtype.itemsize for dtype in arrays.dtypes]
        first = arrays.largest
        self.kept = walk_of(arrays.kept, arrays.kept_steps, sizes, first, packed=False)
        self.inner = _inner(reduction, arrays, sizes, first, packed)
        along = math.prod(arrays.kept) == 1 or _nearer(self.inner, self.kept, first)
        if not along and self.inner.pack > 1:
            self.inner = _inner(reduction, arrays, sizes, first, packed=False)
        outputs = self.kept.packs
        packs = self.inner.packs if terms else 0
        self.shape: Shape = shape_of(outputs, packs, along)
        names = tuple(f"x{i}" for i in range(count))
        args: Any = arguments_class(reduce_fields(reduction, count, self.kept, self.inner))()
        args.outputs, args.packs, args.share = outputs, packs, self.shape.share
        args.first = packs * self.inner.pack
        args.terms = terms
        args.lanes, args.splits = self.shape.lanes, self.shape.splits
        args.end_lanes = power(min(THREADS, self.shape.splits))
        put_walk(args, self.kept, (*names, "y0"), "k_")
        put_walk(args, self.inner, names, "r_")
        self.args = args
        text = reduce_text(reduction, arrays.dtypes, self.kept, self.inner, along).encode()
        self._function = device.kernels.compile("elementwise", text, "reduce")
        self._end = device.kernels.compile("elementwise", text, "reduce_end")
        each, finish = reduction.each, reduction.finish
        self._put = [
            *(put_number(f"n{i}", each.steps[at].dtype) for i, at in enumerate(each.numbers)),
            *(put_number(f"m{i}", finish.steps[at].dtype) for i, at in enumerate(finish.numbers)),
        ]
        self._names = (*names, "y0")
        self._params = (c_void_p * 1)(ctypes.addressof(args))
        self._grid = self.shape.blocks(outputs)
        self._end_grid = -(-outputs // (THREADS // args.end_lanes))
        item = 16 if reduction.function.startswith("arg") else max(reduction.accumulator.itemsize, 4)
        self.parts = outputs * self.shape.splits * item if self.shape.splits > 1 else 0

    def aligned(self, arrays: Operands) -> list[tuple[int, int]]:
        """Return the operands that are loaded in packs, and the bits of an address that must be 0."""
        inner = self.inner
        return [
            (i, min(16, dtype.itemsize * inner.pack) - 1)
            for i, (dtype, repeated) in enumerate(zip(arrays.dtypes, inner.repeated, strict=False))
            if inner.pack > 1 and not repeated
        ]

    def __call__(self, stream: int, addresses: Sequence[int], numbers: Sequence[Any]) -> None:
        """Enqueue it."""
        args = self.args
        for name, address in zip(self._names, addresses, strict=True):
            setattr(args, name, address)
        for put, number in zip(self._put, numbers, strict=True):
            put(args, number)
        self._launch(self._function, self._grid, self.shape.splits, stream)
        if self.shape.splits > 1:
            self._launch(self._end, self._end_grid, 1, stream)

    def _launch(self, function: int, x: int, y: int, stream: int) -> None:
        code = self._driver.launch_kernel(function, x, y, 1, THREADS, 1, 1, 0, stream, self._params, None)
        if code:
            raise self._driver.error(code, "cuLaunchKernel")


def _inner(reduction: Reduction, arrays: Operands, sizes: Sequence[int], first: int, packed: bool) -> Walk:
    extents = [n or 1 for n in arrays.reduced]  # of no terms there is nothing to walk
    ordered = reduction.function.startswith("arg")
    count = len(arrays.reduced_steps)
    beside = arrays.kept_steps[:count]
    return walk_of(extents, arrays.reduced_steps, sizes[:count], first, packed, ordered, beside)


def _nearer(inner: Walk, kept: Walk, first: int) -> bool:
    """True if neighbours in memory are terms of one result."""
    term, result = abs(inner.steps[first][-1]) // inner.pack, abs(kept.steps[first][-1])
    return result == 0 or 0 < term < result


class ReducePlan:
    """A reduction over arrays of these layouts: by packs if the addresses of a call allow it."""

    def __init__(self, library: "HasWorkspace", op: Reduce, out: Layout) -> None:
        self._library = library
        self._reduction = reduction = reduction_of(op)
        arrays = operands_of(op, out)
        self._count = float(math.prod(arrays.reduced))
        self._packed = self._single = ReduceKernel(library, reduction, arrays, packed=True)
        self._aligned = self._packed.aligned(arrays)
        if self._aligned:
            self._single = ReduceKernel(library, reduction, arrays, packed=False)
        parts = max(self._packed.parts, self._single.parts)
        self._room: Room | None = library.workspace.lease(parts) if parts else None
        if self._room is not None:
            self._packed.args.parts = self._single.args.parts = self._room.memory.address

    def __call__(self, stream: "CudaStream", operands: Sequence[int], scalars: Sequence[Any] | None, out: int) -> None:
        """Enqueue it; addresses of element 0 of each array."""
        reduction = self._reduction
        numbers = [
            *reduction.each.values(scalars),
            *reduction.finish.values((*(scalars or ()), self._count)),
        ]
        apart = any(operands[i] & mask for i, mask in self._aligned)
        (self._single if apart else self._packed)(stream.native, (*operands, out), numbers)

    def close(self) -> None:
        """Free its share of the workspace; its work is done."""
        if self._room is not None:
            self._library.workspace.leave(self._room)
            self._room = None


@plans(Reduce)
def reduce(library: "HasWorkspace", op: Reduce) -> Callable[..., None]:
    """Called with ``(stream, operands, scalars, out)``."""
    out = op.infer()["out"] if op.out is None else op.out.layout
    if out.size == 0:
        return lambda stream, operands, scalars, out: None
    return ReducePlan(library, op, out)
