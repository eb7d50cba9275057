"""Results of complex functions of infinities, NaN and signed zeros: those that the array API standard lists."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

import callboard as cb

HALF, QUARTER = math.pi / 2, math.pi / 4
PARTS = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 40.0, -40.0, 1e30, -1e30, math.inf, -math.inf, math.nan]
ARGUMENTS: dict[str, Callable[[float], bool]] = {
    "n": math.isnan,
    "f": math.isfinite,
    "z": lambda part: part != 0 and math.isfinite(part),
    "p": lambda part: part > 0 and math.isfinite(part),
    "o": lambda part: part == 0,
    "x": math.isinf,
    "!": lambda part: part != 0,
    "?": lambda part: True,
    "0": lambda part: part == 0 and math.copysign(1, part) > 0,
    "-0": lambda part: part == 0 and math.copysign(1, part) < 0,
    "1": lambda part: part == 1,
    "-1": lambda part: part == -1,
    "i": lambda part: part == math.inf,
    "-i": lambda part: part == -math.inf,
}
"""A part of an argument: NaN, finite, finite and not 0, finite and positive, a zero, infinite, not 0, any; numbers."""
VALUES = {"n": math.nan, "i": math.inf, "pi": math.pi, "h": HALF, "q": QUARTER, "t": 3 * QUARTER, "0": 0.0, "1": 1.0}
CASES = {
    "acos": "o 0 h -0, o n h n, f i h -i, z n n n, -i p pi -i, i p 0 -i, -i i t -i, i i q -i, x n n ±i, n f n n, "
    "n i n -i",
    "acosh": "o 0 0 h, f i i h, z n n n, 0 n n ±h, -i p i pi, i p i 0, -i i i t, i i i q, x n i n, n f n n, n i i n",
    "asinh": "0 0 0 0, p i i h, f n n n, i p i 0, i i i q, n 0 n 0, n z n n, n i ±i n",
    "atanh": "0 0 0 0, 0 n 0 n, 1 0 i 0, p i 0 h, z n n n, i p 0 h, i i 0 h, i n 0 n, n f n n, n i ±0 h",
    "cosh": "0 0 1 0, 0 i n ±0, 0 n n ±0, z i n n, z n n n, i 0 i 0, i i ±i n, i n i n, n o n ±0, n z n n",
    "exp": "o 0 1 0, f i n n, f n n n, i 0 i 0, -i i 0 0, i i i n, -i n 0 0, i n i n, n 0 n 0, n ! n n",
    "expm1": "o 0 0 0, f i n n, f n n n, i 0 i 0, -i i -1 0, i i i n, -i n -1 0, i n i n, n 0 n 0, n ! n n",
    "log": "-0 0 -i pi, 0 0 -i 0, f i i h, f n n n, -i p i pi, i p i 0, -i i i t, i i i q, x n i n, n f n n, n i i n",
    "log1p": "-1 0 -i 0, f i i h, f n n n, -i p i pi, i p i 0, -i i i t, i i i q, x n i n, n f n n, n i i n",
    "sign": "o o 0 0, n ? n n, ? n n n",
    "sinh": "0 0 0 0, 0 i ±0 n, 0 n ±0 n, p i n n, p n n n, i 0 i 0, i i ±i n, i n ±i n, n 0 n 0, n z n n",
    "sqrt": "o 0 0 0, ? i i i, f n n n, -i p 0 i, i p i 0, i n i n, n f n n",
    "tanh": "0 0 0 0, z i n n, 0 i 0 n, z n n n, 0 n 0 n, i p 1 0, i i 1 ±0, i n 1 ±0, n 0 n 0, n z n n",
}
"""Parts of the argument, parts of the result; ±: of either sign."""


def is_like(wanted: str, part: float) -> bool:
    name = wanted.lstrip("±-")
    value = VALUES[name]
    if wanted[0] == "±":
        part = abs(part)
    elif wanted[0] == "-":
        value = -value
    if math.isnan(value):
        return math.isnan(part)
    return math.isclose(part, value, rel_tol=1e-6) and math.copysign(1, part) == math.copysign(1, value)


@pytest.mark.parametrize("dtype", ["c64", "c128"])
@pytest.mark.parametrize("name", CASES)
def test_special_values(session: cb.sync.Device, name: str, dtype: cb.DTypeLike) -> None:
    numbers = np.array([complex(*parts) for parts in itertools.product(PARTS, repeat=2)])
    results = getattr(session.xp, name)(session.put(numbers, dtype=dtype)).get()
    for case in CASES[name].split(", "):
        re, im, wanted_re, wanted_im = case.split()
        for x, y in zip(numbers.tolist(), results.tolist(), strict=True):
            if ARGUMENTS[re](x.real) and ARGUMENTS[im](x.imag):
                assert is_like(wanted_re, y.real), (case, x, y)
                assert is_like(wanted_im, y.imag), (case, x, y)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_the_sign_of_a_zero_is_a_positive_zero(session: cb.sync.Device, dtype: cb.DTypeLike) -> None:
    signs = session.xp.sign(session.put(np.array([-0.0, 0.0, -3.0, math.nan]), dtype=dtype))
    got = session.xp.astype(signs, "f64").get()
    np.testing.assert_array_equal(got, [0.0, 0.0, -1.0, math.nan])
    assert not np.signbit(got[:2]).any()
