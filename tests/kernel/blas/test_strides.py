"""Leading dimensions and increments: layouts that BLAS can name, and the elements they address."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES
from callboard.core.layout import Layout, layout_of
from callboard.kernel.blas.strides import Matrix, Vector, matrix_of, vector_of

extents = st.integers(0, 5)
steps = st.integers(-8, 8)


def layout(shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Layout:
    return layout_of(DTYPES["f32"], shape, strides)


@pytest.mark.parametrize(
    "shape, strides, want",
    [
        ((3, 4), (4, 1), Matrix(3, 4, 4, False)),
        ((3, 4), (9, 1), Matrix(3, 4, 9, False)),
        ((3, 4), (1, 3), Matrix(3, 4, 3, True)),
        ((3, 4), (1, 7), Matrix(3, 4, 7, True)),
        ((1, 4), (4, 1), Matrix(1, 4, 4, False)),
        ((1, 4), (0, 1), Matrix(1, 4, 4, False)),  # a new axis
        ((1, 4), (4, 2), Matrix(1, 4, 2, True)),  # every other element of a row
        ((4, 1), (5, 1), Matrix(4, 1, 5, False)),  # a column of a matrix
        ((4, 1), (1, 0), Matrix(4, 1, 1, False)),
        ((1, 1), (-3, 0), Matrix(1, 1, 1, False)),
        ((0, 4), (4, 1), Matrix(0, 4, 4, False)),
        ((4, 0), (-1, 5), Matrix(4, 0, 1, False)),
        ((3, 4), (8, 2), None),  # gaps on both axes
        ((3, 4), (3, 1), None),  # rows overlap
        ((3, 4), (0, 1), None),  # one row for all
        ((3, 4), (1, 0), None),
        ((3, 4), (-4, 1), None),  # backwards
        ((3, 4), (4, -1), None),
        ((4, 1), (-1, 1), None),
        ((4, 1), (0, 1), None),
    ],
)
def test_matrix_of(shape: Any, strides: Any, want: Matrix | None) -> None:
    assert matrix_of(layout(shape, strides)) == want


@given(st.tuples(extents, extents), st.tuples(steps, steps))
def test_a_matrix_lies_where_the_layout_says(shape: tuple[int, int], strides: tuple[int, int]) -> None:
    form = matrix_of(layout(shape, strides))
    if form is None:
        return
    assert (form.rows, form.cols) == shape
    assert form.ld >= max(1, form.rows if form.transposed else form.cols)
    for i, j in np.ndindex(shape):
        assert i * strides[0] + j * strides[1] == (j * form.ld + i if form.transposed else i * form.ld + j)


@pytest.mark.parametrize(
    "shape, strides, want",
    [
        ((5,), (1,), Vector(5, 1, 0)),
        ((5,), (3,), Vector(5, 3, 0)),
        ((5,), (-2,), Vector(5, -2, -8)),
        ((), (), Vector(1, 1, 0)),
        ((1,), (0,), Vector(1, 1, 0)),
        ((0,), (7,), Vector(0, 1, 0)),
        ((3, 4), (4, 1), Vector(12, 1, 0)),
        ((3, 4), (8, 2), Vector(12, 2, 0)),
        ((2, 1, 3), (3, 99, 1), Vector(6, 1, 0)),
        ((5,), (0,), None),  # one element five times
        ((3, 4), (5, 1), None),  # a gap after each row
        ((3, 4), (1, 3), None),  # evenly spaced in another order
        ((3, 4), (0, 0), None),
    ],
)
def test_vector_of(shape: Any, strides: Any, want: Vector | None) -> None:
    assert vector_of(layout(shape, strides)) == want


@given(st.lists(extents, max_size=3).flatmap(lambda s: st.tuples(st.just(tuple(s)), st.tuples(*[steps] * len(s)))))
def test_a_vector_lies_where_the_layout_says(case: Any) -> None:
    shape, strides = case
    vector = vector_of(layout(shape, strides))
    if vector is None:
        return
    places = [sum(i * s for i, s in zip(index, strides, strict=True)) for index in np.ndindex(shape)]
    assert places == [i * vector.inc for i in range(vector.n)]
    assert vector.first == min(places, default=0)
