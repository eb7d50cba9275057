import itertools
from fractions import Fraction
from typing import Any, Literal

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.backends.cpu.lowprec import encode_f8, pack_f4, unpack_f4

E4M3, E5M2, E2M1 = (np.dtype(t) for t in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn))
LARGEST = {"f8_e4m3": 448.0, "f8_e5m2": 57344.0}
TYPES = {"f8_e4m3": E4M3, "f8_e5m2": E5M2}
Mode = Literal["saturate", "ieee"]
both_types = pytest.mark.parametrize("name", ["f8_e4m3", "f8_e5m2"])
both_modes = pytest.mark.parametrize("mode", ["saturate", "ieee"])


def code(value: Any, name: str, mode: Mode = "saturate") -> int:
    return int(encode_f8(value, name, mode).view(np.uint8))


def table(name: str) -> "np.ndarray[Any, Any]":
    """The finite values of a type that are not negative, by code, from the definition of its fields."""
    mantissa_bits, bias, largest = (3, 7, 448.0) if name == "f8_e4m3" else (2, 15, 57344.0)
    values = []
    for bits in range(128):
        exponent, mantissa = bits >> mantissa_bits, bits & ((1 << mantissa_bits) - 1)
        fraction = mantissa / (1 << mantissa_bits)
        values.append(2.0 ** (1 - bias) * fraction if exponent == 0 else 2.0 ** (exponent - bias) * (1 + fraction))
    finite = np.array(values)
    return finite[finite <= largest][: 127 if name == "f8_e4m3" else 124]


@both_types
def test_known_codes(name: str) -> None:
    known = {
        "f8_e4m3": [(448.0, 0x7E), (256.0, 0x78), (1.0, 0x38), (2.0**-9, 0x01), (2.0**-6, 0x08), (-1.0, 0xB8)],
        "f8_e5m2": [(57344.0, 0x7B), (1.0, 0x3C), (2.0**-16, 0x01), (2.0**-14, 0x04), (-2.0, 0xC0)],
    }[name]
    for value, want in [*known, (0.0, 0x00), (-0.0, 0x80)]:
        assert code(value, name) == want


@both_types
@both_modes
def test_every_code_comes_back(name: str, mode: Mode) -> None:
    codes = np.arange(256, dtype=np.uint8)
    values = codes.view(TYPES[name])
    wide = values.astype(np.float64)
    back = encode_f8(wide, name, mode)
    assert back.dtype == TYPES[name]
    if mode == "saturate":
        wide = np.clip(wide, -LARGEST[name], LARGEST[name])
    np.testing.assert_array_equal(back.astype(np.float64), wide)
    finite = np.isfinite(wide) & np.isfinite(values.astype(np.float64))
    np.testing.assert_array_equal(back.view(np.uint8)[finite], codes[finite])


@both_types
def test_the_values_are_those_of_the_fields(name: str) -> None:
    values = table(name)
    np.testing.assert_array_equal(np.arange(len(values), dtype=np.uint8).view(TYPES[name]).astype(np.float64), values)
    assert (np.diff(values) > 0).all(), "larger codes are larger values"
    assert values[-1] == LARGEST[name]


@both_types
def test_halfway_goes_to_the_even_code_and_the_rest_to_the_nearest(name: str) -> None:
    """All neighbours, from 0 through the subnormals to the largest; float64 decides on which side of the middle."""
    values = table(name)
    for low, (a, b) in enumerate(itertools.pairwise(values)):
        middle = (a + b) / 2  # exact in float64
        assert code(middle, name) == (low if low % 2 == 0 else low + 1)
        assert code(np.nextafter(middle, 0), name) == low
        assert code(np.nextafter(middle, np.inf), name) == low + 1
        assert code(-middle, name) == 0x80 | (low if low % 2 == 0 else low + 1)


@both_types
@both_modes
@given(value=st.floats(-1e6, 1e6) | st.floats(-1e-3, 1e-3))
def test_the_nearest_value_wins(name: str, mode: Mode, value: float) -> None:
    got = encode_f8(value, name, mode).astype(np.float64).item()
    values = table(name)
    distance = min(abs(Fraction(abs(value)) - Fraction(v)) for v in values)
    if abs(value) <= LARGEST[name]:
        assert abs(Fraction(got) - Fraction(value)) == distance
    elif mode == "saturate":
        assert abs(got) == LARGEST[name]
    assert np.signbit(got) == np.signbit(value) or np.isnan(got)


# The first value that rounds up beyond the largest: half a step above it, a tie that goes to the even code. The code of
# E4M3's largest is even (0x7e), E5M2's odd (0x7b).
LIMIT = {"f8_e4m3": 464.0, "f8_e5m2": 61440.0}


