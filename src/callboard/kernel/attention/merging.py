"""Partial results of attention over parts of the keys, made into the whole."""

from typing import Any, ClassVar

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Out
from callboard.kernel.attention.actor import FlashAttnActor
from callboard.kernel.attention.forward import AttentionResult
from callboard.kernel.attention.problem import FLOATS, SeqLayout, lse_dtype, tensor_of
from callboard.kernel.checks import refuse

__all__ = ["MOST_PARTS", "Merge"]

MOST_PARTS = 32
"""Partial results that one call merges."""


class Merge(Op[FlashAttnActor, AttentionResult], tag="attention.merge"):
    """Attention over all keys from results over parts of them, by their log-sum-exps.

    Args:
        outs: Results of ``attention.forward`` for the same queries, 1 to 32, of one shape and dtype; f16, bf16, f32 or
            f64. A sink is given to one of the parts only.
        lses: Their log-sum-exps, in the same order.
        out: Shape and dtype of one of ``outs``; a new row-major array when None.
        lse: Log-sum-exps of the merged result; shape and dtype of one of ``lses``.
        layout: Layout of the forward calls.

    ``lse = log(sum(exp(lses)))`` and ``out = sum(exp(lses - lse) * outs)``, in f32 (f64 for f64). A part with an lse of
    -inf counts for nothing (Ye et al., "FlashInfer", arXiv:2501.01005, section 2.2).
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("out", "lse")
    results: ClassVar[type[Any] | None] = AttentionResult

    outs: tuple[In, ...]
    lses: tuple[In, ...]
    out: Out | None = None
    lse: Out | None = None
    layout: SeqLayout = "bshd"

    def infer(self) -> Outputs:
        if not 1 <= len(self.outs) <= MOST_PARTS or len(self.outs) != len(self.lses):
            raise refuse(
                self,
                f"there are {len(self.outs)} outs and {len(self.lses)} lses; pass 1 to {MOST_PARTS}, of each as many",
            )
        first = self.outs[0].layout
        if first.dtype not in FLOATS:
            raise refuse(self, f"outs[0] is {first!r}; its dtype must be one of {', '.join(d.name for d in FLOATS)}")
        one = tensor_of(self, "outs[0]", first, self.layout)
        shape = first.shape[:2] if first.ndim == 3 else (one.batch, one.heads, one.rows)
        lse = layout_of(lse_dtype(first.dtype), shape)
        for at, (x, y) in enumerate(zip(self.outs, self.lses, strict=True)):
            tensor_of(self, f"outs[{at}]", x.layout, self.layout)
            if x.dtype is not first.dtype or x.shape != first.shape:
                raise refuse(self, f"outs[{at}] is {x.layout!r} and outs[0] is {first!r}; all must be alike")
            if y.dtype is not lse.dtype or y.shape != lse.shape:
                raise refuse(self, f"lses[{at}] is {y.layout!r}, expected {lse!r}, as attention.forward gives it")
        if self.out is not None:
            tensor_of(self, "out", self.out.layout, self.layout)
        return {"out": layout_of(first.dtype, first.shape), "lse": lse}
