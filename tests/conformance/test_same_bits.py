"""Equal calls give equal bits: of every library, where it has to be asked for that by its ``deterministic`` setting."""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from solver_lab import definite, hermitian, regular
from sparse_lab import drawn, put
from sparse_lt_lab import compressed, structured

from callboard.core.dtype import DTYPES
from callboard.core.operand import StructOperand, operands_of
from callboard.kernel import blas, blas_lt, cub, fft, rng, solver, sparse, sparse_lt, tensor

F16, F32 = DTYPES["f16"], DTYPES["f32"]
TIMES = 4
"""Calls in all; sums in changing order differ in most of them."""

Make = Callable[[Any], Any]
"""The message, on a session."""


def dense(session: Any, *shape: int, seed: int = 0) -> Any:
    return session.put(np.random.default_rng(seed).standard_normal(shape).astype("f4"))


def system(session: Any, make: Any) -> Any:
    return session.put(make(F32, (300, 300), 1))


CASES: dict[str, Make] = {
    "gemm": lambda s: blas.Gemm(a=dense(s, 64, 5000), b=dense(s, 5000, 48, seed=1)),
    "gemv": lambda s: blas.Gemv(a=dense(s, 48, 20_000), x=dense(s, 20_000, seed=1)),
    "dot": lambda s: blas.Dot(x=dense(s, 300_000), y=dense(s, 300_000, seed=1)),
    "nrm2": lambda s: blas.Nrm2(x=dense(s, 300_000)),
    "symm": lambda s: blas.Symm(a=dense(s, 700, 700), b=dense(s, 700, 40, seed=1)),
    "strided_batched": lambda s: blas.GemmStridedBatched(a=dense(s, 5, 9, 9000), b=dense(s, 5, 9000, 7, seed=1)),
    "matmul": lambda s: blas_lt.Matmul(a=dense(s, 64, 8192), b=dense(s, 8192, 48, seed=1), deterministic=True),
    "reduce": lambda s: cub.Reduce(x=dense(s, 300_001)),
    "rows": lambda s: cub.Reduce(x=dense(s, 200, 3001)),
    "scanned rows": lambda s: cub.Scan(x=dense(s, 200, 3001)),
    "fft": lambda s: fft.Rfft(x=dense(s, 30, 1000)),
    "normal": lambda s: rng.RngFillNormal(out=s.empty(10_000), seed=3),
    "gamma": lambda s: rng.RngFillGamma(out=s.empty(10_000), seed=3, shape=0.7),
    "lu": lambda s: solver.Lu(a=system(s, regular)),
    "solve": lambda s: solver.Solve(a=system(s, regular), b=dense(s, 300, 5)),
    "qr": lambda s: solver.Qr(a=dense(s, 400, 90)),
    "cholesky": lambda s: solver.Cholesky(a=system(s, definite)),
    "svd": lambda s: solver.Svd(a=dense(s, 200, 90)),
    "syevd": lambda s: solver.Syevd(a=system(s, hermitian)),
    "geev": lambda s: solver.Geev(a=dense(s, 90, 90)),
    "sp_mv": lambda s: sparse.SpMv(a=matrix(s), x=dense(s, 600), deterministic=True),
    "sp_mm": lambda s: sparse.SpMm(a=matrix(s), b=dense(s, 600, 9), deterministic=True),
    "sp_gemm": lambda s: sparse.SpGemm(a=matrix(s), b=matrix(s), deterministic=True),
    "sp_sv": lambda s: sparse.SpSv(a=triangle(s), x=dense(s, 600)),
    "sp_sm": lambda s: sparse.SpSm(a=triangle(s), b=dense(s, 600, 9)),
    "sddmm": lambda s: sparse.Sddmm(a=dense(s, 600, 3000), b=dense(s, 3000, 600, seed=1), c=matrix(s)),
    "structured": lambda s: sparse_lt.Matmul(
        a=compressed(s, structured(F16, (256, 512), 1)), b=s.put(structured(F16, (512, 128), 2))
    ),
    "einsum": lambda s: tensor.Einsum(equation="ijk,kjl->il", operands=(dense(s, 8, 60, 50), dense(s, 50, 60, 9))),
    "reduction": lambda s: tensor.Reduction(a=dense(s, 400, 500), modes_a="ij", modes_out="j"),
}


def matrix(session: Any) -> Any:
    return put(session, drawn(7, (600, 600), "f32", 0.1))


def triangle(session: Any) -> Any:
    return put(session, np.tril(drawn(7, (600, 600), "f32", 0.02)) + 4 * np.eye(600, dtype="f4"))


def bits(session: Any, result: Any) -> list[Any]:
    """Of all that an op was answered with."""
    if isinstance(result, StructOperand):
        return [bits(session, part) for part in operands_of(result).values()]
    if isinstance(result, tuple):
        return [bits(session, part) for part in result]
    return [result if isinstance(result, float | int) else hashlib.sha256(session.get(result).tobytes()).hexdigest()]


@pytest.mark.parametrize("name", CASES)
def test_equal_calls_give_equal_bits(session: Any, name: str) -> None:
    op = CASES[name](session)
    first, *others = (bits(session, session.submit(op)) for _ in range(TIMES))
    assert others == [first] * (TIMES - 1)
