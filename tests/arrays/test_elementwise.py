"""Functions of elements and operators, against NumPy over dtypes, shapes that broadcast, and views."""

import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import callboard as cb
from callboard.arrays.elementwise import BINARY, UNARY
from callboard.core.dtype import DTYPES, as_dtype

Array = np.ndarray[Any, Any]
SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=8)

FLOATS = ("f32", "f64")
NUMBERS = (*FLOATS, "c64", "c128", "i8", "i32", "i64", "u8", "u32")
REALS = (*FLOATS, "i8", "i32", "i64", "u8", "u32")
WHOLE = ("i8", "i32", "i64", "u8", "u32", "bool")
KINDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(UNARY, (*FLOATS, "c64", "c128")),
    **dict.fromkeys(("abs", "negative", "positive", "square", "real", "imag", "conj", "isnan", "isfinite"), NUMBERS),
    **dict.fromkeys(("ceil", "floor", "round", "trunc", "sign", "isinf"), REALS),
    **dict.fromkeys(("signbit",), FLOATS),
    **dict.fromkeys(BINARY, NUMBERS),
    **dict.fromkeys(("atan2", "copysign", "hypot", "logaddexp", "nextafter"), FLOATS),
    **dict.fromkeys(("floor_divide", "remainder", "maximum", "minimum"), REALS),
    **dict.fromkeys(("less", "less_equal", "greater", "greater_equal"), REALS),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor", "logical_not"), (*WHOLE, "f64")),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_invert"), WHOLE),
    **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift"), WHOLE[:-1]),
    "divide": (*FLOATS, "c64", "c128"),
    "pow": (*FLOATS, "u8", "u32"),
}
DOMAIN = {"acosh": (1.1, 4.0), "atanh": (-0.9, 0.9), "acos": (-0.9, 0.9), "asin": (-0.9, 0.9), "log1p": (-0.5, 4.0)}
POSITIVE = ("log", "log2", "log10", "sqrt", "reciprocal", "pow", "divide", "floor_divide", "remainder")


def numbers(name: str, dtype: str, shape: tuple[int, ...], seed: int) -> Array:
    low, high = DOMAIN.get(name, (0.5, 5.0) if name in POSITIVE else (-4.0, 4.0))
    kind = DTYPES[dtype].kind
    if kind in ("uint", "bool") or "shift" in name:
        low, high = (1.0 if name in POSITIVE else 0.0), 5.0
    array: Array = np.random.default_rng(seed).uniform(low, high, shape)
    if kind == "bool":
        return array > 2
    if kind == "complex":
        array = array + 0.3j * np.random.default_rng(seed + 1).uniform(low, high, shape)
    if kind in ("int", "uint"):
        array = np.where(np.floor(array) == 0, 1, np.floor(array)) if name in POSITIVE else np.floor(array)
    return array.astype(DTYPES[dtype].np)


def same(got: Any, want: Any, rtol: float = 2e-5) -> None:
    """The dtype, the shape and the values of NumPy's."""
    want = np.asarray(want)
    assert got.dtype is as_dtype(want.dtype), (got.dtype, want.dtype)
    values = got.get()
    assert values.shape == want.shape
    if (want.dtype.itemsize == 8 and want.dtype.kind == "f") or want.dtype.itemsize == 16:
        rtol = min(rtol, 1e-12)
    if want.dtype.kind in "fc":
        np.testing.assert_allclose(values, want, rtol=rtol, atol=rtol)
    else:
        np.testing.assert_array_equal(values, want)


views = st.sampled_from([(...,), (slice(None, None, -1), ...), (..., slice(None, None, 2)), (slice(1, 2), ...)])


@pytest.mark.parametrize("name", UNARY)
@SHARED
@given(data=st.data(), seed=st.integers(0, 999), view=views, transposed=st.booleans())
def test_unary(session: cb.sync.Device, name: str, data: Any, seed: int, view: Any, transposed: bool) -> None:
    dtype = data.draw(st.sampled_from([d for d in KINDS[name] if not (name == "signbit" and d[0] == "c")]))
    host = numbers(name, dtype, (3, 4), seed)
    own, ref = host[view], session.array(host)[view]
    if transposed:
        own, ref = own.T, ref.T
    with np.errstate(all="ignore"):
        same(getattr(session.xp, name)(ref), getattr(np, name)(own))


