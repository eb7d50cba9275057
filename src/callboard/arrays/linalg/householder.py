"""Decompositions of stacks of matrices from their Householder reflections.

One op computes all factorisations, and a few ops the rest.

A reflection is ``1 - tau * outer(v, conj(v))``, where ``v`` begins with zeros and a 1 (LAPACK's ``geqrf``).
"""

import math
from typing import Any

from callboard.arrays.creation import triu
from callboard.arrays.elementwise import apply
from callboard.arrays.handles import Ref, device_of, submit, view
from callboard.arrays.manipulation import broadcast_to, reshape
from callboard.arrays.products.contracting import matmul
from callboard.kernel import solver

__all__ = ["stacked_qr", "triangle_of"]


def triangle_of(a: Ref) -> tuple[Ref, Ref]:
    """Return the diagonals of ``R`` and the determinants of the reflections, for square matrices that are not empty."""
    n = a.shape[-1]
    h, tau = submit(a, solver.GeqrfBatched(a=reshape(a, (-1, n, n)), check_finite=False))
    corner = view(h, (h.shape[0], n), (h.strides[0], h.strides[1] + h.strides[2]))
    # It is unitary, so 1 - tau * sum(v * conj(v)) = -tau / conj(tau); the last one may be none
    turns: Any = apply("where(t == 0, 1.0, -t / conj(where(t == 0, 1.0, t)))", t=tau)
    shape = (*a.shape[:-2], n)
    return reshape(corner, shape), reshape(turns, shape)


def stacked_qr(a: Ref, columns: int) -> tuple[Ref, Ref]:
    """Return ``Q`` with ``columns`` columns, and ``R``, for a stack of matrices that are not empty.

    ``Q`` is made of the reflections one after the other, each for the whole stack: worth it where there are more
    matrices than reflections.
    """
    m, n = a.shape[-2:]
    batch, many = a.shape[:-2], math.prod(a.shape[:-2])
    h, tau = submit(a, solver.GeqrfBatched(a=reshape(a, (many, m, n)), check_finite=False))
    eye = device_of(a).eye(m, columns, dtype=a.dtype)
    q: Any = reshape(broadcast_to(eye, (many, m, columns)), (many, m, columns), copy=True)
    rows = device_of(a).arange(m)
    for at in reversed(range(min(m, n))):
        v = apply(
            "where(i > at, x, where(i == at, one, 0 * one))", i=rows, at=at, x=h[:, :, at], one=tau[:, :1] * 0 + 1
        )
        along = matmul(apply("conj(v)", v=v)[:, None, :], q)
        q = apply("q - t * v * w", q=q, t=tau[:, at][:, None, None], v=v[:, :, None], w=along)
    r = triu(h[:, :columns, :])
    return reshape(q, (*batch, m, columns)), reshape(r, (*batch, columns, n))
