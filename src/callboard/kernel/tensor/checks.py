"""Checks of the numbers and settings of the tensor messages, other than modes."""

from typing import Annotated, Literal

from callboard.core.dtype import DTYPES, DType, DTypeLike
from callboard.core.operand import Operand
from callboard.kernel.blas.checks import check_addend_given
from callboard.kernel.checks import AnyOp, refuse

__all__ = ["Compute", "check_compute", "check_numbers", "name_of"]

Compute = Annotated[DTypeLike, Literal["f16", "bf16", "tf32", "f32", "f64"]]
"""The dtype that the factors of a product may be rounded to before they are multiplied; sums are kept in f32 or
better."""

_FINEST = {"f16": "f32", "bf16": "f32", "f32": "f32", "c64": "f32", "f64": "f64", "c128": "f64"}


def check_compute(op: AnyOp, dtype: DType, compute: Compute | None) -> None:
    """A product can be asked to be coarser than its arrays, not finer."""
    if compute is None:
        return
    finest = _FINEST.get(dtype.name)
    if finest is None:
        raise refuse(op, f"compute is {compute!r} and the arrays are {dtype}; leave it out, integers are exact")
    if compute == "f64" and finest != "f64":
        raise refuse(op, f"compute is 'f64' and the arrays are {dtype}; convert them to f64 or c128 (x.astype)")


def name_of(compute: Compute | None) -> str | None:
    """A message's ``compute``, which is kept by name."""
    return None if compute is None else str(compute)


def check_numbers(
    op: AnyOp, dtype: DType, c: Operand | None = None, beta: float | complex | Operand = 0.0, **others: object
) -> None:
    """``beta`` needs a ``c``, and the factors of integers are integers. Looks at the numbers' values."""
    check_addend_given(op, "c", c, beta)
    if dtype.is_integer:
        most = 2**31 if dtype is DTYPES["i32"] else 2**53
        for name, value in (("beta", beta), *others.items()):
            if isinstance(value, float) and not (value.is_integer() and -most <= value < most):
                raise refuse(
                    op,
                    f"{name} is {value!r}; with {dtype} arrays it must be an integer in [{-most}, {most}) "
                    f"(a 0-d array of {dtype} holds any)",
                )
