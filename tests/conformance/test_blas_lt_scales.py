"""fp8 products whose scales are one for each row and column, or one for each block."""

from typing import Any

import numpy as np
import pytest
from blas_lab import SHARED, Array, execute, values
from blas_lt_lab import FORWARD, answer, check, expected, wide
from fp8_lab import E4, WIDER, Extras, by_columns, extras, narrow, products, vector_of
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import ShapeError
from callboard.kernel.blas_lt import Matmul
from callboard.testing.tolerances import assert_close

tiles = st.integers(1, 4).map(lambda n: 16 * n)
NOTHING = Extras({}, None, None)
BY_BLOCKS = pytest.mark.parametrize("tiled", [None, "a", "b"], ids=["1x128", "a by 128x128", "b by 128x128"])
"""128 elements along the inner axis, and for one factor 128 x 128."""


def lengths(count: int, seed: int) -> Array:
    """Positive numbers around 1."""
    return np.exp(values(DTYPES["f64"], (count,), seed)).astype("f4")


@pytest.mark.parametrize("stored", WIDER)
@settings(SHARED, max_examples=15)
@given(m=tiles, n=tiles, k=tiles, seed=st.integers(0, 99), added=st.booleans(), fast=st.booleans())
def test_a_scale_for_each_row_and_column(
    session: Any, stored: DType, m: int, n: int, k: int, seed: int, added: bool, fast: bool
) -> None:
    a, b = narrow(E4, (m, k), seed), narrow(E4, (k, n), seed + 1)
    rows, columns = lengths(m, seed + 2), lengths(n, seed + 3)
    c = values(stored, (m, n), seed + 4) if added else None
    op = Matmul(
        a=session.put(a),
        b=by_columns(session, b),
        c=None if c is None else session.put(c),
        beta=0.0 if c is None else 2.0,
        alpha=0.5,
        scale_a=session.put(rows),
        scale_b=session.put(columns),
        out_dtype=stored.name,
        fast_accum=fast,
    )
    want = expected(
        "none", wide(a) * rows[:, None], wide(b) * columns, alpha=0.5, beta=2, c=None if c is None else wide(c)
    )
    got = session.get(execute(session, op))
    assert_close(got, want.out, stored, k + 4, scale=want.scale, factors=E4)


@pytest.mark.parametrize("left, right, stored", products(WIDER))
@pytest.mark.parametrize("epilogue", FORWARD)
def test_rows_and_columns_with_an_epilogue(
    session: Any, epilogue: str, left: DType, right: DType, stored: DType
) -> None:
    m, n, k = 32, 48, 64
    a, b = narrow(left, (m, k), 1), narrow(right, (k, n), 2)
    rows, columns = lengths(m, 6), lengths(n, 7)
    more = extras(session, epilogue, (m, n), stored)
    op = Matmul(
        a=session.put(a),
        b=by_columns(session, b),
        scale_a=session.put(rows),
        scale_b=session.put(columns),
        epilogue=epilogue,  # type: ignore[arg-type]
        out_dtype=stored.name,
        **more.operands,
    )
    want = expected(epilogue, wide(a) * rows[:, None], wide(b) * columns, bias=more.bias)
    check(epilogue, answer(session, op), want, left, stored, k, vector=vector_of(stored))


@pytest.mark.parametrize("stored", WIDER)
@BY_BLOCKS
@pytest.mark.parametrize("m, n, k", [(256, 384, 512), (160, 208, 384), (32, 48, 256)])
def test_a_scale_for_each_block(session: Any, m: int, n: int, k: int, tiled: str | None, stored: DType) -> None:
    a, b = narrow(E4, (m, k), 1), narrow(E4, (k, n), 2)
    product_by_blocks(session, "none", a, b, stored, tiled, NOTHING)


