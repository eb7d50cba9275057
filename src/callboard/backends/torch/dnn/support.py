"""What the plans of deep learning have in common: wide arrays, results that accumulate, images with channels first."""

from collections.abc import Callable
from typing import Any

from callboard.backends.torch.blas.forms import wide
from callboard.backends.torch.library import Compute
from callboard.backends.torch.vendor import Tensor, held_as, torch
from callboard.core.errors import ShapeError
from callboard.kernel.dnn.accumulation import is_accumulated

__all__ = ["accumulating", "channels_first", "channels_last", "checked", "optional"]


def optional(x: Tensor | None) -> Tensor | None:
    """An operand that may be left out, wide."""
    return None if x is None else wide(x)


def accumulating(op: Any, compute: Compute) -> Compute:
    """The function of an op with an addend and factors, by that of the op alone; the addend comes first."""
    if not is_accumulated(op):
        return lambda addend, *given: compute(*given)
    dtype = op.infer()[op.returns[0]].dtype

    def work(addend: Tensor | None, *given: Any) -> Tensor:
        found = wide(compute(*given).to(held_as(dtype))) * op.alpha
        return found if addend is None or op.beta == 0 else found + wide(addend) * op.beta

    return work


def channels_first(x: Tensor, layout: str) -> Tensor:
    """An image or filter as ``[n, c, ...]``."""
    return x if layout == "NCHW" else x.movedim(-1, 1)


def channels_last(x: Tensor, layout: str) -> Tensor:
    """``[n, c, ...]`` in the order of a layout."""
    return x if layout == "NCHW" else x.movedim(1, -1)


def checked(indices: Tensor, count: int, error: Callable[[int, int, int], str]) -> Tensor:
    """Indices of rows, all of which exist.

    Raises:
        ShapeError: One does not; ``error`` of its value, of how many are wrong, and of how many there are.
    """
    at = indices.to(torch.int64)
    wrong = (at < 0) | (at >= count)
    if bool(wrong.any()):
        raise ShapeError(error(int(at[wrong][0]), int(wrong.sum()), at.numel()))
    return at
