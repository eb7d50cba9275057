"""Batches laid out by numbers, apart and in place, against SciPy's on the same elements."""

from typing import Any

import numpy as np
import pytest
from blas_lab import SENTINEL, SHARED, execute, seeds
from fft_lab import check, half_spectrum, norm_scale, norms, real, stored, transformed
from hypothesis import given
from hypothesis import strategies as st

from callboard.core.errors import ShapeError
from callboard.kernel.fft import FftPlanMany, FftPlanManyInPlace

KINDS = {
    "C2C": ("f32", True, True),
    "R2C": ("f32", False, True),
    "C2R": ("f32", True, False),
    "Z2Z": ("f64", True, True),
    "D2Z": ("f64", False, True),
    "Z2D": ("f64", True, False),
}


def values(precision: str, dims: tuple[int, ...], batch: int, is_complex: bool, to_real: bool, seed: int) -> Any:
    """The input of a batch, ``[batch, *dims]``."""
    axes = tuple(range(1, len(dims) + 1))
    if to_real:
        return half_spectrum(precision, (batch, *dims), axes, seed)
    signal = real("f64", (batch, *dims), seed)
    return (
        stored(signal + 1j * signal[::-1], precision) if is_complex else signal.astype(precision.replace("f", "float"))
    )


def wanted(x: Any, dims: tuple[int, ...], is_complex: bool, to_complex: bool, direction: str, norm: str) -> Any:
    axes = tuple(range(1, len(dims) + 1))
    if not to_complex:
        return transformed("irfftn", x, s=dims, axes=axes, norm=norm)
    name = "rfftn" if not is_complex else "fftn" if direction == "forward" else "ifftn"
    return transformed(name, x, axes=axes, norm=norm)


def check_batch(session: Any, got: Any, x: Any, dims: Any, kind: str, direction: str, norm: str) -> None:
    precision, is_complex, to_complex = KINDS[kind]
    want = wanted(x, dims, is_complex, to_complex, direction, norm)
    really = "inverse" if not to_complex else "forward" if not is_complex else direction
    points, axes = int(np.prod(dims)), tuple(range(1, len(dims) + 1))
    got = got.astype(np.clongdouble) if to_complex else got
    check(session, got, want, precision, x, axes, points, norm_scale(points, really, norm))


@st.composite
def sides(draw: st.DrawFn, dims: tuple[int, ...], batch: int) -> tuple[dict[str, Any], tuple[int, ...], int]:
    """Numbers of one side, the steps that they mean, and how many elements that reaches."""
    stride = draw(st.sampled_from([1, 1, 2, 3]))
    embed = tuple(n + draw(st.sampled_from([0, 0, 1, 2])) for n in dims)
    steps = [stride]
    for extent in reversed(embed[1:]):
        steps.insert(0, steps[0] * extent)
    reach = sum((n - 1) * s for n, s in zip(dims, steps, strict=True)) + 1
    default = steps[0] * embed[0]
    dist = draw(st.sampled_from([None, reach, default + 1]))
    numbers = {"embed": embed, "stride": stride, "dist": dist}
    if embed == dims and draw(st.booleans()):
        numbers["embed"] = None
    step = default if dist is None else dist
    return numbers, (step, *steps), (batch - 1) * step + reach


