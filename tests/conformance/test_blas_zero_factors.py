"""Factors of 0: what they multiply is not read, so NaN does not spread (``callboard.kernel.blas`` has the rule)."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from blas_lab import Array, execute, messages, scale_of, values

import callboard.kernel.blas as blas
from callboard.core.dtype import DTYPES, DType
from callboard.kernel.blas import Axpy, Geam, Gemm, GemmBatched, GemmGrouped, GemmStridedBatched, Gemv, Herk
from callboard.kernel.blas.level2 import Rank1, SymmetricRank1
from callboard.kernel.blas.level3 import RankK, Triangular, TwoSided
from callboard.kernel.blas.symmetric import HermitianRank1, SymmetricProduct, SymmetricRank2

BLAS = ("f32", "f64", "c64", "c128")
EVERY = ("f16", "bf16", *BLAS)
ORDERS = ("rows", "columns")
SIZES = (3, 70)
"""Libraries have other routines for small matrices."""


class Given:
    """Operands of one order, and a factor of 0 that is a number or lies on the device."""

    def __init__(self, session: Any, dtype: DType, order: str, n: int, on_device: bool) -> None:
        self.session, self.dtype, self.n = session, dtype, n
        self._columns, self._on_device = order == "columns", on_device

    def put(self, array: Array) -> Any:
        """In this order; of a stack, each matrix."""
        return self.session.put(array.T.copy()).T if self._columns and array.ndim == 2 else self.session.put(array)

    def bad(self, *shape: int) -> Any:
        """NaN and infinities; finite numbers on CUDA, where some routines of cuBLAS multiply them by 0."""
        array = np.full(shape, 3, self.dtype.np)
        if self.session.backend.name == "cpu":
            array[...] = np.nan
            array.reshape(-1)[::3] = np.inf
        return self.put(array)

    @property
    def c(self) -> Array:
        return values(self.dtype, (self.n, self.n), 5)

    @property
    def packed(self) -> Array:
        return values(self.dtype, (self.n * (self.n + 1) // 2,), 5)

    def number(self, value: float, dtype: DType | None = None) -> Any:
        wanted = scale_of(self.dtype) if dtype is None else dtype
        return self.session.put(np.array(value, wanted.np)) if self._on_device else value

    def hermitian(self, packed: bool) -> Array:
        """One with a real diagonal: with an alpha of 0 the imaginary parts may be cleared, or stay."""
        c = self.packed if packed else self.c
        ends = np.cumsum(np.arange(self.n, 0, -1))  # of the columns of the lower triangle
        diagonal = (ends - np.arange(self.n, 0, -1),) if packed else np.diag_indices(self.n)
        c[diagonal] = c[diagonal].real
        return c


def twice(array: Array) -> Array:
    return array * array.dtype.type(2)


Case = Callable[[Given], tuple[Any, Any, Any]]
"""The op with an alpha of 0, what it gives, and what of that is compared (a mask, or ``...``)."""


def product(cls: Any, **flags: Any) -> Case:
    def case(x: Given) -> tuple[Any, Any, Any]:
        a = b = x.bad(x.n, x.n)
        c = x.c
        op = cls(a=a, b=b, c=x.put(c), out=x.bad(x.n, x.n), alpha=x.number(0), beta=x.number(2), **flags)
        return op, twice(c), ...

    return case


def strided(x: Given) -> tuple[Any, Any, Any]:
    c = np.stack([x.c, x.c.T])
    a = x.bad(2, x.n, x.n)
    return GemmStridedBatched(a=a, b=a, c=x.put(c), alpha=x.number(0), beta=x.number(2)), twice(c), ...


def batched(x: Given) -> tuple[Any, Any, Any]:
    c = np.stack([x.c, x.c.T])
    a = (x.bad(x.n, x.n),) * 2
    return GemmBatched(a=a, b=a, c=x.put(c), alpha=x.number(0), beta=x.number(2)), twice(c), ...


def grouped(x: Given) -> tuple[Any, Any, Any]:
    a = (x.bad(x.n, x.n),)
    return GemmGrouped(a=a, b=a, c=(x.put(x.c),), alpha=x.number(0), beta=x.number(2)), (twice(x.c),), ...


def rank_k(cls: Any, lower: bool) -> Case:
    def case(x: Given) -> tuple[Any, Any, Any]:
        real = x.dtype.real if cls.hermitian else x.dtype
        want = twice(x.c)
        if cls.hermitian:
            want[np.diag_indices(x.n)] = want.diagonal().real
        op = cls(a=x.bad(x.n, x.n), c=x.put(x.c), alpha=x.number(0, real), beta=x.number(2, real), lower=lower)
        inside = np.tri(x.n, dtype=bool)
        return op, want, inside if lower else inside.T

    return case


def gemv(**flags: Any) -> Case:
    def case(x: Given) -> tuple[Any, Any, Any]:
        y = x.c[0]
        op = Gemv(a=x.bad(x.n, x.n), x=x.bad(x.n), y=x.put(y), alpha=x.number(0), beta=x.number(2), **flags)
        return op, twice(y), ...

    return case


def rank_1(cls: Any) -> Case:
    return lambda x: (cls(x=x.bad(x.n), y=x.bad(x.n), a=x.put(x.c), alpha=x.number(0)), x.c, ...)


def symmetric_rank(cls: Any) -> Case:
    real_alpha = issubclass(cls, HermitianRank1)
    hermitian = real_alpha or getattr(cls, "hermitian", False)

    def case(x: Given) -> tuple[Any, Any, Any]:
        a = x.hermitian(cls.packed) if hermitian else x.packed if cls.packed else x.c
        vectors = {name: x.bad(x.n) for name in ("x", "y") if name in cls.__struct_fields__}
        return cls(**vectors, a=x.put(a), alpha=x.number(0, x.dtype.real if real_alpha else x.dtype)), a, ...

    return case


def triangular(cls: Any, **flags: Any) -> Case:
    def case(x: Given) -> tuple[Any, Any, Any]:
        return cls(a=x.bad(x.n, x.n), b=x.bad(x.n, x.n), alpha=x.number(0), **flags), np.zeros_like(x.c), ...

    return case


def structured(cls: Any) -> Case:
    def case(x: Given) -> tuple[Any, Any, Any]:
        y = x.c[0]
        storage = "banded" if cls is blas.Gbmv else cls.storage
        a = x.bad(x.n * (x.n + 1) // 2) if storage == "packed" else x.bad(x.n, x.n)
        if storage == "banded":
            a = x.session.put(np.full((x.n, 2), 3, x.dtype.np)).T
        return cls(a=a, x=x.bad(x.n), y=x.put(y), alpha=x.number(0), beta=x.number(2)), twice(y), ...

    return case


Row = tuple[Case, tuple[str, ...]]


def family(case: Callable[..., Case], *bases: Any, suffix: str = "", **flags: Any) -> dict[str, Row]:
    """A row for each message of these families."""
    return {
        f"{cls.__name__.lower()}{suffix}": (case(cls, **flags), tuple(dtype.name for dtype in cls.dtypes))
        for cls in messages(*bases)
    }


CASES: dict[str, Row] = {
    "axpy": (lambda x: (Axpy(x=x.bad(x.n), y=x.put(x.c[0]), alpha=x.number(0)), x.c[0], ...), EVERY),
    "geam": (
        lambda x: (Geam(a=x.bad(x.n, x.n), b=x.put(x.c), alpha=x.number(0), beta=x.number(2)), twice(x.c), ...),
        BLAS,
    ),
    "gemm": (product(Gemm), EVERY),
    "gemm of transposes": (product(Gemm, transpose_a=True, transpose_b=True), EVERY),
    "gemm_strided_batched": (strided, EVERY),
    "gemm_batched": (batched, EVERY),
    "gemm_grouped": (grouped, EVERY),
    "gemv": (gemv(), EVERY),
    "gemv of a transpose": (gemv(transpose=True), EVERY),
    "gemv of a conjugate": (gemv(conj=True), BLAS[2:]),
    **family(rank_1, Rank1),
    **family(symmetric_rank, SymmetricRank1, HermitianRank1, SymmetricRank2),
    **family(structured, SymmetricProduct, blas.Gbmv),
    **family(rank_k, RankK, lower=True),
    **family(rank_k, RankK, suffix=" above", lower=False),
    **family(product, TwoSided),
    **family(product, TwoSided, suffix=" on the right", left=False),
    **family(triangular, Triangular),
    **family(triangular, Triangular, suffix=" on the right", left=False, transpose=True),
}


@pytest.mark.parametrize("on_device", [False, True], ids=["number", "on the device"])
@pytest.mark.parametrize(
    "case, dtype",
    [pytest.param(case, DTYPES[name], id=f"{key} {name}") for key, (case, names) in CASES.items() for name in names],
)
def test_alpha_0_reads_no_factor(session: Any, case: Case, dtype: DType, on_device: bool) -> None:
    for order, n in itertools.product(ORDERS, SIZES):
        op, want, where = case(Given(session, dtype, order, n, on_device))
        found = execute(session, op)
        for got, expected in zip(found, want, strict=True) if isinstance(found, tuple) else [(found, want)]:
            np.testing.assert_array_equal(session.get(got)[where], expected[where], f"{order} of {n}")


@pytest.mark.parametrize("dtype", [pytest.param(DTYPES[name], id=name) for name in ("c64", "c128")])
@pytest.mark.parametrize("k", [0, 3, 70])
def test_herk_clears_the_imaginary_diagonal(session: Any, dtype: DType, k: int) -> None:
    """Whether or not there is a product to add, and whatever scales ``c``."""
    n = 5
    a, c = values(dtype, (n, k), 1), values(dtype, (n, n), 2)
    assert c.diagonal().imag.all()
    for order, lower, alpha, beta, on_device in itertools.product(
        ORDERS if k else ORDERS[:1], (True, False), (0.0, 1.0), (0.0, 1.0, 2.0), (False, True)
    ):
        x = Given(session, dtype, order, n, on_device)
        at_c = x.put(c)
        alpha_at, beta_at = x.number(alpha, dtype.real), x.number(beta, dtype.real)
        execute(session, Herk(a=x.put(a), c=at_c, alpha=alpha_at, beta=beta_at, lower=lower))
        got = session.get(at_c)
        message = f"{order}, lower={lower}, alpha={alpha}, beta={beta}"
        np.testing.assert_array_equal(got.diagonal().imag, 0, message)
        want = alpha * np.sum(abs(a.astype(np.complex128)) ** 2, axis=1) + beta * c.diagonal().real
        np.testing.assert_allclose(got.diagonal().real, want, rtol=1e-5, atol=1e-4, err_msg=message)
        other = ~np.tri(n, dtype=bool) if lower else ~np.tri(n, dtype=bool).T
        np.testing.assert_array_equal(got[other], c[other], message)
