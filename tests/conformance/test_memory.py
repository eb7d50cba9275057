"""Fills and copies: every dtype, any strides, zero sizes, bits preserved."""

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import ShapeError, UnsupportedOp
from callboard.core.op import OPS, Op
from callboard.kernel.memory import Copy, Download, Empty, Fill, Upload

ALL = [pytest.param(dtype, id=name) for name, dtype in DTYPES.items()]
SHARED = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40
)  # the session is reusable
VIEWS = [
    pytest.param((slice(None), slice(None)), id="whole"),
    pytest.param((slice(None, None, -1), slice(1, None, 2)), id="negative-and-step"),
    pytest.param((2, ...), id="row"),
    pytest.param((..., None, 3), id="column"),
    pytest.param((slice(3, 3), slice(None)), id="no-rows"),
    pytest.param((0, 0), id="0-d"),
]


def every_bit_pattern(dtype: DType, shape: tuple[int, ...]) -> "np.ndarray[Any, Any]":
    """Arrays of bytes that mean something else in every type: NaNs with payloads, subnormals, negative zeros."""
    count = math.prod(shape) * dtype.itemsize
    octets = np.random.default_rng(7).integers(0, 256, count, np.uint8)
    if dtype.name == "bool":
        octets &= 1
    return octets.view(dtype.np).reshape(shape)


def octets_of(array: "np.ndarray[Any, Any]") -> bytes:
    return np.ascontiguousarray(array).tobytes()


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 3, 4), (0,), (3, 0, 2)])
@pytest.mark.parametrize("dtype", ALL)
def test_put_then_get_keeps_every_bit(session: Any, dtype: DType, shape: tuple[int, ...]) -> None:
    array = every_bit_pattern(dtype, shape)
    back = session.get(session.put(array))
    assert (back.dtype, back.shape) == (dtype.np, shape)
    assert octets_of(back) == octets_of(array)


@pytest.mark.parametrize("index", VIEWS)
@pytest.mark.parametrize("dtype", ALL)
def test_copy_between_views_keeps_every_bit(session: Any, dtype: DType, index: Any) -> None:
    array = every_bit_pattern(dtype, (4, 6))
    source, target = session.put(array), session.put(np.zeros((4, 6), dtype.np))
    result = session.submit(Copy(src=source[index], out=target[index]))
    assert result.shape == array[index].shape
    want = np.zeros((4, 6), dtype.np)
    want[index] = array[index]
    assert octets_of(session.get(target)) == octets_of(want), "the view is written and nothing beside it"
    assert octets_of(session.get(source)) == octets_of(array)


def test_copy_of_a_signalling_nan_stays_signalling(session: Any) -> None:
    bits = np.array([0x7F800001, 0xFF800001, 0x7FC12345], np.uint32)
    assert session.get(session.submit(Copy(src=session.put(bits.view(np.float32))))).view(np.uint32).tolist() == list(
        bits
    )


def test_copy_without_out_is_row_major(session: Any) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    out = session.submit(Copy(src=session.put(array).T))
    assert out.layout.contiguous
    np.testing.assert_array_equal(session.get(out), array.T)


def test_copy_from_a_view_with_a_new_axis(session: Any) -> None:
    row = session.put(np.arange(3, dtype=np.int32))[None]
    np.testing.assert_array_equal(session.get(session.submit(Copy(src=row))), [[0, 1, 2]])


@pytest.mark.parametrize("index", VIEWS)
@pytest.mark.parametrize("dtype", ALL)
def test_fill_writes_the_view_and_nothing_beside_it(session: Any, dtype: DType, index: Any) -> None:
    array = every_bit_pattern(dtype, (4, 6))
    target = session.put(array)
    session.submit(Fill(out=target[index], fill_value=3.0))
    array[index] = 3.0
    assert octets_of(session.get(target)) == octets_of(array)


FLOATING = [name for name, dtype in DTYPES.items() if dtype.is_float or dtype.is_complex]
BEYOND = {"f16": 65520.0, "bf16": 3.4e38, "f32": 3.41e38, "c64": 3.41e38, "f8_e4m3": 449.0, "f8_e5m2": 61440.0}
BEYOND["f4_e2m1"] = 6.5
"""The numbers that a dtype cannot hold begin here, or a little before."""


