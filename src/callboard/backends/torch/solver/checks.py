"""What the plans of the solvers have in common: finite operands, failures that routines report, tags."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from callboard.backends.torch.library import Plan, TorchLibrary
from callboard.backends.torch.vendor import Tensor, torch
from callboard.core.library import AnyOp
from callboard.kernel.solver.failures import Explain, bad_indices, first_of, not_finite

__all__ = ["check_finite", "checked", "columns", "finite_plan", "rows_of_pivots", "tag_of"]


def tag_of(op: AnyOp) -> str:
    """The tag of a message."""
    return str(type(op).__struct_config__.tag)


def check_finite(tag: str, *operands: Tensor) -> None:
    """Refuse NaN and infinities.

    Raises:
        NumericalError
    """
    count = sum(int((~torch.isfinite(x)).sum()) for x in operands if x.is_floating_point() or x.is_complex())
    if count:
        raise not_finite(tag, count)


def checked(tag: str, infos: Tensor, explain: Explain) -> None:
    """Raise the failure that a routine reports: of a batch, that of its first failing item.

    Args:
        tag: Of the message.
        infos: ``info`` of LAPACK, 0-d or one for each item; 0 where all is well.
        explain: From the tag and an ``info`` to the error.
    """
    failed = (infos != 0).reshape(-1).nonzero()[:, 0]
    if not failed.numel():
        return
    first = int(failed[0])
    error = explain(tag, int(infos.reshape(-1)[first]))
    raise first_of(error, first, failed.numel(), infos.numel()) if infos.ndim else error


def rows_of_pivots(tag: str, pivots: Tensor, n: int) -> Tensor:
    """LAPACK's pivots, which count from 1, from ours.

    Raises:
        NumericalError: One names no row.
    """
    bad = int(((pivots < 0) | (pivots >= n)).sum())
    if bad:
        raise bad_indices(tag, bad, "pivots")
    return (pivots + 1).to(torch.int32)


def columns(b: Tensor, a: Tensor) -> Tensor:
    """Right-hand sides as the columns of a matrix."""
    return b[..., None] if b.ndim < a.ndim else b


def finite_plan(library: TorchLibrary, op: Any, compute: Callable[..., Any], failure: Explain | None = None) -> Plan:
    """A plan that refuses what is not finite, if the message does not allow it.

    Args:
        library: The library.
        op: The message.
        compute: Its function.
        failure: The error of an iteration that PyTorch reports as not converged.
    """
    tag, checks = tag_of(op), getattr(op, "check_finite", True)

    @wraps(compute)
    def work(*given: Any) -> Any:
        if checks:
            check_finite(tag, *(x for x in given if hasattr(x, "is_complex")))
        try:
            return compute(*given)
        except torch.linalg.LinAlgError as e:
            if failure is None:
                raise
            raise failure(tag, 1) from e

    return library.planned(op, work)
