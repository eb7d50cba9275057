"""Binary searches in sorted lines."""

from typing import ClassVar

from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Out
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.cub.actor import CubActor
from callboard.kernel.cub.checks import ORDERED, check_dtype, check_line

__all__ = ["LowerBound", "UpperBound"]


class Bound(Op[CubActor, GpuRef]):
    """Insertion positions of values in a sorted line.

    Args:
        x: ``[n]``, ascending, NaNs last: what :class:`Sort` gives. If it is in another order, so are the indices.
        values: Any shape, dtype of ``x``.
        out: Shape of ``values``, i64; a new array when None.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ORDERED

    x: In
    values: In
    out: Out | None = None

    def infer(self) -> Outputs:
        dtype = check_dtype(self, "x", self.x, ORDERED)
        check_line(self, "x", self.x)
        if self.values.dtype is not dtype:
            raise refuse(self, f"values is {self.values.layout!r} and x {self.x.layout!r}; they need one dtype")
        return {"out": layout_of(DTYPES["i64"], self.values.shape)}


class LowerBound(Bound, tag="cub.lower_bound"):
    """The index of the first element that is not less than each value (``searchsorted``, side ``"left"``)."""


class UpperBound(Bound, tag="cub.upper_bound"):
    """The index of the first element that is greater than each value (``searchsorted``, side ``"right"``)."""
