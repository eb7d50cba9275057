"""Shared by the suites of random numbers: references written out one number at a time, in Python's own integers."""

import math
from collections.abc import Iterator
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from callboard.core.op import Op

Array = np.ndarray[Any, Any]

SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
SKIPPING = ("philox", "philox64", "xorwow", "mrg32k3a")
SAME_EVERYWHERE = (*SKIPPING, "mtgp32")
FLOATS = ("f16", "bf16", "f32", "f64")
INTEGERS = ("i32", "u32", "i64", "u64")
MASK = 0xFFFFFFFF

seeds = st.integers(0, 2**64 - 1)
counts = st.integers(0, 40)
places = st.one_of(
    st.tuples(st.sampled_from(SKIPPING), st.integers(0, 2**40)),
    st.tuples(st.just("mtgp32"), st.integers(0, 10**5)),  # it gets there on foot
)
"""A kind and a position."""


def philox_4x32(counter: tuple[int, int, int, int], seed: int) -> list[int]:
    """A block, as the paper describes it."""
    c0, c1, c2, c3 = counter
    k0, k1 = seed & MASK, seed >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = p1 >> 32 ^ c1 ^ k0, p1 & MASK, p0 >> 32 ^ c3 ^ k1, p0 & MASK
        k0, k1 = k0 + 0x9E3779B9 & MASK, k1 + 0xBB67AE85 & MASK
    return [c0, c1, c2, c3]


def plain_word(seed: int, position: int) -> int:
    """A word of ``philox``, in the order that the messages document."""
    group, i = divmod(position, 4)
    row, lane = divmod(group, 65536)
    return philox_4x32((row & MASK, row >> 32, lane, 0), seed)[i]


def element_words(seed: int, position: int, second: bool = False) -> Iterator[int]:
    """The subsequence of an element."""
    turn = 0
    while True:
        yield from philox_4x32((turn, second << 31, position & MASK, position >> 32 | 1 << 31), seed)
        turn += 1


def doubles(words: Iterator[int]) -> Iterator[tuple[float, float]]:
    """Pairs of words as a number in [0, 1) and one in (0, 1]."""
    for low in words:
        word = (next(words) << 32 | low) >> 11
        yield word * 2.0**-53, (word + 1) * 2.0**-53


def gamma_number(seed: int, position: int, shape: float, second: bool = False) -> float:
    """Logarithm of a gamma number; Marsaglia and Tsang (2000)."""
    d = (shape if shape >= 1 else shape + 1) - 1 / 3
    draws = doubles(element_words(seed, position, second))
    while True:
        (_, u), (turn, _), (_, accept), (_, boost) = (next(draws) for _ in range(4))
        x = math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * turn)
        v = (1 + x / math.sqrt(9 * d)) ** 3
        if v > 0 and math.log(accept) < x * x / 2 + d - d * v + d * math.log(v):
            return math.log(d * v) + (math.log(boost) / shape if shape < 1 else 0)


def poisson_number(seed: int, position: int, rate: float) -> int:
    """Inversion, or Hörmann's PTRS (1993)."""
    draws = doubles(element_words(seed, position))
    if rate < 10:
        u, k = next(draws)[0], 0
        total = term = math.exp(-rate)
        while u >= total and k < 127:
            k += 1
            term *= rate / k
            total += term
        return k
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    while True:
        u, v = next(draws)[0] - 0.5, next(draws)[0]
        us = 0.5 - abs(u)
        if us == 0:
            continue
        k = math.floor((2 * a / us + b) * u + rate + 0.43)
        if us >= 0.07 and v <= 0.9277 - 3.6224 / (b - 2):
            return k
        if k < 0 or (us < 0.013 and v > us):
            continue
        left = (math.log(v) if v else -math.inf) + math.log(1.1239 + 1.1328 / (b - 3.4)) - math.log(a / us**2 + b)
        if left <= k * math.log(rate) - rate - math.lgamma(k + 1):
            return k


def integer(word: int, bits: int, seed: int, position: int, low: int, high: int) -> int:
    """Lemire (2019); ``word`` of the plain stream, then those of the element."""
    span, size = high - low, 1 << bits
    more = element_words(seed, position)
    while word * span % size < size % span:
        word = next(more) if bits == 32 else next(more) | next(more) << 32
    return low + (word * span >> bits)


def execute(session: Any, op: Op[Any, Any]) -> Any:
    """Submit; where another backend than the CPU says that it does not execute this op, go on without it."""
    reason = session.why_not(op)
    if reason is not None:
        if hypothesis.currently_in_test_context():
            hypothesis.reject()
        pytest.skip(reason)
    return session.submit(op)


def run(session: Any, cls: type[Op[Any, Any]], size: int | tuple[int, ...], dtype: str, **fields: Any) -> Array:
    """A fill of a new array, on the host."""
    found: Array = session.get(execute(session, cls(out=session.empty(size, dtype), **fields)))
    return found


def words_of(session: Any, kind: str, seed: int, position: int, count: int, ordering: Any = "default") -> Array:
    """Words of a stream, ``[count]`` of uint64 holding 32 bits each."""
    from callboard.kernel.rng import RngFillBits

    fields = {"kind": kind, "ordering": ordering, "seed": seed, "position": position}
    return run(session, RngFillBits, count, "u32", **fields).astype(np.uint64)


def wide_words(session: Any, kind: str, seed: int, position: int, count: int) -> Array:
    words = words_of(session, kind, seed, position, 2 * count)
    return words[0::2] | words[1::2] << np.uint64(32)
