"""``xp.einsum``: sums of products by an equation, or by lists of labels."""

import string
from collections.abc import Sequence
from types import EllipsisType
from typing import Any

from callboard.arrays.dtypes import together
from callboard.arrays.handles import check_array, submit
from callboard.arrays.products.contracting import computed_in, converted
from callboard.core.errors import ShapeError
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.kernel.tensor import Einsum
from callboard.kernel.tensor.network import Optimize

__all__ = ["einsum"]

LABELS = string.ascii_uppercase + string.ascii_lowercase
"""Letters for the labels 0 to 51, in the order of the labels: implicit outputs of an equation are ordered by letter."""

Labels = Sequence[int | EllipsisType]


def einsum(
    equation: str | GpuRef[Mode], /, *operands: GpuRef[Mode] | Labels, optimize: Optimize = "auto"
) -> GpuRef[Mode]:
    """The sum of products that an equation names, as ``numpy.einsum``; both of its forms.

    ``xp.einsum("ij,jk->ik", a, b)`` and ``xp.einsum(a, [0, 1], b, [1, 2], [0, 2])`` are the same product. Operands are
    promoted to one dtype; integers wrap around.

    Args:
        equation: An equation; or the first operand.
        operands: The operands of the equation; or the labels of the first operand (0 to 51, ``...``), further operands,
            each with its labels, and the labels of the result, which may be left out.
        optimize: Strategy by which opt_einsum chooses the order of products (:class:`callboard.kernel.tensor.Einsum`).

    Raises:
        TypeError: Neither form.
        ShapeError: The equation does not fit the operands; names operand, label and extents.
    """
    if isinstance(equation, str):
        text, given = equation, list[Any](operands)
    else:
        text, given = _equation((equation, *operands))
    arrays = [check_array("einsum", f"operand {at}", x) for at, x in enumerate(given)]
    if not arrays:
        raise TypeError("xp.einsum: there is no operand; pass an equation and arrays, or arrays each with its labels")
    arrays = together(*arrays)
    dtype = arrays[0].dtype
    work = computed_in(dtype)
    taken = tuple(converted(x, work) for x in arrays)
    return converted(submit(arrays[0], Einsum(equation=text, operands=taken, optimize=optimize)), dtype)


def _equation(arguments: Sequence[Any]) -> tuple[str, list[Any]]:
    """The equation of operands with labels, and the operands."""
    pairs, rest = arguments[: len(arguments) // 2 * 2], arguments[len(arguments) // 2 * 2 :]
    terms = ",".join(_term(labels) for labels in pairs[1::2])
    return (f"{terms}->{_term(rest[0])}" if rest else terms), list(pairs[::2])


def _term(labels: Any) -> str:
    if not isinstance(labels, list | tuple):
        raise TypeError(f"xp.einsum: labels are {labels!r}; pass a list of integers from 0 to 51, and ...")
    for label in labels:
        if label is not Ellipsis and not (type(label) is int and 0 <= label < len(LABELS)):
            raise ShapeError(f"xp.einsum: label {label!r}; labels are integers from 0 to 51, and ...")
    return "".join("..." if label is Ellipsis else LABELS[label] for label in labels)
