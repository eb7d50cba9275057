"""Random numbers: the words of every stream, and the distributions derived from them."""

import hashlib
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rng_lab import (
    FLOATS,
    INTEGERS,
    SAME_EVERYWHERE,
    SHARED,
    counts,
    execute,
    gamma_number,
    integer,
    philox_4x32,
    places,
    plain_word,
    poisson_number,
    run,
    seeds,
    wide_words,
    words_of,
)
from scipy import special
from scipy.stats import qmc

from callboard.core.dtype import DTYPES
from callboard.core.errors import NumericalError, UnsupportedOp
from callboard.kernel.rng import (
    RngFillBeta,
    RngFillBits,
    RngFillCauchy,
    RngFillDiscrete,
    RngFillExponential,
    RngFillGamma,
    RngFillIntegers,
    RngFillLogNormal,
    RngFillNormal,
    RngFillPermutation,
    RngFillPoisson,
    RngFillUniform,
)
from callboard.testing.tolerances import assert_close

# Words 0, 1, 5000, 65537 and 69999 under the seed 1234, as cuRAND's host generators give them.
CURAND = {
    ("philox", "default"): (546353992, 3665621163, 4164562676, 2271704747, 3099937912),
    ("xorwow", "default"): (624778773, 3522650202, 1378181827, 1471929200, 640046545),
    ("xorwow", "seeded"): (624778773, 2069044768, 1245917840, 1411157791, 2443683721),
    ("mrg32k3a", "default"): (3379073520, 653317650, 3869769518, 573314359, 3277214509),
    ("mrg32k3a", "legacy"): (3379073520, 653317650, 1410194085, 576020529, 3456140837),
    ("mtgp32", "default"): (2501053709, 1991185121, 4193219305, 4163413748, 3606456106),
    ("mtgp32", "legacy"): (2501053709, 1991185121, 4193219305, 342379010, 1960513173),
}

# SHA-256 of the first 400,000 words, little-endian, as cuRAND's host generators give them: of all of MTGP32's twisters.
DIGESTS = {
    ("default", 1234): "1c59e357e8558a2a6efd2e1b278fbbea086a90af6bdb99310f66bcb61d51fd22",
    ("default", 2**63 + 2**33 + 7): "3492516ebe093b2881e622a2b05d09fdb7978059d099027527b9d8af2759cc5a",
    ("legacy", 1234): "5122ac38ff6be85ad0697645adc6e4c4b58afbbe2b8adb3a853ab7ea493fdeac",
    ("legacy", 2**63 + 2**33 + 7): "3bbb92c60940c4ccd1d7589945d53d41c5ff0190e2faec8ac79799b8cbd240ef",
}


# -- words -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind, ordering", CURAND)
def test_words_are_curands(session: Any, kind: str, ordering: str) -> None:
    words = words_of(session, kind, 1234, 0, 70_000, ordering)
    assert tuple(words[[0, 1, 5000, 65537, 69999]]) == CURAND[kind, ordering]


@pytest.mark.parametrize("ordering, seed", DIGESTS)
def test_rows_of_mtgp32_are_curands(session: Any, ordering: str, seed: int) -> None:
    """However they are cut: at the seam of rows, inside, over several of them."""
    parts, position = [], 0
    for count in (49_152, 1, 120_000, 0, 33_333, 197_514):
        parts.append(words_of(session, "mtgp32", seed, position, count, ordering))
        position += count
    words = np.concatenate(parts).astype("<u4")
    assert hashlib.sha256(words.tobytes()).hexdigest() == DIGESTS[ordering, seed]


@pytest.mark.parametrize("kind, ordering", [key for key in CURAND if key[1] != "default"])
def test_an_order_is_a_stream_of_its_own(session: Any, kind: str, ordering: str) -> None:
    """It can be cut and taken up anywhere; the default order beside it does not move its place."""
    whole = words_of(session, kind, 2**33 + 7, 0, 90_000, ordering)
    plain = words_of(session, kind, 2**33 + 7, 0, 90_000)
    assert (plain != whole).mean() > 0.2
    for position in (89_000, 4090, 1):
        part = words_of(session, kind, 2**33 + 7, position, 1000, ordering)
        np.testing.assert_array_equal(part, whole[position : position + 1000])
    uniform = run(session, RngFillUniform, 9000, "f32", kind=kind, ordering=ordering, seed=2**33 + 7, position=40)
    np.testing.assert_array_equal(uniform, (whole[40:9040] >> np.uint64(8)) * 2.0**-24)