@SHARED
@given(data=st.data(), kind=st.sampled_from(sorted(KINDS)), norm=norms, seed=seeds)
def test_apart(session: Any, data: st.DataObject, kind: Any, norm: Any, seed: int) -> None:
    precision, is_complex, to_complex = KINDS[kind]
    dims = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3), "dims"))
    batch, direction = data.draw(st.integers(1, 4), "batch"), data.draw(st.sampled_from(["forward", "inverse"]))
    x = values(precision, dims, batch, is_complex, not to_complex, seed)
    want = wanted(x, dims, is_complex, to_complex, direction, norm)
    result = np.dtype(stored(want, precision).dtype if to_complex else x.real.dtype)
    src, src_steps, src_size = data.draw(sides(x.shape[1:], batch))
    out, out_steps, out_size = data.draw(sides(want.shape[1:], batch))
    whole_x, whole_out = np.full(src_size + 2, SENTINEL, x.dtype), np.full(out_size + 2, SENTINEL, result)
    strided(whole_x, x.shape, src_steps)[...] = x
    at_x, at_out = session.put(whole_x), session.put(whole_out)
    numbers: Any = {f"in_{k}": v for k, v in src.items()} | {f"out_{k}": v for k, v in out.items()}
    op = FftPlanMany(x=at_x, out=at_out, kind=kind, dims=dims, batch=batch, direction=direction, norm=norm, **numbers)
    got = session.get(execute(session, op))
    check_batch(session, strided(got, want.shape, out_steps).copy(), x, dims, kind, direction, norm)
    strided(got, want.shape, out_steps)[...] = SENTINEL
    np.testing.assert_array_equal(got, SENTINEL, "an element that is no part of the output was written")
    np.testing.assert_array_equal(session.get(at_x), whole_x)


@SHARED
@given(data=st.data(), kind=st.sampled_from(sorted(KINDS)), norm=norms, seed=seeds)
def test_in_place(session: Any, data: st.DataObject, kind: Any, norm: Any, seed: int) -> None:
    precision, is_complex, to_complex = KINDS[kind]
    dims = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3), "dims"))
    batch, direction = data.draw(st.integers(1, 3), "batch"), data.draw(st.sampled_from(["forward", "inverse"]))
    x = values(precision, dims, batch, is_complex, not to_complex, seed)
    want = wanted(x, dims, is_complex, to_complex, direction, norm)
    row = dims[-1] if kind in ("C2C", "Z2Z") else dims[-1] // 2 + 1
    whole = np.full((batch, *dims[:-1], row if is_complex else 2 * row), SENTINEL, x.dtype)
    whole[..., : x.shape[-1]] = x
    at_x = session.put(whole)
    op = FftPlanManyInPlace(x=at_x, kind=kind, dims=dims, batch=batch, direction=direction, norm=norm)
    got = np.ascontiguousarray(session.get(execute(session, op)))
    complexes = stored(want, precision).dtype if to_complex else None
    got = got.view(complexes) if to_complex else got.view(x.real.dtype)
    check_batch(session, got[..., : want.shape[-1]], x, dims, kind, direction, norm)


def strided(array: Any, shape: tuple[int, ...], steps: tuple[int, ...]) -> Any:
    return np.lib.stride_tricks.as_strided(array, shape, tuple(s * array.itemsize for s in steps))


def refused(session: Any, cls: Any = FftPlanMany, **settings: Any) -> str:
    given_settings = {"kind": "C2C", "dims": (8,), **settings}
    if cls is FftPlanMany:
        given_settings.setdefault("x", session.empty(8, "c64"))
        given_settings.setdefault("out", session.empty(8, "c64"))
    with pytest.raises(ShapeError) as caught:
        session.submit(cls(**given_settings))
    return str(caught.value)


def test_what_does_not_fit_is_refused(session: Any) -> None:
    assert "for kind Z2Z it must be c128" in refused(session, kind="Z2Z")
    assert "for kind R2C it must be c64" in refused(session, kind="R2C", x=session.empty(8), out=session.empty(8))
    assert "reach 72 bytes" in refused(session, batch=2, in_dist=1, out_dist=1)
    assert "elements of out overlap" in refused(session, batch=2, dims=(4,), out_dist=2)
    assert "dims is ()" in refused(session, dims=())
    assert "dims is (0,)" in refused(session, dims=(0,))
    assert "dims is (1, 1, 1, 1)" in refused(session, dims=(1, 1, 1, 1))
    assert "batch is -1" in refused(session, batch=-1)
    assert "in_embed is (2, 3)" in refused(session, dims=(2, 4), in_embed=(2, 3))
    assert "out_embed is (2,)" in refused(session, dims=(2, 4), out_embed=(2,))
    assert "in_stride is 0" in refused(session, in_stride=0)
    assert "without gaps" in refused(session, x=session.empty(16, "c64")[::2])
    assert "pass a longer one" in refused(session, FftPlanManyInPlace, x=session.empty(8), kind="R2C")