@pytest.mark.parametrize("left, right, stored", products(WIDER))
@BY_BLOCKS
@pytest.mark.parametrize("epilogue", FORWARD)
def test_blocks_with_an_epilogue(
    session: Any, epilogue: str, left: DType, right: DType, stored: DType, tiled: str | None
) -> None:
    """Blocks at the edges are smaller, on every axis."""
    m, n, k = 144, 160, 208
    a, b = narrow(left, (m, k), 1), narrow(right, (k, n), 2)
    product_by_blocks(session, epilogue, a, b, stored, tiled, extras(session, epilogue, (m, n), stored))


def test_scales_by_blocks_start_at_a_multiple_of_16_bytes(session: Any) -> None:
    a, b = narrow(E4, (16, 256), 1), narrow(E4, (256, 16), 2)
    A, B = session.put(a), by_columns(session, b)
    numbers = session.put(np.ones(36, "f4"))
    if not hasattr(numbers, "allocation"):
        pytest.skip("a library session has no refs, and what starts where is told by them")
    at_0 = numbers[:32].reshape(2, 16)
    for start, shift in ((1, 4), (2, 8)):
        late = numbers[start : start + 32].reshape(2, 16)
        says = rf"{shift} bytes into its buffer, which must be a multiple of 16: keep it in an array of its own"
        with pytest.raises(ShapeError, match=rf"blas_lt\.matmul: scale_a is f32\[16, 2\].* and starts {says}"):
            Matmul(a=A, b=B, scale_a=late.T, scale_b=at_0)
        with pytest.raises(ShapeError, match=rf"blas_lt\.matmul: scale_b is f32\[2, 16\] and starts {says}"):
            Matmul(a=A, b=B, scale_a=at_0.T, scale_b=late)
    at_16 = numbers[4:].reshape(2, 16)
    got = answer(session, Matmul(a=A, b=B, scale_a=at_16.T, scale_b=at_16))
    check("none", got, expected("none", wide(a), wide(b)), E4, DTYPES["bf16"], 256)


def product_by_blocks(
    session: Any, epilogue: str, a: Array, b: Array, stored: DType, tiled: str | None, more: Extras
) -> None:
    size_a, size_b = (128 if tiled == "a" else 1, 128), (128, 128 if tiled == "b" else 1)
    random = np.random.default_rng(3)
    scale_a, scale_b = (
        random.uniform(0.5, 1.5, (-(-x.shape[0] // s[0]), -(-x.shape[1] // s[1]))).astype("f4")
        for x, s in ((a, size_a), (b, size_b))
    )
    op = Matmul(
        a=session.put(a),
        b=by_columns(session, b),
        scale_a=scales_for(session, scale_a, inner=1, tiled=tiled == "a"),
        scale_b=scales_for(session, scale_b, inner=0, tiled=tiled == "b"),
        epilogue=epilogue,  # type: ignore[arg-type]
        out_dtype=stored.name,
        **more.operands,
    )
    left, right = wide(a) * spread(scale_a, a.shape, size_a), wide(b) * spread(scale_b, b.shape, size_b)
    want = expected(epilogue, left, right, bias=more.bias)
    check(epilogue, answer(session, op), want, E4, stored, a.shape[1], vector=vector_of(stored))


def spread(blocks: Array, shape: tuple[int, ...], size: tuple[int, int]) -> Array:
    """Every block's number for each of its elements, by index."""
    rows, columns = np.indices(shape)
    out: Array = blocks.astype(np.float64)[rows // size[0], columns // size[1]]
    return out


def scales_for(session: Any, scales: Array, *, inner: int, tiled: bool) -> Any:
    """Scales as CUDA wants them to lie: of a tile the inner blocks adjacent, else the outer ones."""
    adjacent = inner if tiled else 1 - inner
    stored = scales if adjacent == 1 else scales.T
    if tiled:
        stored = np.pad(stored, ((0, 0), (0, -stored.shape[1] % 4)))
    ref = session.put(stored)[:, : scales.shape[adjacent]]
    return ref if adjacent == 1 else ref.T
