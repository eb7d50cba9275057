"""``Refit``: other values for the arrays that a plan is bound to."""

from typing import ClassVar

from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Out
from callboard.kernel.checks import refuse
from callboard.kernel.cutlass.actor import CutlassActor

__all__ = ["Refit"]


class Refit(Op[CutlassActor, None], tag="cutlass.refit"):
    """Copy new values into the arrays of a plan, all of them between two calls (``CutlassMsg.Refit``).

    Calls made before read the old values, calls made later the new ones.

    Args:
        new: The new values.
        into: The arrays of the plan, each of the dtype and shape of its new values, row-major.
    """

    returns: ClassVar[tuple[str, ...]] = ()

    new: tuple[In, ...]
    into: tuple[Out, ...]

    def infer(self) -> Outputs:
        if len(self.new) != len(self.into):
            raise refuse(self, f"{len(self.new)} new arrays for {len(self.into)}")
        for at, (source, target) in enumerate(zip(self.new, self.into, strict=True)):
            if source.dtype is not target.dtype or source.shape != target.shape:
                raise refuse(self, f"new array {at} is {source.layout!r}, expected {target.layout!r}")
            if not (source.layout.contiguous and target.layout.contiguous):
                raise refuse(self, f"new array {at} is {source.layout!r}; it must be row-major: pass dev.copy of it")
        return {}
