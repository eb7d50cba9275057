"""Batches laid out by numbers, apart and in place, against SciPy's on the same elements."""

from typing import Any

import numpy as np
import pytest
from blas_lab import SENTINEL, SHARED, execute, seeds
from fft_lab import check, extents, half_spectrum, loaded, norm_scale, norms, real, stored, transformed
from hypothesis import given
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError, UnsupportedOp
from callboard.kernel.fft import FftPlanMany, FftPlanManyInPlace

KINDS = {
    "C2C": (True, True),
    "R2C": (False, True),
    "C2R": (True, False),
    "Z2Z": (True, True),
    "D2Z": (False, True),
    "Z2D": (True, False),
}
FORMS = [(kind, precision) for kind in KINDS for precision in (("f16", "f32") if "C" in kind else ("f64",))]
"""Kinds and the precisions in which each is asked for: the kinds in single precision are also those of halves."""
forms = st.sampled_from(FORMS)


def sizes(precision: str) -> Any:
    """Points along the axes of a transform."""
    return st.lists(extents(precision) if precision == "f16" else st.integers(1, 9), min_size=1, max_size=3).map(tuple)


def values(precision: str, dims: tuple[int, ...], batch: int, is_complex: bool, to_real: bool, seed: int) -> Any:
    """The input of a batch, ``[batch, *dims]``; complex halves in pairs."""
    axes = tuple(range(1, len(dims) + 1))
    if to_real:
        return half_spectrum(precision, (batch, *dims), axes, seed)
    signal = real("f64", (batch, *dims), seed)
    return stored(signal + 1j * signal[::-1], precision) if is_complex else signal.astype(DTYPES[precision].np)


def wanted(x: Any, dims: tuple[int, ...], is_complex: bool, to_complex: bool, direction: str, norm: str) -> Any:
    axes = tuple(range(1, len(dims) + 1))
    if not to_complex:
        return transformed("irfftn", x, s=dims, axes=axes, norm=norm)
    name = "rfftn" if not is_complex else "fftn" if direction == "forward" else "ifftn"
    return transformed(name, x, axes=axes, norm=norm)


def check_batch(session: Any, got: Any, x: Any, dims: Any, form: Any, direction: str, norm: str) -> None:
    """``got`` and ``x`` wide where they are complex."""
    precision, (is_complex, to_complex) = form[1], KINDS[form[0]]
    want = wanted(x, dims, is_complex, to_complex, direction, norm)
    really = "inverse" if not to_complex else "forward" if not is_complex else direction
    points, axes = int(np.prod(dims)), tuple(range(1, len(dims) + 1))
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
@given(data=st.data(), form=forms, norm=norms, seed=seeds)
def test_apart(session: Any, data: st.DataObject, form: Any, norm: Any, seed: int) -> None:
    (kind, precision), (is_complex, to_complex) = form, KINDS[form[0]]
    dims = data.draw(sizes(precision), "dims")
    batch, direction = data.draw(st.integers(1, 4), "batch"), data.draw(st.sampled_from(["forward", "inverse"]))
    x = values(precision, dims, batch, is_complex, not to_complex, seed)
    wide = loaded(x, precision) if is_complex else x
    want = wanted(wide, dims, is_complex, to_complex, direction, norm)
    result = stored(want, precision).dtype if to_complex else DTYPES[precision].np
    src, src_steps, src_size = data.draw(sides(wide.shape[1:], batch))
    out, out_steps, out_size = data.draw(sides(want.shape[1:], batch))
    whole_x, whole_out = flat(src_size + 2, x.dtype, is_complex), flat(out_size + 2, result, to_complex)
    strided(whole_x, wide.shape, src_steps)[...] = x
    at_x, at_out = session.put(whole_x), session.put(whole_out)
    numbers: Any = {f"in_{k}": v for k, v in src.items()} | {f"out_{k}": v for k, v in out.items()}
    op = FftPlanMany(x=at_x, out=at_out, kind=kind, dims=dims, batch=batch, direction=direction, norm=norm, **numbers)
    got = session.get(execute(session, op))
    found = strided(got, want.shape, out_steps).copy()
    check_batch(session, loaded(found, precision) if to_complex else found, wide, dims, form, direction, norm)
    strided(got, want.shape, out_steps)[...] = SENTINEL
    np.testing.assert_array_equal(got, SENTINEL, "an element that is not part of the output was written")
    np.testing.assert_array_equal(session.get(at_x), whole_x)


