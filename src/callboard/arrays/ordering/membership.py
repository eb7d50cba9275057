"""``xp.isin``: which elements of one array are among those of another."""

from callboard.arrays.dtypes import together
from callboard.arrays.elementwise import apply, equal, logical_not, minimum
from callboard.arrays.handles import Ref, Scalar, check_array, device_of, is_scalar, submit
from callboard.arrays.indexing.access import take
from callboard.arrays.manipulation import expand_dims, reshape
from callboard.arrays.reducing import reduced
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.kernel.cub import LowerBound, Sort

__all__ = ["isin"]


def isin(x1: GpuRef[Mode] | Scalar, x2: GpuRef[Mode] | Scalar, /, *, invert: bool = False) -> GpuRef[Mode]:
    """For each element of ``x1`` whether it equals one of ``x2``: bools in the shape of ``x1``. A NaN equals none.

    Args:
        x1: Any dtype; or a number.
        x2: Any shape; or a number. One of the two is an array.
        invert: The opposite.
    """
    found: Ref
    if is_scalar(x1):
        array = check_array("isin", "x2", x2)
        found = reduced("isin", "any(x)", None, False, x=equal(array, x1))
    else:
        array = check_array("isin", "x1", x1)
        found = equal(array, x2) if is_scalar(x2) else _among(array, check_array("isin", "x2", x2))
    return logical_not(found) if invert else found


def _among(x: Ref, others: Ref) -> Ref:
    if not x.size or not others.size:
        found: Ref = device_of(x).zeros(x.shape, dtype="bool")
        return found
    values, line = together(x, reshape(others, (-1,)))
    if line.dtype.is_complex or line.dtype.kind == "bool":  # without an order
        each = equal(expand_dims(values, -1), line)
        return reduced("isin", "any(x)", -1, False, x=each)  # type: ignore[no-any-return]
    line = submit(x, Sort(keys=line))
    places = submit(x, LowerBound(x=line, values=values))
    nearest = take(line, reshape(minimum(places, line.size - 1), (-1,)))
    return apply("a == b", a=reshape(nearest, values.shape), b=values)  # type: ignore[no-any-return]
