"""Binary searches and histograms, by custom kernels.

NumPy's order of NaN, histograms of ranges and of several channels are not in ``cuda.compute`` 1.2.
"""

from typing import Any

from callboard.backends.cuda.cub.arguments import CubArgs, element_kernel
from callboard.backends.cuda.cub.cccl import Cccl
from callboard.backends.cuda.cub.plan import result_layout
from callboard.backends.cuda.launching import linear_grid
from callboard.backends.cuda.plans import PlanMemory, Work
from callboard.core.errors import ShapeError
from callboard.core.library import plans
from callboard.kernel import cub

__all__ = ["bound", "histogram"]

SHARED = 48 << 10
"""Bytes of counters that a block can have."""
COUNTING_BLOCKS = 132 * 8
"""Enough to fill a GPU: each block adds its counters to the result."""


@plans(cub.LowerBound, cub.UpperBound)
def bound(cccl: Cccl, op: "cub.LowerBound | cub.UpperBound") -> Work:
    """A plan: ``(x, values, out)``."""
    memory, values, out = PlanMemory(cccl), op.values.layout, result_layout(op)
    line, bring, delivery = memory.brought(op.x.layout), memory.brought(values), memory.delivered(out)
    args = CubArgs(n=op.x.layout.size, m=values.size)
    name = "lower" if isinstance(op, cub.LowerBound) else "upper"
    run = element_kernel(cccl.device, name, values.dtype, args, linear_grid(values.size))

    def enqueue(native: int, x: int, at: int, result: int) -> None:
        if not args.m:
            return
        args.a, args.b, args.out = line(native, x), bring(native, at), delivery.target(result)
        run(native)
        delivery.finish(native, result)

    return memory.work(enqueue)


@plans(cub.HistogramEven, cub.HistogramRange)
def histogram(cccl: Cccl, op: "cub.HistogramEven | cub.HistogramRange") -> Work:
    """A plan: ``(x, lower, upper, out)`` or ``(x, levels, out)``."""
    memory, x, out = PlanMemory(cccl), op.x.layout, result_layout(op)
    bring, delivery = memory.brought(x), memory.delivered(out)
    even, bins = isinstance(op, cub.HistogramEven), out.shape[-1]
    args = CubArgs(n=x.size, m=op.channels or 1, bins=bins, k=1 if op.channels is None else x.shape[-1])
    counters = 4 * args.m * bins
    args.shared = counters <= SHARED
    grid = min(linear_grid(x.size), COUNTING_BLOCKS)
    count = element_kernel(
        cccl.device, "even" if even else "ranged", x.dtype, args, grid, counters if args.shared else 0
    )
    levels_of = None if isinstance(op, cub.HistogramEven) else memory.brought(op.levels.layout)
    driver, nbytes, tag = cccl.driver, out.nbytes, type(op).__struct_config__.tag

    def enqueue(native: int, at: int, *rest: Any) -> None:
        result = rest[-1]
        if levels_of is None:
            lower, upper = (float(value) for value in rest[:2])
            if not (abs(lower) < float("inf") and abs(upper) < float("inf") and lower < upper):
                raise ShapeError(f"{tag}: lower is {lower} and upper {upper}; they must be finite, the lower one less")
            args.lower, args.upper, args.scale = lower, upper, bins / (upper - lower)
        else:
            args.b = levels_of(native, rest[0])
        args.out = delivery.target(result)
        driver.check(driver.memset_8(args.out, 0, nbytes, native), "cuMemsetD8Async")
        if args.n:
            args.a = bring(native, at)
            count(native)
        delivery.finish(native, result)

    return memory.work(enqueue)
