"""Solves with sparse triangular matrices."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from callboard.backends.cpu.blas.scalars import reader
from callboard.backends.cpu.sparse.checking import sound
from callboard.backends.cpu.sparse.matrices import matrix_of
from callboard.backends.cpu.views import viewer
from callboard.core.library import plans
from callboard.kernel import sparse
from callboard.kernel.sparse.checks import zero_pivot

__all__ = ["solve"]

Plan = Callable[..., None]


@plans(sparse.SpSm, sparse.SpSv)
def solve(op: "sparse.SpSv | sparse.SpSm") -> Plan:
    """``run(a, b, out, alpha)``; in f64 or c128."""
    import scipy.sparse as sp
    from scipy.sparse.linalg import spsolve_triangular

    b = op.x if isinstance(op, sparse.SpSv) else op.b
    matrix, right = matrix_of(op.a, sound(op, "a")), viewer(b.layout)
    target = viewer(op.infer()["out"] if op.out is None else op.out.layout)
    alpha_of, tag = reader(op.alpha), type(op).__struct_config__.tag
    work = np.complex128 if b.dtype.is_complex else np.float64

    def run(a: Sequence[int], at: int, out: int, alpha: Any) -> None:
        half: Any = (sp.tril if op.lower else sp.triu)(matrix(a).astype(work), format="csr")
        if not op.unit:
            zeros = np.flatnonzero(half.diagonal() == 0)
            if zeros.size:
                raise zero_pivot(str(tag), int(zeros[0]))
        if op.transpose:
            half = (half.conj() if op.conj else half).T.tocsr()
        values = alpha_of(alpha) * right(at).astype(work)
        if values.size:
            half.indices, half.indptr = (
                half.indices.astype(np.int32),
                half.indptr.astype(np.int32),
            )  # what SuperLU takes
            lower = op.lower != op.transpose
            values = spsolve_triangular(half, values, lower=lower, unit_diagonal=op.unit)
        target(out)[...] = values

    return run