@pytest.mark.parametrize("kind, same", [("philox", "legacy"), ("xorwow", "legacy"), ("mt19937", "legacy")])
def test_names_of_the_default_order(session: Any, kind: str, same: str) -> None:
    want = words_of(session, kind, 5, 10, 100)
    for ordering in ("best", same):
        np.testing.assert_array_equal(words_of(session, kind, 5, 10, 100, ordering), want)


@SHARED
@given(seed=seeds, position=st.integers(0, 2**62), count=counts)
def test_words_of_philox(session: Any, seed: int, position: int, count: int) -> None:
    got = words_of(session, "philox", seed, position, count)
    assert got.tolist() == [plain_word(seed, position + i) for i in range(count)]


@SHARED
@given(seed=seeds, position=st.integers(0, 2**62), count=counts)
def test_words_of_philox64_are_numpys(session: Any, seed: int, position: int, count: int) -> None:
    block = position // 8
    counter = np.array([block & 2**64 - 1, 0, 0, 0], np.uint64)
    numpy = np.random.Philox(key=np.array([seed, 0], np.uint64), counter=counter)
    want = numpy.random_raw(count // 2 + 5).view(np.uint32)[position % 8 :][:count]
    np.testing.assert_array_equal(words_of(session, "philox64", seed, position, count), want)


def test_uniform_numbers_of_philox64_are_numpys(session: Any) -> None:
    for dtype in ("f32", "f64"):
        numpy = np.random.Generator(np.random.Philox(key=np.array([99, 0], np.uint64)))
        got = run(session, RngFillUniform, 1000, dtype, kind="philox64", seed=99)
        np.testing.assert_array_equal(got, numpy.random(1000, dtype=DTYPES[dtype].np))


@pytest.mark.parametrize("kind", [*SAME_EVERYWHERE, "mt19937"])
def test_words_do_not_depend_on_cuts(session: Any, kind: str) -> None:
    whole = words_of(session, kind, 7, 0, 9000)
    for cut in (1, 4095, 6001):
        parts = [words_of(session, kind, 7, 0, cut), words_of(session, kind, 7, cut, 9000 - cut)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
    np.testing.assert_array_equal(words_of(session, kind, 7, 0, 9000), whole, err_msg="again")
    np.testing.assert_array_equal(words_of(session, kind, 7, 8000, 1000), whole[8000:], err_msg="forwards")
    other = words_of(session, kind, 8, 0, 9000)
    assert (other != whole).mean() > 0.99, "another seed gives other numbers"


@pytest.mark.parametrize(
    "kind, ordering", [("xorwow", "default"), ("xorwow", "seeded"), ("mrg32k3a", "default"), ("mrg32k3a", "legacy")]
)
def test_far_positions(session: Any, kind: str, ordering: str) -> None:
    """A place is reached by skipping as by walking; rows of lanes meet at their seams."""
    far = 2**40 + 81920 * 4096 * 3 - 7
    whole = words_of(session, kind, 2**63 + 5, far, 200, ordering)
    parts = [words_of(session, kind, 2**63 + 5, far + i, 1, ordering)[0] for i in (0, 6, 7, 8, 199)]
    assert parts == whole[[0, 6, 7, 8, 199]].tolist()


@pytest.mark.parametrize("ordering", ["default", "seeded"])
def test_long_fills_are_short_ones_in_a_row(session: Any, ordering: str) -> None:
    """Parts of a long one are made side by side; where one ends, the next one goes on."""
    whole = words_of(session, "xorwow", 9, 6, 600_000, ordering)
    for at in range(0, 599_000, 49_999):
        np.testing.assert_array_equal(words_of(session, "xorwow", 9, 6 + at, 300, ordering), whole[at : at + 300])
    wide = run(session, RngFillBits, 300_000, "u64", kind="xorwow", ordering=ordering, seed=9, position=6)
    np.testing.assert_array_equal(wide, whole[0::2] | whole[1::2] << np.uint64(32))


@pytest.mark.parametrize("kind", ["mt19937", "mtgp32"])
def test_what_cannot_skip_refuses_to_go_too_far(session: Any, kind: str) -> None:
    """And goes on with what it can do."""
    want = words_of(session, kind, 5, 3, 10)
    with pytest.raises(UnsupportedOp, match=f"{kind} cannot skip, and position {2**40} is"):
        words_of(session, kind, 5, 2**40, 10)
    np.testing.assert_array_equal(words_of(session, kind, 5, 3, 10), want)


@pytest.mark.parametrize("kind", SAME_EVERYWHERE)
def test_wide_words_are_pairs(session: Any, kind: str) -> None:
    for dtype in ("i64", "u64"):
        got = run(session, RngFillBits, 100, dtype, kind=kind, seed=3, position=6)
        np.testing.assert_array_equal(got.view(np.uint64), wide_words(session, kind, 3, 6, 100))
    signed = run(session, RngFillBits, 100, "i32", kind=kind, seed=3, position=5)
    np.testing.assert_array_equal(signed.view(np.uint32), words_of(session, kind, 3, 5, 100))


# -- points ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dimensions", [1, 2, 7, 300])
@pytest.mark.parametrize("bits", [32, 64])
def test_sobol_points_are_scipys(session: Any, bits: int, dimensions: int) -> None:
    points = qmc.Sobol(dimensions, scramble=False, bits=bits).random(4096)
    for position in (0, 1, 1023, 1500):
        got = run(session, RngFillUniform, (70, dimensions), "f64", kind=f"sobol{bits}", position=position)
        np.testing.assert_array_equal(got, points[position : position + 70])
        whole = run(session, RngFillBits, (70, dimensions), f"u{bits}", kind=f"sobol{bits}", position=position)
        np.testing.assert_array_equal(whole * 2.0**-bits, points[position : position + 70])


@pytest.mark.parametrize("kind", ["scrambled_sobol32", "scrambled_sobol64"])
def test_scrambled_points_are_nets(session: Any, kind: str) -> None:
    """Of 2**10 points, every dyadic interval and every elementary box of area 2**-10 holds one; seeds differ."""
    first = run(session, RngFillUniform, (1024, 5), "f64", kind=kind, seed=5)
    again = run(session, RngFillUniform, (1024, 5), "f64", kind=kind, seed=6)
    assert (first != again).mean() > 0.99
    plain = run(session, RngFillUniform, (1024, 2), "f64", kind=kind[10:])
    for points in (first, again):
        for axis in range(5):
            assert np.unique(np.floor(points[:, axis] * 1024)).size == 1024
        for rows in (32, 2, 256):  # the first two dimensions are a (0, 2)-sequence in base 2, scrambled or not
            boxes = np.floor(points[:, 0] * rows) * (1024 // rows) + np.floor(points[:, 1] * (1024 // rows))
            assert np.unique(boxes).size == 1024
    assert (plain != first[:, :2]).mean() > 0.99
    parts = [run(session, RngFillUniform, (512, 5), "f64", kind=kind, seed=5, position=at) for at in (0, 512)]
    np.testing.assert_array_equal(np.concatenate(parts), first)


@pytest.mark.parametrize("bits", [32, 64])
def test_scrambling(session: Any, bits: int) -> None:
    """Every bit of a coordinate is the parity of some of the bits before it, that bit, and one of the shift."""
    seed, dimensions = 2**40 + 3, 3
    plain = run(session, RngFillBits, (9, dimensions), f"u{bits}", kind=f"sobol{bits}", position=5)
    got = run(session, RngFillBits, (9, dimensions), f"u{bits}", kind=f"scrambled_sobol{bits}", seed=seed, position=5)
    for axis in range(dimensions):
        blocks = [philox_4x32((i, 0, axis, 0x40000000), seed) for i in range(bits // 2 + 1)]
        rows = [low | high << 32 for a, b, c, d in blocks for low, high in ((a, b), (c, d))]
        for point, scrambled in zip(plain[:, axis].tolist(), got[:, axis].tolist(), strict=True):
            want = rows[bits] & (1 << bits) - 1
            for i in range(bits):
                place = bits - 1 - i
                before = point & rows[i] & (1 << bits) - 1 & ~((1 << place + 1) - 1)
                want ^= (before.bit_count() + (point >> place) & 1) << place
            assert scrambled == want


# -- a fixed number of words -------------------------------------------------------------------------------------------


@SHARED
@given(place=places, dtype=st.sampled_from(FLOATS), seed=seeds, count=counts)
def test_uniform(session: Any, place: tuple[str, int], dtype: str, seed: int, count: int) -> None:
    kind, at = place
    at *= 2 if dtype == "f64" else 1
    unit = run(session, RngFillUniform, count, dtype, kind=kind, seed=seed, position=at)
    if dtype == "f64":
        want = (wide_words(session, kind, seed, at, count) >> np.uint64(11)) * 2.0**-53
    else:
        bits = {"f16": 11, "bf16": 8, "f32": 24}[dtype]
        want = (words_of(session, kind, seed, at, count) >> np.uint64(32 - bits)) * 2.0**-bits
    np.testing.assert_array_equal(unit.astype(np.float64), want)
    low, high = -3.25, 1.7
    got = run(session, RngFillUniform, count, dtype, kind=kind, seed=seed, position=at, low=low, high=high)
    assert_close(got, low + (high - low) * want, dtype, kind="sum", scale=4)
    assert (got.astype(np.float64) < high).all()
    assert (got >= low).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform_never_reaches_high(session: Any, dtype: str) -> None:
    """Ranges of a few numbers of the dtype, where rounding would reach it."""
    kind = DTYPES[dtype].np.type
    one, after = kind(1), np.nextafter(np.nextafter(kind(1), kind(2)), kind(2))
    got = run(session, RngFillUniform, 2000, dtype, low=float(one), high=float(after))
    assert set(got.astype(np.float64).tolist()) == {1.0, float(np.nextafter(kind(1), kind(2)))}
    same = run(session, RngFillUniform, 10, dtype, low=2.0, high=2.0)
    assert (same == 2).all()


@SHARED
@given(
    kind=st.sampled_from(["philox", "philox64"]),
    dtype=st.sampled_from(FLOATS),
    seed=seeds,
    at=st.integers(0, 2**40),
    count=counts,
)
def test_normal(session: Any, kind: str, dtype: str, seed: int, at: int, count: int) -> None:
    mean, std = 0.5, 2.0
    step = 2 if dtype == "f64" else 1
    odd = at % 2
    if dtype == "f64":
        words = wide_words(session, kind, seed, step * (at - odd), (count + odd + 1) // 2 * 2) >> np.uint64(11)
        u, turn = (words[0::2] + np.uint64(1)) * 2.0**-53, words[1::2] * 2.0**-53
    else:
        words = words_of(session, kind, seed, at - odd, (count + odd + 1) // 2 * 2)
        u, turn = (words[0::2] + 0.5) * 2.0**-32, words[1::2] * 2.0**-32
    radius = np.sqrt(-2 * np.log(u))
    pairs = radius * np.stack([np.sin(2 * np.pi * turn), np.cos(2 * np.pi * turn)])
    want = mean + std * pairs.T.reshape(-1)[odd : odd + count]
    where = {"kind": kind, "seed": seed, "position": step * at}
    # u is rounded to f32, of which the radius is off by as much divided by it: far where u is near 1.
    scale = 30 + np.repeat(std / np.maximum(radius, 2**-12), 2)[odd : odd + count]
    got = run(session, RngFillNormal, count, dtype, mean=mean, std=std, **where)
    assert_close(got, want, dtype, kind="sum", scale=scale)
    if dtype != "f16":
        got = run(session, RngFillLogNormal, count, dtype, mean=mean, std=std, **where)
        assert_close(got, np.exp(want), dtype, kind="sum", scale=scale * np.exp(want))


@SHARED
@given(place=places, dtype=st.sampled_from(FLOATS), seed=seeds, count=counts)
def test_exponential_and_cauchy(session: Any, place: tuple[str, int], dtype: str, seed: int, count: int) -> None:
    kind, at = place
    at *= 2 if dtype == "f64" else 1
    where = {"kind": kind, "seed": seed, "position": at}
    if dtype == "f64":
        words = wide_words(session, kind, seed, at, count)
        u, upper = ((words >> np.uint64(11)) + np.uint64(1)) * 2.0**-53, words >> np.uint64(63) != 0
        nearer = (np.where(upper, ~words, words) >> np.uint64(11)) + 0.5  # exact: the distance to the nearer tail
        v = np.where(upper, nearer, -nearer) * 2.0**-53
    else:
        words = words_of(session, kind, seed, at, count)
        u = (words + 0.5) * 2.0**-32
        v = np.where(u < 0.5, -u, 1 - u)
    got = run(session, RngFillExponential, count, dtype, rate=0.25, **where)
    assert_close(got, -4 * np.log(u), dtype, kind="sum", scale=4 * (1 - np.log(u)))
    assert (got >= 0).all()
    want = 1 + 2 / np.tan(np.pi * v)
    assert_close(run(session, RngFillCauchy, count, dtype, loc=1, scale=2, **where), want, dtype, kind="sum",
                 scale=4 * np.maximum(np.abs(want), 2))  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", ["xorwow", "mrg32k3a", "mtgp32", "sobol32", "scrambled_sobol64"])
def test_normal_by_the_inverse(session: Any, kind: str, dtype: str) -> None:
    where = {"kind": kind, "position": 2}
    width = 64 if dtype == "f64" else 32
    if "sobol" in kind:
        bits = 32 if "32" in kind else 64
        points = run(session, RngFillBits, 500, f"u{bits}", **where).astype(object)
        words = np.array([int(p) << width >> bits for p in points], np.uint64)
    else:
        words = wide_words(session, kind, 0, 2, 500) if width == 64 else words_of(session, kind, 0, 2, 500)
    u = ((words >> np.uint64(12)) + 0.5) * 2.0**-52 if width == 64 else (words + 0.5) * 2.0**-32
    want = 1 + 2 * special.ndtri(u)
    got = run(session, RngFillNormal, 500, dtype, mean=1, std=2, **where)
    assert_close(got, want, dtype, kind="sum", scale=16)
    got = run(session, RngFillLogNormal, 500, dtype, std=0.5, **where)
    assert_close(got, np.exp((want - 1) / 4), dtype, kind="sum", scale=16 * np.exp((want - 1) / 4))


# -- rejections --------------------------------------------------------------------------------------------------------

RANGES = {
    "i32": [(0, 10), (-(2**31), 2**31), (-3, 2**31), (-(2**30), 2**31)],
    "u32": [(0, 1), (0, 2**32), (5, 3 * 2**30)],
    "i64": [(-(2**63), 2**63), (-7, 3), (-(2**62), 2**63)],
    "u64": [(0, 2**64), (1, 2**64), (0, 3 * 2**62), (2**63 - 5, 2**63 + 5)],
}


@SHARED
@given(
    data=st.data(),
    dtype=st.sampled_from(INTEGERS),
    kind=st.sampled_from(["philox", "philox64"]),
    seed=seeds,
    at=st.integers(0, 2**40),
)
def test_integers(session: Any, data: Any, dtype: str, kind: str, seed: int, at: int) -> None:
    low, high = data.draw(st.sampled_from(RANGES[dtype]))
    bits = 8 * DTYPES[dtype].itemsize
    at *= bits // 32
    got = run(session, RngFillIntegers, 30, dtype, kind=kind, seed=seed, position=at, low=low, high=high)
    words = wide_words(session, kind, seed, at, 30) if bits == 64 else words_of(session, kind, seed, at, 30)
    want = [integer(int(w), bits, seed, at + i * bits // 32, low, high) for i, w in enumerate(words)]
    assert got.tolist() == want


@pytest.mark.parametrize("rate", [0.0, 0.3, 9.5, 10.0, 77.0, 1e6])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_poisson(session: Any, dtype: str, rate: float) -> None:
    for kind in ("philox", "philox64"):
        got = run(session, RngFillPoisson, 200, dtype, kind=kind, seed=11, position=2**33 + 1, rate=rate)
        assert got.tolist() == [poisson_number(11, 2**33 + 1 + i, rate) for i in range(200)]


@pytest.mark.parametrize("shape", [0.02, 0.7, 1.0, 30.0])
@pytest.mark.parametrize("dtype", FLOATS)
def test_gamma(session: Any, dtype: str, shape: float) -> None:
    got = run(session, RngFillGamma, 150, dtype, seed=2**50 + 1, position=3, shape=shape, scale=0.5)
    logs = np.array([gamma_number(2**50 + 1, 3 + i, shape) for i in range(150)])
    want = np.exp(logs) * 0.5
    assert_close(got, want, dtype, kind="solve", scale=want * (1 + np.abs(logs)))


@pytest.mark.parametrize("alpha, beta", [(0.01, 0.02), (0.5, 3.0), (20.0, 10.0)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_beta(session: Any, dtype: str, alpha: float, beta: float) -> None:
    got = run(session, RngFillBeta, 150, dtype, seed=9, position=70, alpha=alpha, beta=beta)
    logs = [(gamma_number(9, 70 + i, alpha), gamma_number(9, 70 + i, beta, True)) for i in range(150)]
    want = np.array([1 / (1 + math.exp(y - x)) if y - x < 700 else 0.0 for x, y in logs])
    assert_close(got, want, dtype, kind="solve", scale=100 * want)
    assert ((got >= 0) & (got <= 1)).all()


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("weight", ["f32", "f64"])
def test_discrete(session: Any, weight: str, dtype: str) -> None:
    weights = np.array([0, 1, 0.5, 0, 4, 2.5, 0], DTYPES[weight].np)
    for kind in ("philox", "philox64"):
        op = RngFillDiscrete(out=session.empty(500, dtype), weights=session.put(weights), kind=kind, seed=4, position=2)
        unit = (wide_words(session, kind, 4, 2, 500) >> np.uint64(11)) * 2.0**-53
        want = np.searchsorted(np.cumsum(weights, dtype=np.float64), unit * 8, side="right")
        np.testing.assert_array_equal(session.get(execute(session, op)), want)


def test_discrete_of_many_weights(session: Any) -> None:
    weights = np.random.default_rng(1).random(5000)
    weights[::3] = 0
    op = RngFillDiscrete(out=session.empty(20_000, "i32"), weights=session.put(weights), seed=4)
    got = session.get(execute(session, op))
    unit = (wide_words(session, "philox", 4, 0, 20_000) >> np.uint64(11)) * 2.0**-53
    sums = np.cumsum(weights)
    want = np.searchsorted(sums, unit * sums[-1], side="right")
    assert (got != want).mean() < 1e-3, "sums differ in their last bits"
    assert (weights[got] > 0).all()


@pytest.mark.parametrize(
    "weights, says",
    [
        ([1, -1e-30, 2], "weights[1] is -1e-30; every weight must be finite and >= 0"),
        ([1, 2, np.nan, -1], "weights[2] is nan; every weight must be finite and >= 0"),
        ([np.inf, 1], "weights[0] is inf; every weight must be finite and >= 0"),
        ([1] * 3000 + [-2, -3], "weights[3000] is -2.0; every weight must be finite and >= 0"),
        ([0, 0.0], "weights add up to 0.0; one at least must be > 0"),
        ([1e308, 1e308], "weights add up to inf; divide them by the largest"),
    ],
    ids=lambda x: x[:22] if isinstance(x, str) else "",
)
@pytest.mark.parametrize("count", [0, 5])
def test_what_are_no_weights_is_refused_by_the_fill(session: Any, weights: list[float], says: str, count: int) -> None:
    op = RngFillDiscrete(out=session.empty(count, "i32"), weights=session.put(np.array(weights, np.float64)))
    with pytest.raises(NumericalError) as caught:
        execute(session, op)
    assert f"rng.fill_discrete: {says}" in str(caught.value)
    assert caught.value.info == -1
    right = RngFillDiscrete(out=session.empty(5, "i32"), weights=session.put(np.array([0.0, 1.0], np.float32)))
    np.testing.assert_array_equal(session.get(execute(session, right)), 1)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 1000, 2048, 2049, 10_000])
@pytest.mark.parametrize("dtype", ["i32", "i64", "u32", "u64"])
def test_permutation(session: Any, dtype: str, count: int) -> None:
    for kind in ("philox", "philox64"):
        got = run(session, RngFillPermutation, count, dtype, kind=kind, seed=1, position=10)
        want = np.argsort(wide_words(session, kind, 1, 10, count), kind="stable")
        np.testing.assert_array_equal(got, want)


# -- arrays ------------------------------------------------------------------------------------------------------------

EVERY: list[tuple[Any, str, dict[str, Any]]] = [
    (RngFillBits, "u32", {}),
    (RngFillUniform, "f32", {}),
    (RngFillUniform, "f64", {"kind": "xorwow"}),
    (RngFillUniform, "f64", {"kind": "mtgp32"}),
    (RngFillBits, "u32", {"kind": "mtgp32", "ordering": "legacy"}),
    (RngFillNormal, "f64", {}),
    (RngFillNormal, "f16", {"kind": "mrg32k3a"}),
    (RngFillLogNormal, "f32", {"kind": "philox64"}),
    (RngFillExponential, "bf16", {}),
    (RngFillCauchy, "f32", {"kind": "scrambled_sobol32"}),
    (RngFillIntegers, "i64", {"low": -5, "high": 6}),
    (RngFillPoisson, "i32", {"rate": 4.0}),
    (RngFillGamma, "f32", {"shape": 0.5}),
    (RngFillBeta, "f64", {"alpha": 2, "beta": 3}),
]


@pytest.mark.parametrize("cls, dtype, fields", EVERY, ids=lambda x: getattr(x, "__name__", None))
def test_views_are_filled_like_arrays_and_nothing_beside_them(
    session: Any, cls: Any, dtype: str, fields: dict[str, Any]
) -> None:
    want = run(session, cls, (6, 5), dtype, **fields)
    around = session.put(np.full((14, 8), 77, DTYPES[dtype].np))
    inside = (slice(12, 0, -2), slice(2, 7))
    result = execute(session, cls(out=around[inside], **fields))
    np.testing.assert_array_equal(session.get(result), want)
    whole = session.get(around)
    np.testing.assert_array_equal(whole[inside], want)
    mask = np.ones(whole.shape, bool)
    mask[inside] = False
    assert (whole[mask] == 77).all()
    for shape in ((), (0,), (3, 0)):
        assert run(session, cls, shape, dtype, **fields).shape == shape


@pytest.mark.parametrize("cls, dtype, fields", EVERY, ids=lambda x: getattr(x, "__name__", None))
def test_two_halves_are_the_whole(session: Any, cls: Any, dtype: str, fields: dict[str, Any]) -> None:
    """Also where pairs, blocks, rows of lanes and the slices of the CPU are cut."""
    kind = fields.get("kind", "philox")
    step = 1 if "sobol" in kind else cls.step(DTYPES[dtype])
    whole = run(session, cls, 140_001, dtype, seed=3, position=4 * step, **fields)
    for cut in (1, 33_333):
        parts = [
            run(session, cls, cut, dtype, seed=3, position=4 * step, **fields),
            run(session, cls, 140_001 - cut, dtype, seed=3, position=(4 + cut) * step, **fields),
        ]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
