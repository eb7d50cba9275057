"""Results that are scaled and added to an array: gradients that accumulate."""

import math
from typing import Any, ClassVar, Self

import msgspec

from callboard.core.layout import Layout
from callboard.core.op import Op, Outputs, info_of
from callboard.core.operand import In, Placeholder
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.dnn.actor import CudnnActor
from callboard.kernel.dnn.operands import accumulator
from callboard.kernel.elementwise.program import Program, compiled

__all__ = ["accumulation_of", "is_accumulated", "place_of_result", "without_addend"]


class Accumulating(Op[CudnnActor, GpuRef]):
    """Base of ops whose result may be ``alpha * result + beta * addend``.

    Args:
        addend: Shape and dtype of the result, any strides. May be the array of the result, which then accumulates.
        alpha: Factor of the result, a finite number.
        beta: Factor of ``addend``, a finite number; with 0 it is not read.
    """

    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "addend")})

    addend: In | None = None
    alpha: float = 1.0
    beta: float = 1.0

    def accumulated(self, made: Layout) -> Outputs:
        """The output of this layout; ``addend`` and the factors are checked."""
        for name, value in (("alpha", self.alpha), ("beta", self.beta)):
            if not math.isfinite(value):
                raise refuse(self, f"{name} is {value!r}; it must be a finite number")
        if self.addend is None:
            if self.beta != 1:
                raise refuse(self, f"beta is {self.beta!r} and addend is None; pass the addend that beta multiplies")
        elif self.addend.dtype is not made.dtype or self.addend.shape != made.shape:
            raise refuse(self, f"addend is {self.addend.layout!r}; it must be like the result, {made!r}")
        return {self.returns[0]: made}

    def alone(self, **more: Any) -> Self:
        """The same op without addend and factors."""
        return msgspec.structs.replace(self, addend=None, alpha=1.0, beta=1.0, **more)


def is_accumulated(op: Accumulating) -> bool:
    """True if the result of the op alone is not yet that of the op."""
    return op.alpha != 1 or (op.addend is not None and op.beta != 0)


def place_of_result(op: Accumulating) -> int:
    """The position of the result in the arguments of the op alone."""
    return [field.name for field in info_of(type(op)).dynamic if field.name != "addend"].index(op.returns[0])


def without_addend(op: Accumulating, result: Layout) -> Accumulating:
    """The op whose result is scaled and added; it is written to a row-major array."""
    return op.alone(**{op.returns[0]: Placeholder(result)})


def accumulation_of(op: Accumulating, result: Layout) -> tuple[Program, list[Layout], tuple[float, ...]]:
    """What follows such an op: an expression, the layouts of its operands, and its numbers.

    The operands are the result and, if it is read, ``addend``.
    """
    wide, dtype = accumulator(result.dtype), result.dtype
    if op.addend is None or op.beta == 0:
        text, layouts, factors = f"out = {wide}(y) * a", [result], {"a": op.alpha}
    else:
        text, layouts = f"out = {wide}(y) * a + {wide}(c) * b", [result, op.addend.layout]
        factors = {"a": op.alpha, "b": op.beta}
    program = compiled(f"{text}; out = {dtype}(out)", (dtype,) * len(layouts), tuple((n, "float") for n in factors))
    return program, layouts, tuple(factors.values())
