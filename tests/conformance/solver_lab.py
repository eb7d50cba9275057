"""Shared by the solver's suites: matrices in drawn layouts, and checks of factorisations in extended precision."""

from typing import Any

import numpy as np
from blas_lab import SHARED as SHARED_BLAS
from blas_lab import Placed, dtypes, execute, matrix_layouts, place_matrix, seeds, values
from hypothesis import settings
from hypothesis import strategies as st

from callboard.core.dtype import DType
from callboard.testing.tolerances import assert_close

__all__ = [
    "FLOATS",
    "SHARED",
    "adjoint",
    "check_residual",
    "check_same",
    "check_unitary",
    "definite",
    "dtypes",
    "exact",
    "execute",
    "extents",
    "given_or_new",
    "hermitian",
    "layouts",
    "put",
    "regular",
    "seeds",
    "st",
    "values",
]

FLOATS = ("f32", "f64", "c64", "c128")
SHARED = settings(parent=SHARED_BLAS, max_examples=25)
extents = st.integers(0, 6)
Array = np.ndarray[Any, Any]


def exact(array: Any) -> Array:
    """The same numbers in extended precision."""
    array = np.asarray(array)
    return array.astype(np.clongdouble if array.dtype.kind == "c" else np.longdouble)


def adjoint(array: Array) -> Array:
    return array.conj().swapaxes(-1, -2)


# -- matrices ----------------------------------------------------------------------------------------------------------


def regular(dtype: DType, shape: tuple[int, ...], seed: int) -> Array:
    """Far from singular, of full rank."""
    array = values(dtype, shape, seed)
    k = range(min(shape[-2:]))
    array[..., k, k] += 8
    return array


def hermitian(dtype: DType, shape: tuple[int, ...], seed: int) -> Array:
    array = values(dtype, shape, seed)
    return (array + adjoint(array)).astype(dtype.np)


def definite(dtype: DType, shape: tuple[int, ...], seed: int) -> Array:
    array = values(dtype, shape, seed)
    product = (array @ adjoint(array)).astype(dtype.np)
    k = range(shape[-1])
    product[..., k, k] = product[..., k, k].real + 1
    return product


# -- operands ----------------------------------------------------------------------------------------------------------

layouts = st.sampled_from(["backwards"]) | matrix_layouts


def put(session: Any, array: Array, layout: str) -> Any:
    """On the device, in rows or columns, with gaps or without, or backwards with every other element."""
    if layout != "backwards":
        return place_matrix(session, array, layout).ref
    whole = np.zeros((*array.shape[:-2], 2 * array.shape[-2], 2 * array.shape[-1]), array.dtype)
    whole[..., ::-2, ::-2] = array
    return session.put(whole)[..., ::-2, ::-2]


def given_or_new(session: Any, data: Any, dtype: DType, shape: tuple[int, ...]) -> Placed | None:
    """A place for a result, all NaN, or None."""
    if not data.draw(st.booleans()):
        return None
    return place_matrix(session, np.full(shape, np.nan, dtype.np), data.draw(matrix_layouts))


# -- checks ------------------------------------------------------------------------------------------------------------


def check_same(got: Array, want: Array, dtype: DType, scale: Any = None) -> None:
    """``got`` is ``want`` but for rounding errors of the size of ``scale``, by default the norm of ``want``."""
    if scale is None:
        scale = float(np.linalg.norm(np.asarray(want, np.complex128)))
    assert_close(got, want, dtype, max(got.shape, default=1), kind="solve", scale=scale)


def check_unitary(q: Array, dtype: DType) -> None:
    """Its columns are orthonormal."""
    check_same(adjoint(exact(q)) @ exact(q), np.eye(q.shape[1]), dtype, 1.0)


def check_residual(a: Array, x: Array, b: Array, dtype: DType) -> None:
    """``a @ x = b`` but for what a backward stable solution may leave."""
    a, x, b = exact(a), exact(x), exact(b)
    check_same(a @ x, b, dtype, np.asarray(np.linalg.norm(a.astype(complex)) * abs(x).max(initial=0) + abs(b), float))
