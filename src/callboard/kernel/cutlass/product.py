"""``Product``: a product of two matrices or batches, whose factors may be scaled or rounded to TF32."""

from typing import TypeVar

from callboard.core.layout import layout_of
from callboard.core.operand import In
from callboard.kernel.blas.checks import check_tf32
from callboard.kernel.blas_lt.checks import check_scale_start, check_scales
from callboard.kernel.checks import refuse
from callboard.kernel.cutlass.fused import Fused, Problem

__all__ = ["Product"]

R_co = TypeVar("R_co", covariant=True)


class Product(Fused[R_co]):
    """Base of :class:`Gemm` and of the question about it; not sent itself. ``Gemm`` explains the fields."""

    scale_a: In | None = None
    scale_b: In | None = None
    tf32: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_scale_start(self, "scale_a", self.scale_a)
        check_scale_start(self, "scale_b", self.scale_b)

    def check_factors(self) -> None:
        super().check_factors()
        check_tf32(self, self.tf32, self.a.dtype)
        (m, k), n = self.a.shape[-2:], self.b.shape[-1]
        check_scales(self, (self.scale_a, self.scale_b), (self.a, self.b), m, n, k)

    def problem(self) -> Problem:
        for name, factor in (("a", self.a), ("b", self.b)):
            if factor.ndim not in (2, 3):
                raise refuse(self, f"{name} is {factor.layout!r}; it must have 2 axes, or 3 for a batch of matrices")
        (m, k), (k_b, n) = self.a.shape[-2:], self.b.shape[-2:]
        if k != k_b:
            raise refuse(
                self,
                f"a is {self.a.layout!r} and b is {self.b.layout!r}: {k} columns and {k_b} rows; they must be equal",
            )
        batches = {x.shape[0] for x in (self.a, self.b) if x.ndim == 3}
        if len(batches - {1}) > 1:
            raise refuse(
                self, f"a is {self.a.layout!r} and b is {self.b.layout!r}: the batches must have as many matrices"
            )
        batch = (next(iter(batches - {1}), 1),) if batches else ()
        return Problem(layout_of(self.result_dtype, (*batch, m, n)), batch[0] if batch else 0)
