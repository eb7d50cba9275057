"""Dense operands of sparse ops that are views: any step between rows or columns is taken, gaps within them are not."""

from typing import Any

import numpy as np
import pytest
from sparse_lab import drawn, put, vector

from callboard.core.errors import ShapeError
from callboard.kernel.sparse import FromDense, Sddmm, SpMm, SpMv, SpSm, ToDense

N = 6
LAID = ("rows", "cols", "every other row", "every other column of the transpose")


def view(session: Any, array: np.ndarray[Any, Any], how: str) -> Any:
    """The array as part of a larger one."""
    rows, cols = array.shape
    if how == "rows":
        larger = np.full((rows, cols + 3), np.nan, array.dtype)
        larger[:, :cols] = array
        return session.put(larger)[:, :cols]
    if how == "every other row":
        larger = np.full((2 * rows, cols + 1), np.nan, array.dtype)
        larger[::2, :cols] = array
        return session.put(larger)[::2, :cols]
    return view(session, array.T, "rows" if how == "cols" else "every other row").T


@pytest.mark.parametrize("dtype", ["f32", "c128"])
@pytest.mark.parametrize("how", LAID)
def test_steps_between_rows_or_columns_are_taken(session: Any, how: str, dtype: str) -> None:
    a, b = drawn(1, (N, N), dtype, 0.5), vector(2, (N, N), dtype)
    triangle = np.tril(a, -1) + np.eye(N, dtype=a.dtype)
    matrix, right = put(session, a), view(session, b, how)

    def near(got: Any, want: Any) -> None:
        np.testing.assert_allclose(session.get(got), want, rtol=1e-4, atol=1e-4)

    out = view(session, np.zeros_like(b), how)
    near(session.submit(SpMm(a=matrix, b=right, out=out)), a @ b)
    near(session.submit(SpMm(a=matrix, b=right[:, :1])), a @ b[:, :1])
    near(session.submit(Sddmm(a=right, b=right, c=matrix)), (b @ b)[a != 0])
    near(session.submit(SpSm(a=put(session, triangle), b=right, out=out)), np.linalg.solve(triangle, b))
    near(session.submit(ToDense(a=matrix, out=out)), a)
    near(session.submit(ToDense(a=session.submit(FromDense(dense=right)))), b)


def test_gaps_within_rows_and_columns_are_refused(session: Any) -> None:
    matrix, wide = put(session, drawn(1, (N, N), "f32")), session.put(np.ones((2 * N, 2 * N), np.float32))
    with pytest.raises(ShapeError, match=r"sparse\.sp_mm: b is .*rows or columns must have no gaps \(dev\.copy"):
        session.submit(SpMm(a=matrix, b=wide[::2, ::2]))
    with pytest.raises(ShapeError, match=r"sparse\.sp_mv: x is .*it must have no gaps \(dev\.copy"):
        session.submit(SpMv(a=matrix, x=wide[0, ::2]))