@pytest.mark.parametrize("spare", [1, 2, 3])
@pytest.mark.parametrize("dims", [(7,), (5, 7), (4, 6), (3, 5, 7)])
@pytest.mark.parametrize("kind, precision", [("C2R", "f32"), ("Z2D", "f64")])
def test_gaps_behind_real_rows_stay(session: Any, kind: str, precision: str, dims: tuple[int, ...], spare: int) -> None:
    """Also where a row has room for a complex one, as in place."""
    batch, embed = 2, (*dims[:-1], dims[-1] + spare)
    x = values(precision, dims, batch, True, True, 3)
    out = np.full((batch, *embed), SENTINEL, DTYPES[precision].np)
    at_out = session.put(out)
    op = FftPlanMany(x=session.put(x), out=at_out, kind=kind, dims=dims, batch=batch, out_embed=embed)
    got = session.get(execute(session, op)).reshape(out.shape)
    check_batch(session, got[..., : dims[-1]], x, dims, (kind, precision), "inverse", "backward")
    np.testing.assert_array_equal(got[..., dims[-1] :], SENTINEL)


@SHARED
@given(data=st.data(), form=forms, norm=norms, seed=seeds)
def test_in_place(session: Any, data: st.DataObject, form: Any, norm: Any, seed: int) -> None:
    (kind, precision), (is_complex, to_complex) = form, KINDS[form[0]]
    dims = data.draw(sizes(precision), "dims")
    batch, direction = data.draw(st.integers(1, 3), "batch"), data.draw(st.sampled_from(["forward", "inverse"]))
    x = values(precision, dims, batch, is_complex, not to_complex, seed)
    wide = loaded(x, precision) if is_complex else x
    want = wanted(wide, dims, is_complex, to_complex, direction, norm)
    row = dims[-1] if is_complex and to_complex else dims[-1] // 2 + 1
    pair = (2,) if precision == "f16" and is_complex else ()
    whole = np.full((batch, *dims[:-1], row if is_complex else 2 * row, *pair), SENTINEL, x.dtype)
    whole[(..., slice(wide.shape[-1]), *(slice(None) for _ in pair))] = x
    at_x = session.put(whole)
    op = FftPlanManyInPlace(x=at_x, kind=kind, dims=dims, batch=batch, direction=direction, norm=norm)
    got = np.ascontiguousarray(session.get(execute(session, op))).reshape(batch, *dims[:-1], -1)
    if precision == "f16" and to_complex:
        got = got.reshape(*got.shape[:-1], row, 2)
    else:
        got = got.view(stored(want, precision).dtype if to_complex else DTYPES[precision].np)
    found = loaded(got, precision) if to_complex else got
    check_batch(session, found[..., : want.shape[-1]], wide, dims, form, direction, norm)


def flat(size: int, dtype: Any, is_complex: bool) -> Any:
    """A long array of an operand's type; complex halves in pairs."""
    return np.full((size, 2) if dtype == np.float16 and is_complex else size, SENTINEL, dtype)


def strided(array: Any, shape: tuple[int, ...], steps: tuple[int, ...]) -> Any:
    """A view of these elements of ``array``'s first axis; pairs stay together."""
    step, rest = array.strides[0], array.shape[1:]
    return np.lib.stride_tricks.as_strided(array, (*shape, *rest), (*(s * step for s in steps), *array.strides[1:]))


