"""Dense products at the entries of a sparse matrix."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from callboard.backends.cpu.blas.scalars import reader
from callboard.backends.cpu.sparse.checking import sound
from callboard.backends.cpu.sparse.matrices import blocks_of, coordinates, work_dtype
from callboard.backends.cpu.views import viewer
from callboard.core.library import plans
from callboard.kernel import sparse

__all__ = ["sampled"]


@plans(sparse.Sddmm)
def sampled(op: sparse.Sddmm) -> Callable[..., None]:
    """``run(a, b, c, out, alpha, beta)``; halves in f32."""
    left, right, arrays, c = viewer(op.a.layout), viewer(op.b.layout), sound(op, "c"), op.c
    target = viewer(op.infer()["out"] if op.out is None else op.out.layout)
    alpha_of, beta_of, work = reader(op.alpha), reader(op.beta), work_dtype(op.c.values.dtype)

    def run(a: int, b: int, parts: Sequence[int], out: int, alpha: Any, beta: Any) -> None:
        rows_of_a, cols_of_b = left(a).astype(work, copy=False), right(b).T.astype(work, copy=False)
        if isinstance(c, sparse.BsrRef):
            values, rows, cols = blocks_of(c, arrays(parts))
            _, down, across = values.shape
            height = rows_of_a.reshape(c.shape[0] // down, down, op.a.shape[1])
            width = cols_of_b.reshape(c.shape[1] // across, across, op.a.shape[1])
            found = height[rows] @ width[cols].swapaxes(1, 2)
        else:
            values, rows, cols = coordinates(c, arrays(parts))
            one, other = rows_of_a[rows], cols_of_b[cols]
            # NumPy 2.4's einsum writes one element after an empty result.
            found = np.einsum("ij,ij->i", one, other) if len(one) else np.empty(0, one.dtype)
        found, share = found * work.type(alpha_of(alpha)), beta_of(beta)
        target(out)[...] = found if share == 0 else found + work.type(share) * values.astype(work, copy=False)

    return run
