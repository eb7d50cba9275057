"""Array layouts in BLAS terms: leading dimension and orientation of a matrix, increment of a vector.

Messages refuse layouts without such a description; a backend gets the same answers from the same functions when it
makes its plans.
"""

from typing import NamedTuple

from callboard.core.errors import ShapeError
from callboard.core.layout import Layout
from callboard.core.ref.views import reshaped

__all__ = ["Matrix", "Vector", "band_of", "matrix_of", "vector_of"]


class Matrix(NamedTuple):
    """A 2-d layout. Element ``[i, j]`` is at ``i * ld + j``, or at ``j * ld + i`` if ``transposed``.

    Attributes:
        rows, cols: The shape.
        ld: Leading dimension in elements: ``>= max(1, cols)``, or ``>= max(1, rows)`` if ``transposed``.
        transposed: The rows, not the columns, are adjacent in memory (a column-major array, or ``x.T`` of a row-major
            one).
    """

    rows: int
    cols: int
    ld: int
    transposed: bool


class Vector(NamedTuple):
    """Elements at one distance from each other.

    Attributes:
        n: Number of elements.
        inc: Distance in elements; never 0, negative for a reversed view.
        first: Offset in elements from element 0 to the lowest address, which BLAS takes if ``inc`` is negative.
    """

    n: int
    inc: int
    first: int


def matrix_of(layout: Layout) -> Matrix | None:
    """The layout as BLAS names it; None if one of its axes is not dense, runs backwards or repeats elements.

    A single row or column is taken as row-major if it can be; so is an empty matrix.
    """
    (rows, cols), (row_step, col_step) = layout.shape, layout.strides
    if layout.size == 0:
        return Matrix(rows, cols, max(cols, 1), False)
    if (cols == 1 or col_step == 1) and (rows == 1 or row_step >= cols):
        return Matrix(rows, cols, row_step if rows > 1 else cols, False)
    if (rows == 1 or row_step == 1) and (cols == 1 or col_step >= rows):
        return Matrix(rows, cols, col_step if cols > 1 else rows, True)
    return None


def vector_of(layout: Layout) -> Vector | None:
    """The layout as one vector, in row-major order of its elements; None if they are not evenly spaced or repeat.

    Any number of axes: a contiguous matrix is a vector of ``rows * cols`` elements.
    """
    n = layout.size
    if n <= 1:
        return Vector(n, 1, 0)
    if layout.ndim > 1:
        try:
            layout = reshaped(layout, (n,))
        except ShapeError:
            return None
    inc = layout.strides[0]
    return None if inc == 0 else Vector(n, inc, min(0, (n - 1) * inc))


def band_of(layout: Layout) -> int | None:
    """The leading dimension of a column-major array with a row for each diagonal; None if it is not column-major."""
    (width, columns), (down, across) = layout.shape, layout.strides
    if columns <= 1 or not width:
        return width if width <= 1 or down == 1 else None
    return across if (width == 1 or down == 1) and across >= width else None
