"""Functions of the user's at both ends of a transform: on a GPU what they compute, on a CPU why they are refused."""

from typing import Any

import numpy as np
import pytest
from blas_lab import execute
from fft_lab import check, half_spectrum, loaded, norm_scale, real, stored, transformed

from callboard.core.errors import LibraryError, ShapeError, UnsupportedOp
from callboard.kernel.fft import FftWithCallback

WINDOW = """
__device__ real weight(const void *data, unsigned long long i) { return ((const real *)data)[i % 64]; }
__device__ TYPE load(const TYPE *x, unsigned long long i, const void *data) {
    TYPE value = x[i];
    BODY
    return value;
}
"""
DOUBLED = """
__device__ real weight(real x) { return x + x; }
__device__ void store(TYPE *out, unsigned long long i, TYPE value, const void *) { out[i] = BODY; }
"""
ON_COMPLEX = "value.x *= weight(data, i), value.y *= weight(data, i);"


def load_of(kind: str) -> str:
    if kind == "R2C":
        return WINDOW.replace("TYPE", "real").replace("BODY", "value *= weight(data, i);")
    return WINDOW.replace("TYPE", "cplx").replace("BODY", ON_COMPLEX)


def store_of(kind: str) -> str:
    if kind == "C2R":
        return DOUBLED.replace("TYPE", "real").replace("BODY", "weight(value)")
    return DOUBLED.replace("TYPE", "cplx").replace("BODY", "{weight(value.x), weight(value.y)}")


def run(session: Any, op: Any) -> Any:
    """On a CPU, the test ends here: the op is refused, with the reason."""
    if session.backend.name == "cpu":
        with pytest.raises(UnsupportedOp, match=r"fft\.with_callback.*CUDA C\+\+, which a CPU cannot run"):
            session.submit(op)
        return None
    return session.get(execute(session, op))


@pytest.mark.parametrize("norm", ["backward", "ortho"])
@pytest.mark.parametrize("precision", ["f32", "f64"])
@pytest.mark.parametrize("shape", [(64,), (5, 64), (3, 8, 64)], ids=str)
@pytest.mark.parametrize("kind", ["C2C", "R2C", "C2R"])
def test_load_and_store(session: Any, kind: Any, shape: tuple[int, ...], precision: str, norm: Any) -> None:
    """A window of 64 weights, one for each element of the last axis of the input, and results twice as large."""
    axes = tuple(range(len(shape)))[-2:] if len(shape) == 3 else (-1,)
    weights = real(precision, (64,), 7) + 2
    if kind == "R2C":
        x = real(precision, shape, 1)
    elif kind == "C2C":
        x = stored(real("f64", shape, 1) + 1j * real("f64", shape, 2), precision)
    else:
        x = half_spectrum(precision, (*shape[:-1], 126), axes, 3)
    op = FftWithCallback(
        x=session.put(x),
        kind=kind,
        load=load_of(kind),
        store=store_of(kind),
        load_data=session.put(weights.astype(x.real.dtype)),
        axes=axes,
        norm=norm,
    )
    got = run(session, op)
    if got is None:
        return
    name = {"C2C": "fftn", "R2C": "rfftn", "C2R": "irfftn"}[kind]
    windowed = (x if kind == "R2C" else loaded(x, precision)) * weights
    want = 2 * transformed(name, windowed, axes=axes, norm=norm)
    real_shape = (*shape[:-1], 126) if kind == "C2R" else shape
    points = int(np.prod([real_shape[a] for a in axes]))
    scale = 2 * norm_scale(points, "inverse" if kind == "C2R" else "forward", norm)
    got = got if kind == "C2R" else loaded(got, precision)
    check(session, got, want, precision, windowed, axes, points, scale)
    np.testing.assert_array_equal(session.get(op.x), x)


def test_only_one_of_them(session: Any) -> None:
    x, weights = stored(real("f64", (64,), 1) + 0j, "f32"), real("f32", (64,), 7)
    at_x, at_weights = session.put(x), session.put(weights)
    got = run(session, FftWithCallback(x=at_x, load=load_of("C2C"), load_data=at_weights, norm="forward"))
    if got is None:
        return
    want = transformed("fft", x * weights, norm="forward")
    check(session, loaded(got, "f32"), want, "f32", x * weights, (-1,), 64, 1 / 64)
    got = run(session, FftWithCallback(x=at_x, store=store_of("C2C"), direction="inverse"))
    check(session, loaded(got, "f32"), 2 * transformed("ifft", x), "f32", x, (-1,), 64, 2 / 64)


def test_data_may_change_from_call_to_call(session: Any) -> None:
    """One plan, other arrays: the address comes with the call."""
    x = session.put(np.ones(64, np.complex64))
    for seed in range(3):
        weights = real("f32", (64,), seed)
        got = run(session, FftWithCallback(x=x, load=load_of("C2C"), load_data=session.put(weights)))
        if got is None:
            return
        check(session, loaded(got, "f32"), transformed("fft", weights + 0j), "f32", weights, (-1,), 64, 1.0)


def test_source_that_does_not_compile_is_told(session: Any) -> None:
    x = session.put(np.ones(64, np.complex64))
    bad = "__device__ cplx load(const cplx *x, unsigned long long i, const void *data) {\n    return nothing;\n}"
    expected = LibraryError if session.backend.name == "cuda" else UnsupportedOp
    with pytest.raises(expected) as caught:
        session.submit(FftWithCallback(x=x, load=bad))
    if expected is LibraryError:
        assert 'identifier "nothing" is undefined' in str(caught.value)
        assert "(2)" in str(caught.value), "the line of the source"


def refused(session: Any, **settings: Any) -> str:
    with pytest.raises(ShapeError) as caught:
        session.submit(FftWithCallback(**{"load": "x", "x": session.empty((4, 6), "c64"), **settings}))
    return str(caught.value)


def test_what_does_not_fit_is_refused(session: Any) -> None:
    assert "load and store are None" in refused(session, load=None)
    assert "single and double precision" in refused(session, x=session.empty((4, 2), "f16"))
    assert "must be f16, f32 or f64" in refused(session, kind="R2C")
    assert "it must have no gaps" in refused(session, x=session.empty((4, 6), "c64").T)
    assert "load_data is f32[3], strides (2,); it must have no gaps" in refused(
        session, load_data=session.empty(6)[::2]
    )
    assert "between two complex numbers" in refused(session, kind="R2C", x=session.empty(9)[1:])
