"""Products of rows with a vector by the kernels of ``data/sparse_rows.cu``, compiled for the CPU, beside SciPy's."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from host_backend import HostSession
from host_compiler import CompiledKernels, CompilingDriver, HostCompiler
from host_idle import IdleCusparse
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.backends.cuda.sparse import cusparse
from callboard.backends.cuda.sparse.products import ITEMS, ROW_DTYPES
from callboard.core.dtype import DTYPES
from callboard.kernel import sparse

LENGTHS = {
    "some": lambda draw, n: draw.integers(0, 21, n),
    "few": lambda draw, n: draw.random(n) < 0.01,
    "none": lambda draw, n: np.zeros(n, int),
    "long": lambda draw, n: draw.integers(0, 90, n) * (draw.random(n) < 0.1) + 40,
    "uneven": lambda draw, n: np.minimum(draw.zipf(1.5, n), 700),
    "one": lambda draw, n: np.where(np.arange(n) == n // 2, 3 * ITEMS + 7, draw.integers(0, 2, n)),
    "last": lambda draw, n: np.where(np.arange(n) == n - 1, 2 * ITEMS, 0),
    "blocks": lambda draw, n: np.full(n, ITEMS - 1),
}
"""Entries of each of n rows."""


@pytest.fixture(scope="module")
def session(compiler: HostCompiler) -> Iterator[HostSession]:
    driver = CompilingDriver()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cusparse, "load_cusparse", lambda: IdleCusparse(driver))
        with HostSession(driver) as opened:
            opened.device.kernels = CompiledKernels(driver, compiler, "sparse_rows")  # type: ignore[attr-defined]
            yield opened


def matrix(lengths: str, rows: int, cols: int, dtype: str, index: str, seed: int) -> Any:
    """Small whole numbers, so that sums are exact; entries of a row may share a column."""
    draw = np.random.default_rng(seed)
    ends = np.concatenate([[0], np.cumsum(LENGTHS[lengths](draw, rows))]).astype(DTYPES[index].np)
    values = numbers(draw, int(ends[-1]), dtype)
    made = sp.csr_array((rows, cols), dtype=values.dtype)
    made.data, made.indices, made.indptr = values, draw.integers(0, cols, len(values), ends.dtype), ends
    return made


def numbers(draw: Any, n: int, dtype: str) -> Any:
    found = draw.integers(-9, 10, n) + (1j * draw.integers(-9, 10, n) if dtype.startswith("c") else 0)
    return found.astype(DTYPES[dtype].np)


@given(
    lengths=st.sampled_from(sorted(LENGTHS)),
    rows=st.sampled_from([0, 1, 2, 60, 64, 700, ITEMS, 2500]),
    cols=st.sampled_from([1, 300]),
    dtype=st.sampled_from(ROW_DTYPES),
    index=st.sampled_from(["i32", "i64"]),
    form=st.sampled_from([sparse.CsrRef, sparse.CscRef]),
    beta=st.sampled_from([0.0, 2.0]),
    arrays=st.booleans(),
    seed=st.integers(0, 9),
)
@settings(max_examples=40, deadline=None)
def test_sums_are_those_of_scipy(
    session: HostSession, lengths: str, rows: int, cols: int, dtype: str, index: str, form: Any, beta: float,
    arrays: bool, seed: int,
) -> None:  # fmt: skip
    if lengths in ("long", "blocks", "uneven"):
        rows = min(rows, 64)
    a, draw = matrix(lengths, rows, cols, dtype, index, seed), np.random.default_rng(seed)
    x, y = numbers(draw, cols, dtype), numbers(draw, rows, dtype)
    parts = {"values": a.data, "indices": a.indices, "indptr": a.indptr}
    transpose = form is sparse.CscRef
    held = form(**{n: session.put(one) for n, one in parts.items()}, shape=a.shape[::-1] if transpose else a.shape)
    out = session.put(np.full(rows, np.nan, x.dtype))
    alpha, at_beta = (session.put(np.full((), n, x.dtype)) if arrays else n for n in (3.0, beta))
    op = sparse.SpMv(
        a=held, x=session.put(x), y=session.put(y), out=out, alpha=alpha, beta=at_beta, transpose=transpose,
        deterministic=True,
    )  # fmt: skip
    session.submit(op)
    np.testing.assert_array_equal(session.get(out), 3 * (a @ x) + (beta * y if beta else 0))