@both_types
@both_modes
def test_overflow(name: str, mode: Mode) -> None:
    largest = code(LARGEST[name], name)
    over = largest if mode == "saturate" else {"f8_e4m3": 0x7F, "f8_e5m2": 0x7C}[name]
    assert code(np.nextafter(LIMIT[name], 0), name, mode) == largest
    assert code(LIMIT[name], name, mode) == (largest if name == "f8_e4m3" else over)
    for value in (np.nextafter(LIMIT[name], np.inf), 1e300, np.inf):
        assert code(value, name, mode) == over
        assert code(-value, name, mode) == over | 0x80
    assert np.isnan(encode_f8(np.nan, name, mode).astype(np.float64))


@both_types
def test_float64_is_rounded_once(name: str) -> None:
    """By way of float32 it would be 1 + half a step, a tie, and go down."""
    half = {"f8_e4m3": 2.0**-4, "f8_e5m2": 2.0**-3}[name]
    assert code(1 + half + 2.0**-40, name) == code(1 + 2 * half, name)
    assert code(np.float32(1 + half + 2.0**-40), name) == code(1.0, name)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, ml_dtypes.bfloat16, np.int8, np.uint32, np.bool_, E5M2])
def test_any_real_dtype_is_taken(dtype: Any) -> None:
    values = np.array([[0, 1], [1, 0]]).astype(dtype)
    got = encode_f8(values)
    assert got.shape == (2, 2)
    np.testing.assert_array_equal(got.astype(np.float64), [[0, 1], [1, 0]])


def test_what_encode_f8_refuses() -> None:
    with pytest.raises(ValueError, match="dtype f16: encode_f8 makes f8_e4m3 or f8_e5m2"):
        encode_f8(1.0, "f16")
    with pytest.raises(ValueError, match="overflow is 'wrap'"):
        encode_f8(1.0, "f8_e4m3", "wrap")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="complex128"):
        encode_f8(1j)


# -- f4 ----------------------------------------------------------------------------------------------------------------

VALUES = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def test_f4_values_and_codes() -> None:
    codes = np.array([*VALUES, *(-v for v in VALUES)]).astype(E2M1).view(np.uint8)
    assert codes.tolist() == list(range(16))
    assert np.array(1.0).astype(E2M1).view(np.uint8) == 0x2


def test_f4_ties_go_to_even() -> None:
    middles = [(a + b) / 2 for a, b in itertools.pairwise(VALUES)]
    assert np.array(middles).astype(E2M1).view(np.uint8).tolist() == [0, 2, 2, 4, 4, 6, 6]


def test_the_first_value_is_in_the_low_nibble() -> None:
    assert pack_f4(np.array([1.0, -6.0]).astype(E2M1)).tolist() == [0xF2]


def test_every_byte_comes_back() -> None:
    packed = np.arange(256, dtype=np.uint8).reshape(4, 64)
    values = unpack_f4(packed)
    assert (values.dtype, values.shape) == (E2M1, (4, 128))
    np.testing.assert_array_equal(pack_f4(values), packed)
    np.testing.assert_array_equal(values.view(np.uint8)[0, :6], [0, 0, 1, 0, 2, 0])


def test_strided_and_empty_rows() -> None:
    values = np.array([[0.5, 9, 1.0, 9, 1.5, 9, 2.0, 9]]).astype(E2M1)[:, ::2]
    np.testing.assert_array_equal(pack_f4(values), [[0x21, 0x43]])
    assert pack_f4(values[:0]).shape == (0, 2)
    assert unpack_f4(np.zeros((3, 0), np.uint8)).shape == (3, 0)
    np.testing.assert_array_equal(
        unpack_f4(np.array([0x21, 0xFF, 0x43], np.uint8)[::2]).astype(np.float64), [0.5, 1.0, 1.5, 2.0]
    )


def test_stray_high_bits_of_a_value_are_dropped() -> None:
    assert pack_f4(np.array([0xF2, 0x35], np.uint8).view(E2M1)).tolist() == [0x52]


@pytest.mark.parametrize(
    "call, error, says",
    [
        (lambda: pack_f4(np.zeros(2)), TypeError, "values is float64; convert it first"),
        (lambda: pack_f4(np.zeros(3, E2M1)), ValueError, "values has shape (3,); its last extent must be even"),
        (lambda: pack_f4(np.zeros((), E2M1)), ValueError, "values has shape ()"),
        (lambda: unpack_f4(np.zeros(2, np.int8)), TypeError, "packed is int8; it must be uint8"),
        (lambda: unpack_f4(np.zeros((), np.uint8)), ValueError, "packed has shape ()"),
    ],
)
def test_what_f4_refuses(call: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert says in str(caught.value)
