"""Fills whose every element is made of a fixed number of words."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.rng.arguments import Fill, FillArgs, FillPlan, Words, launcher
from callboard.backends.cuda.rng.philox import philox
from callboard.backends.cuda.rng.sobol import SobolTables
from callboard.backends.cuda.rng.xorwow import Xorwow
from callboard.core.dtype import DType
from callboard.kernel.rng import (
    RngFillBits,
    RngFillExponential,
    RngFillUniform,
)
from callboard.kernel.rng.fill import Fill as FillOp
from callboard.kernel.rng.ranges import uniform_range
from callboard.kernel.rng.streams import COUNTER_BASED, KINDS, words_per_element

if TYPE_CHECKING:
    from callboard.backends.cuda.rng.curand import Curand
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["transform"]

SOURCES = {"f16": "rng_f16", "bf16": "rng_bf16", "f32": "rng_f32", "f64": "rng_f64"}
"""Files of kernels, listed explicitly: their contents are covered by the proof on hardware."""


def transform(
    plan: FillPlan, op: FillOp, curand: "Callable[[str, str], Curand]", sobol: SobolTables, xorwow: Xorwow
) -> None:
    """Set ``plan.fill``, and ``plan.reach`` for a generator that cannot skip.

    Args:
        plan: Plan for the layout of ``op.out``.
        op: The message, with a placeholder.
        curand: The generator of a kind and an order.
        sobol: Tables of points.
        xorwow: Lanes of the XORWOW generator.
    """
    if op.out.size == 0:
        return
    args = FillArgs(count=op.out.size)
    set_numbers = _numbers(type(op), op.out.dtype, args)
    if op.kind in COUNTER_BASED:
        plan.fill = _fused(plan, op, args, set_numbers)
        return
    if op.kind == "xorwow":
        plan.fill = _abreast(xorwow, op, args, set_numbers)
        return
    words = _words(plan, op, curand, sobol)
    if isinstance(op, RngFillBits):
        plan.fill = words
        return
    itemsize = 4 * words_per_element(op.out.dtype)
    apart = plan.allocate(itemsize * op.out.size) if itemsize != op.out.dtype.itemsize else 0
    run = launcher(plan.device, SOURCES[op.out.dtype.name], f"turn_{_name(op)}", op.out.size, args)

    def fill(stream: "CudaStream", out: int, seed: int, position: int, *numbers: Any) -> None:
        place = apart or out  # if words and elements have one size, words become elements in place
        words(stream, place, seed, position)
        args.out, args.words = out, place
        set_numbers(*numbers)
        run(stream.native)

    plan.fill = fill


def _fused(plan: FillPlan, op: FillOp, args: FillArgs, set_numbers: Callable[..., None]) -> Fill:
    """Philox: words are never written to memory."""
    dtype, step = op.out.dtype, words_per_element(op.out.dtype)
    if isinstance(op, RngFillBits):
        return philox(plan.device, op.kind, "rng_words", f"bits_{dtype.itemsize}", step, dtype.itemsize, args)
    source = SOURCES[dtype.name]
    run = philox(plan.device, op.kind, source, _name(op), step, dtype.itemsize, args)
    if not isinstance(op, RngFillUniform):

        def fill(stream: "CudaStream", out: int, seed: int, position: int, *numbers: float) -> None:
            set_numbers(*numbers)
            run(stream, out, seed, position)

        return fill
    unit = philox(plan.device, op.kind, source, "unit", step, dtype.itemsize, args)

    def uniform(stream: "CudaStream", out: int, seed: int, position: int, low: float, high: float) -> None:
        if (low, high) == (0.0, 1.0):
            unit(stream, out, seed, position)
        else:
            set_numbers(low, high)
            run(stream, out, seed, position)

    return uniform


def _abreast(xorwow: Xorwow, op: FillOp, args: FillArgs, set_numbers: Callable[..., None]) -> Fill:
    """XORWOW: likewise."""
    bits, dtype = isinstance(op, RngFillBits), op.out.dtype
    source = "rng_words" if bits else SOURCES[dtype.name]
    name = f"bits_{dtype.itemsize}" if bits else _name(op)
    run = xorwow.fill(source, name, words_per_element(dtype), args, seeded=op.ordering == "seeded")

    def fill(stream: "CudaStream", out: int, seed: int, position: int, *numbers: float) -> None:
        set_numbers(*numbers)
        run(stream, out, seed, position)

    return fill


def _words(plan: FillPlan, op: FillOp, curand: "Callable[[str, str], Curand]", sobol: SobolTables) -> Words:
    if KINDS[op.kind].quasi:
        return sobol.words(plan, op.kind, op.out.layout)
    generator = curand(op.kind, op.ordering)
    plan.captures = False
    plan.reach = generator.reach
    count = op.out.size * words_per_element(op.out.dtype)
    return lambda stream, out, seed, position: generator.words(stream, out, seed, position, count)


def _numbers(op: type[FillOp], dtype: DType, args: FillArgs) -> Callable[..., None]:
    """Return the function that converts the numbers of a message to those of a kernel."""

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


def _name(op: FillOp) -> str:
    """What the kernels call it."""
    return op.tag().removeprefix("rng.fill_")


def _none() -> None:
    """Bits have no parameters."""
