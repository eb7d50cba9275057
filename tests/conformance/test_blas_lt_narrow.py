"""``Matmul`` on fp8 and i8: scales, amax, saturation, and what is stored."""

from typing import Any

import numpy as np
import pytest
from blas_lab import SHARED, Array, execute, place_matrix, values
from blas_lt_lab import EPILOGUES, answer, aux_for, check, expected, message, wide
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES, DType
from callboard.core.lowprec import encode_f8
from callboard.kernel.blas_lt import Matmul
from callboard.testing.tolerances import assert_close

E4, E5, I8, I32, BF16 = (DTYPES[name] for name in ("f8_e4m3", "f8_e5m2", "i8", "i32", "bf16"))
FACTORS = [pytest.param(E4, E4, id="e4m3"), pytest.param(E4, E5, id="e4m3-e5m2"), pytest.param(E5, E4, id="e5m2-e4m3")]
RESULTS = [pytest.param(DTYPES[name], id=name) for name in ("bf16", "f16", "f32", "f8_e4m3", "f8_e5m2")]
LARGEST = {"f8_e4m3": 448.0, "f8_e5m2": 57344.0}
tiles = st.integers(1, 4).map(lambda n: 16 * n)


def narrow(dtype: DType, shape: tuple[int, ...], seed: int) -> Array:
    return encode_f8(values(DTYPES["f64"], shape, seed), dtype)


def by_columns(session: Any, array: Array) -> Any:
    """``array`` with its columns adjacent, as the tensor cores of Hopper want an fp8 ``b``."""
    return place_matrix(session, array, "columns").ref


def scale(session: Any, *numbers: float) -> Any:
    array = np.array(numbers, np.float32)
    return session.put(array[0] if array.size == 1 else array)


def saturated(x: Array, dtype: DType) -> Array:
    """What storing as fp8 makes of values beyond the largest one."""
    return np.clip(x, -LARGEST[dtype.name], LARGEST[dtype.name]) if dtype.name in LARGEST else x


@pytest.mark.parametrize(
    "left, right, stored",
    [
        pytest.param(*pair.values, *stored.values, id=f"{pair.id}-{stored.id}")
        for pair in FACTORS
        for stored in RESULTS
        if (pair.id, stored.id) != ("e4m3", "f8_e5m2")  # which no GPU makes
    ],
)
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


@pytest.mark.parametrize("stored", RESULTS[:4])
@pytest.mark.parametrize("left", [E4, E5], ids=str)
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_every_epilogue_of_fp8_factors(session: Any, epilogue: str, left: DType, stored: DType) -> None:
    m, n, k = 32, 48, 64
    vector, kept = DTYPES["f16" if stored.name == "f16" else "bf16"], BF16 if stored is E4 else stored
    a, b, bias = narrow(left, (m, k), 1), narrow(E4, (k, n), 2), values(vector, (n,), 3)
    operands: dict[str, Any] = {}
    aux = None
    if "bias" in epilogue:
        operands["bias"] = session.put(bias)
    if epilogue.startswith("d"):
        stored_aux, aux = aux_for(epilogue, (m, n), kept, 5)
        operands["aux"] = session.put(stored_aux)
    half = scale(session, 0.5)
    op = message(epilogue)(
        a=session.put(a), b=by_columns(session, b), scale_a=half, epilogue=epilogue, out_dtype=stored.name, **operands
    )
    got = answer(session, op)
    want = expected(epilogue, 0.5 * wide(a), wide(b), bias=wide(bias) if "bias" in epilogue else None, aux=aux)
    if epilogue == "bgrad_a":  # of what is stored, not of what it stands for
        want = want._replace(grad=(wide(a).sum(-1), abs(wide(a)).sum(-1)))
    check(epilogue, got, want, left, stored, k, kept=kept, vector=vector)


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


@pytest.mark.parametrize("stored", RESULTS[:3])
@settings(SHARED, max_examples=15)
@given(m=tiles, n=tiles, k=tiles, seed=st.integers(0, 99))
def test_a_scale_for_each_row_and_column(session: Any, stored: DType, m: int, n: int, k: int, seed: int) -> None:
    a, b = narrow(E4, (m, k), seed), narrow(E4, (k, n), seed + 1)
    rows, columns = (np.exp(values(DTYPES["f64"], (e,), seed + i)).astype("f4") for i, e in ((2, m), (3, n)))
    op = Matmul(
        a=session.put(a),
        b=by_columns(session, b),
        scale_a=session.put(rows),
        scale_b=session.put(columns),
        out_dtype=stored.name,
    )
    want = expected("none", wide(a) * rows[:, None], wide(b) * columns)
    got = session.get(execute(session, op))
    assert_close(got, want.out, stored, k + 4, scale=want.scale, factors=E4)


def spread(blocks: Array, shape: tuple[int, ...], size: tuple[int, int]) -> Array:
    """Every block's number for each of its elements, by index."""
    rows, columns = np.indices(shape)
    out: Array = blocks.astype(np.float64)[rows // size[0], columns // size[1]]
    return out


@pytest.mark.parametrize("stored", RESULTS[:3])
@pytest.mark.parametrize("tiled", [None, "a", "b"])
@pytest.mark.parametrize("m, n, k", [(256, 384, 512), (160, 208, 384), (32, 48, 256)])
def test_a_scale_for_each_block(session: Any, m: int, n: int, k: int, tiled: str | None, stored: DType) -> None:
    """128 elements along the inner axis, and for one factor 128 x 128."""
    a, b = narrow(E4, (m, k), 1), narrow(E4, (k, n), 2)
    size_a, size_b = (128 if tiled == "a" else 1, 128), (128, 128 if tiled == "b" else 1)
    random = np.random.default_rng(3)
    scale_a, scale_b = (
        random.uniform(0.5, 1.5, (-(-r // s[0]), -(-c // s[1]))).astype("f4")
        for (r, c), s in (((m, k), size_a), ((k, n), size_b))
    )
    op = Matmul(
        a=session.put(a),
        b=by_columns(session, b),
        scale_a=scales_for(session, scale_a, inner=1, tiled=tiled == "a"),
        scale_b=scales_for(session, scale_b, inner=0, tiled=tiled == "b"),
        out_dtype=stored.name,
    )
    want = expected("none", wide(a) * spread(scale_a, a.shape, size_a), wide(b) * spread(scale_b, b.shape, size_b))
    got = session.get(execute(session, op))
    assert_close(got, want.out, stored, k + 4, scale=want.scale, factors=E4)


def scales_for(session: Any, scales: Array, *, inner: int, tiled: bool) -> Any:
    """Scales as CUDA wants them to lie: of a tile the inner blocks adjacent, else the outer ones."""
    adjacent = inner if tiled else 1 - inner
    stored = scales if adjacent == 1 else scales.T
    if tiled:
        stored = np.pad(stored, ((0, 0), (0, -stored.shape[1] % 4)))
    ref = session.put(stored)[:, : scales.shape[adjacent]]
    return ref if adjacent == 1 else ref.T


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


def test_batches_of_fp8_share_their_scales(session: Any) -> None:
    a, b = narrow(E4, (3, 32, 64), 1), narrow(E4, (3, 64, 48), 2)
    op = Matmul(a=session.put(a), b=by_columns(session, b), scale_a=scale(session, 0.5), scale_b=scale(session, 2.0))
    want = expected("none", 0.5 * wide(a), 2 * wide(b))
    check("none", {"out": session.get(execute(session, op))}, want, E4, BF16, 64)
