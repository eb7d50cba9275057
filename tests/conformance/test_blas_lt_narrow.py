"""``Matmul`` on fp8 and i8: scales of a tensor, amax, saturation, batches, and what is stored."""

from typing import Any

import numpy as np
import pytest
from blas_lab import SHARED, Array, execute, values
from blas_lt_lab import AUX, EPILOGUES, FORWARD, answer, check, expected, message, wide
from fp8_lab import (
    BF16,
    E4,
    E5,
    LARGEST,
    NARROW,
    WIDER,
    Extras,
    by_columns,
    extras,
    kept_as,
    narrow,
    products,
    saturated,
    scale,
    vector_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES, DType
from callboard.kernel.blas_lt import Matmul
from callboard.testing.tolerances import assert_close

I8 = DTYPES["i8"]
tiles = st.integers(1, 4).map(lambda n: 16 * n)
STACKS = [
    pytest.param((3,), (3,), id="each its own"),
    pytest.param((3,), (), id="one b"),
    pytest.param((), (3,), id="one a"),
    pytest.param((1,), (3,), id="a batch of one a"),
]
"""Batch axes of ``a`` and ``b``."""


@pytest.mark.parametrize("left, right, stored", products(WIDER + NARROW))
@settings(SHARED, max_examples=12)
@given(data=st.data())
def test_scaled_products(session: Any, left: DType, right: DType, stored: DType, data: st.DataObject) -> None:
    m, n, k, seed = (data.draw(e) for e in (tiles, tiles, tiles, st.integers(0, 999)))
    a, b = narrow(left, (m, k), seed), narrow(right, (k, n), seed + 1)
    scales = {name: data.draw(st.sampled_from([None, 0.5, 3.0])) for name in ("scale_a", "scale_b")}
    fp8 = stored.name in LARGEST
    out_scale = data.draw(st.sampled_from([None, 0.25])) if fp8 else None
    c = values(BF16 if fp8 else stored, (m, n), seed + 2) if data.draw(st.booleans()) else None
    amax = session.put(np.float32(7)) if fp8 and data.draw(st.booleans()) else None
    op = Matmul(
        a=session.put(a),
        b=by_columns(session, b),
        scale_a=None if scales["scale_a"] is None else scale(session, scales["scale_a"]),
        scale_b=None if scales["scale_b"] is None else scale(session, scales["scale_b"]),
        c=None if c is None else session.put(c),
        beta=0.0 if c is None else 2.0,
        alpha=0.5,
        scale_out=None if out_scale is None else scale(session, out_scale),
        amax=amax,
        out_dtype=stored.name,
        fast_accum=data.draw(st.booleans()),
    )
    got = session.get(execute(session, op))
    alpha = 0.5 * (scales["scale_a"] or 1) * (scales["scale_b"] or 1)
    want = expected("none", wide(a), wide(b), c=None if c is None else wide(c), alpha=alpha, beta=2)
    factor = out_scale or 1
    assert_close(got, saturated(factor * want.out, stored), stored, k + 4, scale=factor * want.scale, factors=left)
    if amax is not None:
        assert_close(session.get(amax), abs(want.out).max(), "f32", k + 4, scale=want.scale.max(), factors=left)


@pytest.mark.parametrize("stored", WIDER + NARROW[:1])
@pytest.mark.parametrize("left", [E4, E5], ids=str)
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_every_epilogue_of_fp8_factors(session: Any, epilogue: str, left: DType, stored: DType) -> None:
    m, n, k = 32, 48, 64
    a, b = narrow(left, (m, k), 1), narrow(E4, (k, n), 2)
    more = extras(session, epilogue, (m, n), stored)
    half = scale(session, 0.5)
    op = message(epilogue)(
        a=session.put(a),
        b=by_columns(session, b),
        scale_a=half,
        epilogue=epilogue,
        out_dtype=stored.name,
        **more.operands,
    )
    got = answer(session, op)
    want = expected(epilogue, 0.5 * wide(a), wide(b), bias=more.bias, aux=more.aux)
    if epilogue == "bgrad_a":  # of what is stored, not of what it stands for
        want = want._replace(grad=(wide(a).sum(-1), abs(wide(a)).sum(-1)))
    check(epilogue, got, want, left, stored, k, kept=kept_as(stored), vector=vector_of(stored))


@pytest.mark.parametrize(
    "left, right, stored, asked",
    [
        pytest.param(*product.values, asked, id=f"{product.id}-{asked}")
        for product in products(NARROW)
        for asked in (("both", "amax", "scale_out") if product.id == "e4m3-f8_e4m3" else ("both",))
    ],
)
@pytest.mark.parametrize("epilogue", FORWARD + AUX)
def test_amax_and_scale_of_an_fp8_result_come_last(
    session: Any, epilogue: str, left: DType, right: DType, stored: DType, asked: str
) -> None:
    """Both are of what the epilogue gives; the scale changes neither amax nor aux."""
    m, n, k = 32, 48, 64
    a, b = narrow(left, (m, k), 1), narrow(right, (k, n), 2)
    more = extras(session, epilogue, (m, n), stored)
    factor = 1.0 if asked == "amax" else 2.0**-4
    amax = None if asked == "scale_out" else session.put(np.float32(7))
    op = message(epilogue)(
        a=session.put(a),
        b=by_columns(session, b),
        scale_a=scale(session, 0.5),
        scale_b=scale(session, 3.0),
        scale_out=None if asked == "amax" else scale(session, factor),
        amax=amax,
        epilogue=epilogue,
        out_dtype=stored.name,
        **more.operands,
    )
    got = answer(session, op)
    want = expected(epilogue, 0.5 * wide(a), 3 * wide(b), bias=more.bias)
    got["out"] = wide(got["out"]) / factor  # a power of two, so exact
    check(epilogue, got, want, left, stored, k, kept=BF16)
    if amax is not None:
        size = (want.scale + abs(want.pre)).max()
        assert_close(session.get(amax), abs(want.out).max(), "f32", k + 4, scale=size, factors=left)


@pytest.mark.parametrize("stored", [E4, E5], ids=str)
def test_fp8_results_saturate_and_keep_nan(session: Any, stored: DType) -> None:
    a = np.full((16, 32), 240, E4.np)
    a[1], a[2, 3] = -a[1], np.nan
    b = np.full((32, 16), 240, (E5 if stored is E5 else E4).np)
    op = Matmul(a=session.put(a), b=by_columns(session, b), out_dtype=stored.name)
    got = session.get(execute(session, op)).astype(np.float64)
    largest = LARGEST[stored.name]
    np.testing.assert_array_equal(got[0], largest)
    np.testing.assert_array_equal(got[1], -largest)
    assert np.isnan(got[2]).all()


@settings(SHARED, max_examples=30)
@given(data=st.data(), odd=st.booleans())
def test_i8_is_exact_in_i32(session: Any, data: st.DataObject, odd: bool) -> None:
    m, n, k = (data.draw(st.integers(1, 5)) * (1 if odd else 16) for _ in range(3))
    a, b = values(I8, (m, k), 1), values(I8, (k, n), 2)
    c = values(I8, (m, n), 3).astype(np.int32) if data.draw(st.booleans()) else None
    op = Matmul(
        a=session.put(a),
        b=by_columns(session, b),
        c=None if c is None else session.put(c),
        alpha=data.draw(st.sampled_from([1, -3])),
        beta=0 if c is None else 5,
    )
    want = int(op.alpha) * (a.astype(np.int64) @ b.astype(np.int64))  # type: ignore[arg-type]
    if c is not None:
        want = want + 5 * c.astype(np.int64)
    np.testing.assert_array_equal(session.get(execute(session, op)), want)


@pytest.mark.parametrize("alpha", [1.0, 0.003, 0.5, 100.0])
def test_i8_is_rounded_to_even_and_saturates(session: Any, alpha: float) -> None:
    a, b = values(I8, (16, 32), 1), values(I8, (32, 16), 2)
    op = Matmul(a=session.put(a), b=by_columns(session, b), alpha=alpha, out_dtype="i8")
    exact = np.float32(alpha) * (a.astype(np.int64) @ b.astype(np.int64)).astype(np.float32)
    np.testing.assert_array_equal(session.get(execute(session, op)), np.clip(np.rint(exact), -128, 127).astype(np.int8))


@pytest.mark.parametrize("each_a, each_b", STACKS)
@pytest.mark.parametrize("stored", ["i32", "i8"])
@pytest.mark.parametrize("m, n, k", [(16, 32, 48), (3, 5, 7)])
def test_batches_of_i8(
    session: Any, m: int, n: int, k: int, stored: str, each_a: tuple[int, ...], each_b: tuple[int, ...]
) -> None:
    a, b, c = values(I8, (*each_a, m, k), 1), values(I8, (*each_b, k, n), 2), values(I8, (3, m, n), 3)
    alpha, beta = (-3.0, 5.0) if stored == "i32" else (2.0**-8, -0.5)  # no intermediate result is rounded
    op = Matmul(
        a=session.put(a),
        b=by_columns(session, b),
        c=session.put(c.astype(DTYPES[stored].np)),
        alpha=alpha,
        beta=beta,
        out_dtype=stored,
    )
    want = alpha * (wide(a) @ wide(b)) + beta * wide(c)
    if stored == "i8":
        want = np.clip(np.rint(want), -128, 127)
    np.testing.assert_array_equal(session.get(execute(session, op)), want)


@pytest.mark.parametrize(
    "left, right, stored",
    [p for p in products(WIDER + NARROW) if p.values[:2] == (E4, E4) or p.values[2] in (BF16, E5)],
)
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_batches_of_fp8(session: Any, epilogue: str, left: DType, right: DType, stored: DType) -> None:
    """One pair of scales for the batch; a bias, a gradient and an aux for each matrix."""
    m, n, k = 32, 48, 64
    a, b = narrow(left, (3, m, k), 1), narrow(right, (3, k, n), 2)
    more = extras(session, epilogue, (3, m, n), stored, bias_of_each=True)
    batch_of_fp8(session, epilogue, a, b, stored, more)


@pytest.mark.parametrize("each_a, each_b", STACKS)
@pytest.mark.parametrize("stored", [BF16, E4], ids=str)
@pytest.mark.parametrize("epilogue", ["none", "relu_bias", "gelu_aux_bias", "drelu_bgrad", "bgrad_a", "bgrad_b"])
def test_batches_of_fp8_with_one_of_a_kind(
    session: Any, epilogue: str, stored: DType, each_a: tuple[int, ...], each_b: tuple[int, ...]
) -> None:
    """One factor, and one bias, for the whole batch."""
    m, n, k = 32, 48, 64
    a, b = narrow(E4, (*each_a, m, k), 1), narrow(E4, (*each_b, k, n), 2)
    batch_of_fp8(session, epilogue, a, b, stored, extras(session, epilogue, (3, m, n), stored))


def batch_of_fp8(session: Any, epilogue: str, a: Array, b: Array, stored: DType, more: Extras) -> None:
    op = message(epilogue)(
        a=session.put(a),
        b=by_columns(session, b),
        scale_a=scale(session, 0.5),
        scale_b=scale(session, 2.0),
        epilogue=epilogue,
        out_dtype=stored.name,
        **more.operands,
    )
    want = expected(epilogue, 0.5 * wide(a), 2 * wide(b), bias=more.bias, aux=more.aux)
    if epilogue in ("bgrad_a", "bgrad_b"):  # of what is stored, not of what it stands for
        want = want._replace(grad=expected(epilogue, wide(a), wide(b)).grad)
    got = answer(session, op)
    check(epilogue, got, want, E4, stored, a.shape[-1], kept=kept_as(stored), vector=vector_of(stored))
