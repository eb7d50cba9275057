"""Dropout whose numbers are named by their place: the same seed and offset drop the same elements, wherever and when.

N. Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", JMLR 15 (2014). Element *i*,
in row-major order, is judged by word ``offset + i`` of the stream ``philox`` of :mod:`callboard.kernel.rng.streams`,
and dropped where that word is below ``probability * 2**32``. No state is kept, so the gradient draws the same numbers
again, and a device that was rebuilt after a loss repeats them.
"""

from typing import Any, ClassVar

from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import ByValue, In, Number, Operand, Out
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.dnn.actor import CudnnActor
from callboard.kernel.dnn.operands import FLOATS, check_floats

__all__ = ["Dropout", "DropoutBackward", "DropoutMask", "threshold_of"]

PLACES = ("i64", "u64")


def threshold_of(probability: float) -> int:
    """Words below it drop their element; 2**32 for all."""
    return min(max(round(probability * 2.0**32), 0), 1 << 32)


def check_place(op: Any) -> None:
    """Seed and offset are integers, or 0-d arrays of them."""
    for name in ("seed", "offset"):
        value = getattr(op, name)
        if isinstance(value, Operand):
            if value.dtype.name not in PLACES:
                raise refuse(op, f"{name} is {value.layout!r}; it must be an integer, or a 0-d array of i64 or u64")
        elif not isinstance(value, int):
            raise refuse(op, f"{name} is {value!r}; it must be an integer, or a 0-d array of i64 or u64")
    if isinstance(op.probability, complex):
        raise refuse(op, f"probability is {op.probability!r}; it must be a number from 0 to 1")


class Dropout(Op[CudnnActor, GpuRef], tag="dnn.dropout"):
    """``out = x / (1 - probability)`` where an element is kept, 0 where it is dropped.

    Args:
        x: f16, bf16, f32 or f64, any strides.
        probability: Probability that an element is dropped, from 0 to 1; passed by value with each call.
        seed: Seed of the stream, an integer, or a 0-d array of i64 or u64 that is read on the device.
        offset: The word of the first element, likewise. Advance it by ``x.size`` from call to call; in a recording by a
            0-d array that the recording itself increments.
        out: Shape and dtype of ``x``, any strides; a new row-major array when None. May be ``x``.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "x")})

    x: In
    probability: ByValue = 0.5
    seed: Number = 0
    offset: Number = 0
    out: Out | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probability(self)

    def infer(self) -> Outputs:
        check_place(self)
        return {"out": layout_of(check_floats(self, "x", self.x), self.x.shape)}


class DropoutBackward(Op[CudnnActor, GpuRef], tag="dnn.dropout_backward"):
    """The gradient of :class:`Dropout`: the same elements are kept, and divided by the same number.

    Args:
        dy: The gradient by the result, any strides.
        probability, seed, offset: The same as forward.
        dx: Shape and dtype of ``dy``; a new row-major array when None. May be ``dy``.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("dx",)
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("dx", "dy")})

    dy: In
    probability: ByValue = 0.5
    seed: Number = 0
    offset: Number = 0
    dx: Out | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probability(self)

    def infer(self) -> Outputs:
        check_place(self)
        return {"dx": layout_of(check_floats(self, "dy", self.dy), self.dy.shape)}


class DropoutMask(Op[CudnnActor, GpuRef], tag="dnn.dropout_mask"):
    """Mask of the elements a :class:`Dropout` keeps.

    Args:
        shape: Shape of the array.
        probability, seed, offset: See :class:`Dropout`.
        out: bool of that shape, any strides; a new row-major array when None.
    """

    shape: tuple[int, ...]
    probability: ByValue = 0.5
    seed: Number = 0
    offset: Number = 0
    out: Out | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probability(self)

    def infer(self) -> Outputs:
        check_place(self)
        if min(self.shape, default=0) < 0:
            raise refuse(self, f"shape is {self.shape}; extents are >= 0")
        return {"out": layout_of(DTYPES["bool"], self.shape)}


def check_probability(op: Any) -> None:
    """Check that it is between 0 and 1; it is passed by value, so the message checks it when it is created."""
    if not isinstance(op.probability, complex) and not 0 <= op.probability <= 1:
        raise refuse(op, f"probability is {op.probability!r}; it must be a number from 0 to 1")