def special(name: str) -> list[float]:
    """Infinities and NaN, where the dtype has them."""
    return [] if name == "f4_e2m1" else [math.nan] if name == "f8_e4m3" else [math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("name", FLOATING)
def test_fill_converts_to_floating_types_as_numpy_does(session: Any, name: str) -> None:
    most = BEYOND.get(name, math.inf)
    values = [0.0, -0.0, 1.0, 0.1, -2.5, 1e-7, 448.0, 65519.0, 1e30, *special(name)]
    for value in values:
        if not math.isnan(value) and math.isfinite(value) and abs(value) >= most:
            continue
        out, want = session.empty(2, name), np.zeros(2, DTYPES[name].np)
        want[...] = value
        session.submit(Fill(out=out, fill_value=value))
        got = session.get(out)
        wide = np.complex128 if DTYPES[name].is_complex else np.float64
        np.testing.assert_array_equal(got.astype(wide), want.astype(wide))
        assert (np.signbit(got.real.astype(np.float64)) == np.signbit(want.real.astype(np.float64))).all()


@pytest.mark.parametrize("name", FLOATING)
def test_fill_refuses_what_a_floating_type_cannot_hold(session: Any, name: str) -> None:
    out = session.put(np.zeros(3, DTYPES[name].np))
    wrong = [BEYOND[name], -BEYOND[name], 1e300] if name in BEYOND else []
    wrong += [1e300j] if name == "c64" else []
    wrong += [value for value in (math.inf, math.nan) if value not in special(name) and not special(name)]
    wrong += [math.inf] if name == "f8_e4m3" else []
    wrong += [70_000] if name == "f16" else []
    for value in wrong:
        says = rf"fill_value is .* and out is {name}\[3\]: {name} holds numbers from -\S+ to \S+$"
        with pytest.raises(ShapeError, match=says):
            session.submit(Fill(out=out, fill_value=value))
    assert not session.get(out).astype(np.complex128).any()


@pytest.mark.parametrize("value", [0.0, 1.0, 127.0, 3, True, np.int8(7)])
@pytest.mark.parametrize("name", [name for name, dtype in DTYPES.items() if dtype.is_integer or name == "bool"])
def test_fill_converts_to_integers_and_bool_as_numpy_does(session: Any, name: str, value: float) -> None:
    out = session.empty(3, name)
    session.submit(Fill(out=out, fill_value=value))
    want = np.full(3, value).astype(DTYPES[name].np)
    np.testing.assert_array_equal(session.get(out), want)


REFUSED = [
    *[("i8", 300), ("i8", -129), ("u8", -1), ("i32", math.nan), ("i32", math.inf), ("i64", 2.0**63), ("i64", 2**63)],
    *[("u64", 2**64), ("u64", -1), ("i64", -(2**63) - 1), ("i8", -1.5), ("i8", 127.9), ("u8", -0.9)],
]


@pytest.mark.parametrize("name, value", REFUSED)
def test_fill_refuses_what_an_integer_cannot_hold(session: Any, name: str, value: float) -> None:
    out = session.empty(3, name)
    bounds = np.iinfo(DTYPES[name].np)
    says = rf"is {re.escape(str(value))} and out is {name}\[3\]: {name} holds the integers from {bounds.min} to"
    for number in (1, value, 1, value):  # a call that was right before says nothing about the next number
        if number == 1:
            session.submit(Fill(out=out, fill_value=number))
            continue
        with pytest.raises(ShapeError, match=says):
            session.submit(Fill(out=out, fill_value=number))
    np.testing.assert_array_equal(session.get(out), [1, 1, 1])


@pytest.mark.parametrize("name", [name for name, dtype in DTYPES.items() if dtype.is_integer])
def test_fill_is_exact_over_all_that_an_integer_holds(session: Any, name: str) -> None:
    bounds = np.iinfo(DTYPES[name].np)
    near = [bounds.min, bounds.min + 1, 0, 1, bounds.max // 2, bounds.max - 1, bounds.max, 2**53 + 1, -(2**53) - 1]
    for value in (value for value in map(int, near) if bounds.min <= value <= bounds.max):
        for number in (value, DTYPES[name].np.type(value), np.array(value, DTYPES[name].np)):
            out = session.empty(3, name)
            session.submit(Fill(out=out, fill_value=number))
            assert [int(n) for n in session.get(out)] == [value] * 3


@pytest.mark.parametrize("name", FLOATING)
def test_fill_with_an_integer_gives_the_nearest_number(session: Any, name: str) -> None:
    for value in (0, 1, -6, 2**53 + 1, -(2**60) - 1, 2**64 - 1):
        if abs(value) >= BEYOND.get(name, math.inf):
            continue
        out, want = session.empty(2, name), np.zeros(2, DTYPES[name].np)
        want[...] = np.asarray(value)
        session.submit(Fill(out=out, fill_value=value))
        np.testing.assert_array_equal(session.get(out).view(np.uint8), want.view(np.uint8))


def test_fill_with_a_complex_number(session: Any) -> None:
    out = session.empty((2, 2), "c64")
    session.submit(Fill(out=out, fill_value=1.5 - 2j))
    np.testing.assert_array_equal(session.get(out), np.full((2, 2), 1.5 - 2j))


@pytest.mark.parametrize("dtype", [p for p in ALL if not p.values[0].is_complex])
def test_fill_with_a_number_on_the_device(session: Any, dtype: DType) -> None:
    value = session.put(np.array([9, 1, 9], dtype.np))[1]
    out = session.empty(3, "f32")
    session.submit(Fill(out=out, fill_value=value))
    np.testing.assert_array_equal(session.get(out), [1, 1, 1])


def test_fill_refuses_complex_for_real(session: Any) -> None:
    out = session.empty(3, "f32")
    with pytest.raises(ShapeError, match=r"fill_value 1j is complex and out is f32\[3\]"):
        session.submit(Fill(out=out, fill_value=1j))
    with pytest.raises(UnsupportedOp, match=r"fill_value is c64\[\] and out is f32\[3\]; take its real part"):
        session.submit(Fill(out=out, fill_value=session.put(np.complex64(1j))))


def test_fill_takes_a_stride_of_0_on_an_extent_of_1(session: Any) -> None:
    wide = session.put(np.zeros(3, np.float32))[None]
    session.submit(Fill(out=wide, fill_value=4))
    np.testing.assert_array_equal(session.get(wide), [[4, 4, 4]])


def test_empty_has_the_shape_and_dtype(session: Any) -> None:
    out = session.submit(Empty(shape=(2, 0, 3), dtype="bf16"))
    assert (out.shape, out.dtype) == ((2, 0, 3), DTYPES["bf16"])


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda a, b: Empty(shape=(2, -1), dtype="f32"), "shape (2, -1)"),
        (lambda a, b: Copy(src=a, out=b), "out is f64[3, 4], expected f32[3, 4]"),
        (lambda a, b: Copy(src=a, out=a[1:]), "out is f32[2, 4], expected f32[3, 4]"),
        (lambda a, b: Upload(host=a[:, 2:], out=a[:, ::2]), "not a transfer of rows"),
        (lambda a, b: Download(src=a[:, ::2], host=a[:, 2:]), "not a transfer of rows"),
        (lambda a, b: Download(src=a, host=b), "src is f32[3, 4], host f64[3, 4]"),
        (lambda a, b: Fill(out=a, fill_value=b), "pass a number or a 0-d array"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(session: Any, make: Any, says: str) -> None:
    a, b = session.empty((3, 4), "f32"), session.empty((3, 4), "f64")
    with pytest.raises(ShapeError) as caught:
        session.submit(make(a, b))
    assert says in str(caught.value)


def test_an_op_nobody_executes_is_unsupported(session: Any) -> None:
    class Unknown(Op["MemoryActor", None], tag="memory.test_unknown"):
        returns = ()

        def infer(self) -> dict[str, Any]:
            return {}

    try:
        with pytest.raises(UnsupportedOp, match=r"memory.test_unknown: no implementation"):
            session.submit(Unknown())
    finally:
        del OPS["memory.test_unknown"]


slices = st.slices(5) | st.integers(-5, 4) | st.just(None)


@SHARED
@given(data=st.data(), dtype=st.sampled_from(["u8", "bf16", "f32", "c128"]))
def test_any_view_reads_and_writes_as_numpys(session: Any, data: st.DataObject, dtype: str) -> None:
    array = every_bit_pattern(DTYPES[dtype], (5, 5))
    index = tuple(data.draw(st.lists(slices, max_size=3)))
    if sum(i is not None for i in index) > 2:
        index = index[:2]
    ref, view = session.put(array), array[index]
    assert octets_of(session.get(ref[index])) == octets_of(view)
    session.submit(Copy(src=session.put(np.zeros_like(view, order="C")), out=ref[index]))
    array[index] = np.zeros((), array.dtype)
    assert octets_of(session.get(ref)) == octets_of(array)