@pytest.mark.parametrize("name", BINARY)
@SHARED
@given(data=st.data(), seed=st.integers(0, 999), mixed=st.booleans())
def test_binary(session: cb.sync.Device, name: str, data: Any, seed: int, mixed: bool) -> None:
    first = data.draw(st.sampled_from(KINDS[name]))
    same_kind = [d for d in KINDS[name] if DTYPES[d].kind == DTYPES[first].kind]
    second = data.draw(st.sampled_from(KINDS[name] if mixed and name != "pow" else same_kind))
    if "bitwise" in name and "u32" in (first, second) and ("i64" in (first, second)) is False and first[0] != second[0]:
        second = first
    shapes = data.draw(
        st.sampled_from([((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (1, 4)), ((), (2,)), ((0, 3), (3,))])
    )
    a, b = (numbers(name, d, s, seed + i) for i, (d, s) in enumerate(zip((first, second), shapes, strict=True)))
    with np.errstate(all="ignore"):
        want = getattr(np, name)(a, b)
        same(getattr(session.xp, name)(session.array(a), session.array(b)), want)


OPERATORS = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")},
    **{name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
}


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "u8"])
@pytest.mark.parametrize("number", [2, 3.5, True])
def test_operators_with_a_number_on_either_side(session: cb.sync.Device, name: str, dtype: str, number: Any) -> None:
    host = np.array([[1, 2, 3], [4, 5, 6]], DTYPES[dtype].np)
    ref, apply = session.array(host), OPERATORS[name]
    with np.errstate(all="ignore"):
        same(apply(ref, number), apply(host, number))
        same(apply(number, ref), apply(number, host))


def test_bit_operators_and_unary_ones(session: cb.sync.Device) -> None:
    host = np.array([1, 6, 12], "i4")
    ref = session.array(host)
    for apply in (operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift):
        same(apply(ref, 2), apply(host, 2))
        same(apply(2, ref), apply(2, host))
    for alone in (operator.neg, operator.pos, operator.abs, operator.invert):
        same(alone(ref), alone(host))


def test_operators_in_place_write_into_the_memory(session: cb.sync.Device) -> None:
    x = session.array(np.arange(6.0).reshape(2, 3))
    seen = x.T
    y = x
    y += 1
    y *= session.array([1.0, 2.0, 3.0])
    y[1] -= 5
    np.testing.assert_array_equal(seen.get(), ((np.arange(6.0).reshape(2, 3) + 1) * [1, 2, 3] - [[0], [5]]).T)
    y[1:] += y[:-1]
    np.testing.assert_array_equal(y.get()[1], y.get()[0] + (np.arange(3.0, 6) + 1) * [1, 2, 3] - 5)
    i = session.array([1, 2])
    with pytest.raises(cb.ShapeError):
        i += 0.5  # the result is not an integer


@pytest.mark.parametrize("dtype", ["f32", "i32", "u8", "bool", "c64"])
def test_where_and_clip(session: cb.sync.Device, dtype: str) -> None:
    xp = session.xp
    a, b = (np.arange(6).reshape(2, 3) * n for n in (1, 3))
    a, b = a.astype(DTYPES[dtype].np), b.astype(DTYPES[dtype].np)
    mask = np.array([True, False, True])
    same(xp.where(session.array(mask), session.array(a), session.array(b)), np.where(mask, a, b))
    if dtype == "c64":
        return
    same(xp.where(session.array(mask), session.array(a), 1), np.where(mask, a, 1))
    if dtype == "bool":
        return
    same(xp.clip(session.array(a), 1, 3), np.clip(a, 1, 3).astype(a.dtype))
    same(xp.clip(session.array(a), max=session.array(b[0])), np.minimum(a, b[0]))
    same(xp.clip(session.array(a)), a)


def test_what_is_not_an_array_says_how_to_make_it_one(session: cb.sync.Device) -> None:
    x = session.array([1.0, 2.0])
    with pytest.raises(TypeError, match=r"xp\.exp: x is ndarray; put it on the device first"):
        session.xp.exp(np.ones(2))  # type: ignore[type-var]
    with pytest.raises(TypeError, match=r"xp\.add: x1 and x2 are numbers"):
        session.xp.add(1, 2)
    with pytest.raises(TypeError, match=r"an array of the host \(float64\[2\]\): put that on the device first"):
        x + np.ones(2)  # type: ignore[operator]
    with pytest.raises(TypeError, match="put that on the device first"):
        np.ones(2) * x
    with pytest.raises(TypeError, match=r"compute there, `cb\.xp\.exp`, or take them: `await ref\.get\(\)`"):
        np.exp(x)
    with pytest.raises(TypeError, match=r"cb\.xp\.mean"):
        np.mean(x)  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        x + "one"  # type: ignore[operator]
    assert (x == "one") is False
    with pytest.raises(OverflowError, match="at most 64 bits"):
        x + 2**64
    same(np.float32(2) * x, np.array([2.0, 4.0]))


