"""Fills whose every element is made of a fixed number of words."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.rng.arguments import Fill, FillArgs, Plan, Words, launcher
from callboard.backends.cuda.rng.sobol import SobolTables
from callboard.core.dtype import DType
from callboard.kernel.rng import (
    RngFillBits,
    RngFillCauchy,
    RngFillExponential,
    RngFillLogNormal,
    RngFillNormal,
    RngFillUniform,
)
from callboard.kernel.rng.fill import Fill as FillOp
from callboard.kernel.rng.ranges import uniform_range
from callboard.kernel.rng.streams import COUNTER_BASED, KINDS, words_per_element

if TYPE_CHECKING:
    from callboard.backends.cuda.rng.curand import Curand
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["transform"]

NAMES: dict[type[FillOp], str] = {
    RngFillUniform: "uniform",
    RngFillNormal: "normal",
    RngFillLogNormal: "log_normal",
    RngFillExponential: "exponential",
    RngFillCauchy: "cauchy",
}
WORDS = {"philox": 4, "philox64": 8}
"""Of a block, all of which one thread makes."""


def transform(plan: Plan, op: FillOp, curand: "Callable[[str], Curand]", sobol: SobolTables) -> None:
    """Set ``plan.fill``.

    Args:
        plan: Of the layout of ``op.out``.
        op: With a placeholder.
        curand: The generator of a kind.
        sobol: Tables of points.
    """
    if op.out.size == 0:
        return
    args = FillArgs(count=op.out.size)
    set_numbers = _numbers(type(op), op.out.dtype, args)
    if op.kind in COUNTER_BASED:
        plan.fill = _fused(plan, op, args, set_numbers)
        return
    words = _words(plan, op, curand, sobol)
    if isinstance(op, RngFillBits):
        plan.fill = words
        return
    itemsize = 4 * words_per_element(op.out.dtype)
    apart = plan.allocate(itemsize * op.out.size) if itemsize != op.out.dtype.itemsize else 0
    run = launcher(plan.device, "rng", f"turn_{NAMES[type(op)]}_{op.out.dtype.name}", op.out.size, args)

    def fill(stream: "CudaStream", out: int, seed: int, position: int, *numbers: Any) -> None:
        place = apart or out  # where words and elements have one size, words become elements where they lie
        words(stream, place, seed, position)
        args.out, args.words = out, place
        set_numbers(*numbers)
        run(stream.native)

    plan.fill = fill


def _fused(plan: Plan, op: FillOp, args: FillArgs, set_numbers: Callable[..., None]) -> Fill:
    """Philox: words are never written to memory."""
    dtype = op.out.dtype
    name = f"bits_{dtype.itemsize}" if isinstance(op, RngFillBits) else f"{NAMES[type(op)]}_{dtype.name}"
    groups = op.out.size * words_per_element(dtype) // WORDS[op.kind] + 2
    run = launcher(plan.device, "rng", f"{op.kind}_{name}", groups, args)

    def fill(stream: "CudaStream", out: int, seed: int, position: int, *numbers: Any) -> None:
        args.out, args.seed, args.position = out, seed, position
        set_numbers(*numbers)
        run(stream.native)

    return fill


def _words(plan: Plan, op: FillOp, curand: "Callable[[str], Curand]", sobol: SobolTables) -> Words:
    if KINDS[op.kind].quasi:
        return sobol.words(plan, op.kind, op.out.layout)
    generator = curand(op.kind)
    count = op.out.size * words_per_element(op.out.dtype)
    return lambda stream, out, seed, position: generator.words(stream, out, seed, position, count)


def _numbers(op: type[FillOp], dtype: DType, args: FillArgs) -> Callable[..., None]:
    """How the numbers of a message become those of a kernel."""

    def uniform(low: float, high: float) -> None:
        args.a, args.b, args.top = uniform_range(low, high, dtype)

    def exponential(rate: float) -> None:
        args.a = 1.0 / rate

    def two(a: float, b: float) -> None:
        args.a, args.b = a, b

    if op is RngFillUniform:
        return uniform
    if op is RngFillExponential:
        return exponential
    return _none if op is RngFillBits else two


def _none() -> None:
    """Bits have no parameters."""