@pytest.mark.parametrize("cls", [FftPlanMany, FftPlanManyInPlace])
def test_a_plan_is_of_one_precision(session: Any, cls: Any) -> None:
    """The same kind and numbers in f16 and f32 are two plans, each made once."""
    device = getattr(session, "device", None)
    if not hasattr(device, "stats"):
        pytest.skip("plans are counted by devices; this session has none")

    def submit(x: Any) -> Any:
        operands = (
            {"x": x} if cls is FftPlanManyInPlace else {"x": x, "out": session.put(np.zeros_like(session.get(x)))}
        )
        return session.get(session.submit(cls(kind="C2C", dims=(8,), batch=batch, norm="forward", **operands)))

    def misses() -> int:
        plans = session._run(device.stats()).plans
        return int(plans["fft"].misses) if "fft" in plans else 0

    batch = 37  # no other test has made such a plan
    signal = real("f64", (batch, 8), 7) + 1j * real("f64", (batch, 8), 8)
    before = misses()
    for precision in ("f16", "f32", "f16", "f32"):
        x = stored(signal, precision)
        got = loaded(submit(session.put(x)), precision)
        wide = loaded(x, precision)
        check_batch(session, got, wide, (8,), ("C2C", precision), "forward", "forward")
    assert misses() == before + 2


@pytest.mark.parametrize("dims", [(6,), (4, 12)])
@pytest.mark.parametrize("kind", ["C2C", "R2C", "C2R"])
def test_halves_that_are_no_powers_of_two(session: Any, kind: Any, dims: Any) -> None:
    """Others transform them; cuFFT does not, which is said before anything is enqueued."""
    x = session.put(np.zeros((200, 2) if kind != "R2C" else 200, np.float16))
    out = session.put(np.zeros((200, 2) if kind != "C2R" else 200, np.float16))
    for op in (FftPlanMany(x=x, out=out, kind=kind, dims=dims), FftPlanManyInPlace(x=x, kind=kind, dims=dims)):
        if session.backend.name != "cuda":
            assert not np.any(session.get(session.submit(op)))
        else:
            with pytest.raises(UnsupportedOp, match=r"halves by powers of two.*use f32"):
                session.submit(op)


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


def test_halves_that_do_not_fit_are_refused(session: Any) -> None:
    pairs, halves = session.empty((8, 2), "f16"), session.empty(16, "f16")
    assert "for kind C2C it must be c64, or f16 in pairs" in refused(session, x=session.empty(8), kind="C2C")
    assert "for kind R2C it must be f32 or f16" in refused(session, x=session.empty(8, "f64"), kind="R2C")
    assert "for kind C2R it must be c64, or f16 in pairs" in refused(
        session, FftPlanManyInPlace, x=session.empty(8), kind="C2R"
    )
    assert "out is c64[8]; for kind C2C it must be f16 like x, in pairs" in refused(session, x=pairs)
    assert "out is f32[8]; for kind C2R it must be f16 like x" in refused(
        session, x=pairs, out=session.empty(8), kind="C2R"
    )
    assert "out is f16[8, 2]; for kind C2C it must be c64" in refused(session, out=pairs)
    assert "for kind Z2Z it must be c128" in refused(session, x=pairs, out=pairs, kind="Z2Z")
    assert "real and imaginary part: extent 2" in refused(session, x=halves, out=pairs)
    assert "real and imaginary part: extent 2" in refused(session, x=halves, out=halves, kind="R2C")
    assert "real and imaginary part: extent 2" in refused(session, FftPlanManyInPlace, x=halves, kind="C2R")
    assert "without gaps" in refused(session, x=session.empty((16, 2), "f16")[::2], out=pairs)
    assert "32 bytes; these transforms reach 36 bytes" in refused(
        session, x=pairs, out=pairs, batch=2, in_dist=1, out_dist=1
    )
    assert "elements of out overlap" in refused(session, x=pairs, out=pairs, batch=2, dims=(4,), out_dist=2)
    assert "pass a longer one" in refused(session, FftPlanManyInPlace, x=session.empty(8, "f16"), kind="R2C")