def test_a_call_like_an_earlier_one_is_checked_like_it(session: cb.sync.Device) -> None:
    """It is sent by the signature of the earlier one: what is refused is refused all the same."""
    call = cb.elementwise("z = alpha * x + y")
    x, y = (session.array(np.arange(6.0) + one) for one in range(2))
    out = session.empty(6, "f64")
    for alpha in (2.0, 3.0, 3, np.float32(2)):  # the last two go by messages
        np.testing.assert_array_equal(
            call(alpha, x, y, out=out).get(), float(alpha) * np.arange(6.0) + np.arange(6) + 1
        )
    call(2.0, x[:5], y[:5], out=out[1:])
    with pytest.raises(cb.ShapeError, match="shares memory"):
        call(2.0, out[:5], y[:5], out=out[1:])
    out.free()
    with pytest.raises(cb.GpuRefStale, match="freed"):
        call(2.0, x, y, out=out)
    host: Any = np.arange(6.0)
    with pytest.raises(TypeError, match="x is ndarray"):
        call(2.0, host, y)
    both = cb.elementwise("x += alpha * y")
    for times in (1, 2):
        np.testing.assert_array_equal(both(x=x, alpha=1.0, y=y).get()[:2], [times, 1 + 2 * times])


@pytest.mark.parametrize("dtype", ["u8", "i8", "u16", "i32", "i64", "u64"])
def test_integers_are_compared_with_numbers_that_they_cannot_hold(session: cb.sync.Device, dtype: str) -> None:
    host = np.array([0, 1, 100, 127], DTYPES[dtype].np)
    x = session.array(host)
    for number in (-1, 127, 128, 256, -(2**31) - 1, 2**63, 2**64, -(10**30)):
        for compare in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
            np.testing.assert_array_equal(compare(x, number).get(), compare(host, number))
            np.testing.assert_array_equal(compare(number, x).get(), compare(number, host))
    with pytest.raises(cb.ShapeError, match=r"convert the array first, by x\.astype\('i64'\)"):
        x + (2**63 if dtype == "i64" else -1 if dtype[0] == "u" else 2**40)


def test_integers_between_floating_bounds_become_floating(session: cb.sync.Device) -> None:
    host, clip = np.arange(4), session.xp.clip
    x = session.array(host)
    for found, want in (
        (clip(x, 0.5, 2), np.clip(host, 0.5, 2)),
        (clip(x, None, session.array(np.float32(1.5))), np.clip(host, None, np.float32([1.5]))),
        (clip(x, 1, 2), np.clip(host, 1, 2)),
    ):
        np.testing.assert_array_equal(found.get(), want)
        assert found.dtype == want.dtype
    assert clip(x.astype("f4"), session.array(0.5), None).dtype == np.float32


def test_an_element_is_formatted_as_a_number(session: cb.sync.Device) -> None:
    x = session.array([1.5, 2.25])
    assert f"{x[1]:.1f} {x[:1]:6.2f}" == "2.2   1.50"
    assert f"{x[0]}" == str(x[0])
    with pytest.raises(ValueError, match="elements is no number: take an element"):
        f"{x:.1f}"


@pytest.mark.parametrize("dtype", ["i32", "u8"])
def test_integers_have_no_negative_powers(session: cb.sync.Device, dtype: str) -> None:
    xp = session.xp
    x = xp.asarray([1, 2], dtype=dtype)
    for power in (lambda: x**-1, lambda: xp.pow(x, -2), lambda: x.__ipow__(-1)):
        with pytest.raises(ValueError, match=f"x1 has dtype {dtype}, whose integers have no powers"):
            power()
    np.testing.assert_array_equal(x.get(), [1, 2])
    np.testing.assert_array_equal((x**-1.0).get(), [1, 0.5])
