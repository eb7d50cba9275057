"""Numbers from words, by the formulas of the messages; a word of 32 bits for halves and f32, of 64 for f64."""

import math
from collections.abc import Callable

from callboard.backends.torch.conversion import as_i64
from callboard.backends.torch.rng.words import LOW, element_words, high_product, wide
from callboard.backends.torch.vendor import Tensor, torch
from callboard.core.dtype import DType
from callboard.kernel.rng.ranges import UNIFORM_BITS, uniform_range

__all__ = [
    "beta",
    "cauchy",
    "exponential",
    "gamma",
    "integers",
    "inverse_normal",
    "normal",
    "poisson",
    "uniform",
    "unit",
]


def _shifted(words: Tensor, by: int, bits: int) -> Tensor:
    """The upper bits of words, shifted to the right without their sign."""
    return (words >> by) & ((1 << bits - by) - 1)


def unit(words: Tensor) -> Tensor:
    """Multiples of 2**-53 in [0, 1), of words of 64 bits."""
    return _shifted(words, 11, 64).to(torch.float64) * 2.0**-53


def above(words: Tensor, double: bool) -> Tensor:
    """Numbers in (0, 1]."""
    if double:
        return (_shifted(words, 11, 64) + 1).to(torch.float64) * 2.0**-53
    return words.to(torch.float32) * 2.0**-32 + 2.0**-33


def uniform(words: Tensor, dtype: DType, low: float, high: float) -> Tensor:
    """Numbers of ``[low, high)``: multiples of a power of two of the range."""
    bits, double = UNIFORM_BITS[dtype.name], dtype.name == "f64"
    size = 64 if double else 32
    found = _shifted(words, size - bits, size).to(torch.float64 if double else torch.float32) * 2.0**-bits
    if (low, high) == (0.0, 1.0):
        return found
    least, span, top = uniform_range(low, high, dtype)
    return (found * span + least).clamp(max=top)


def exponential(words: Tensor, dtype: DType, rate: float) -> Tensor:
    """``-log(u) / rate``."""
    return torch.log(above(words, dtype.name == "f64")) * (-1.0 / rate)


def cauchy(words: Tensor, dtype: DType, loc: float, scale: float) -> Tensor:
    """By the distance to the nearer tail: both are resolved alike."""
    if dtype.name == "f64":
        upper, distance = words < 0, torch.where(words < 0, ~words, words)
        at = (_shifted(distance, 11, 64).to(torch.float64) + 0.5) * 2.0**-53
    else:
        upper = words >> 31 != 0
        at = (torch.where(upper, ~words & LOW, words).to(torch.float32) + 0.5) * 2.0**-32
    found = 1 / torch.tan(at * math.pi)
    return torch.where(upper, found, -found) * scale + loc


def inverse_normal(words: Tensor, dtype: DType, mean: float, std: float) -> Tensor:
    """By the inverse of the distribution function, so that points keep their order."""
    if dtype.name == "f64":
        at = (_shifted(words, 12, 64).to(torch.float64) + 0.5) * 2.0**-52
    else:
        at = (words.to(torch.float64) + 0.5) * 2.0**-32
    return mean + std * torch.special.ndtri(at)


def normal(words: Tensor, dtype: DType, mean: float, std: float) -> Tensor:
    """Box and Muller's transform of pairs of words; sine and cosine alternate."""
    double = dtype.name == "f64"
    pairs = words.reshape(-1, 2)
    radius = torch.sqrt(-2 * torch.log(above(pairs[:, 0], double)))
    turn = unit(pairs[:, 1]) if double else pairs[:, 1].to(torch.float32) * 2.0**-32
    angle = turn * (2 * math.pi)
    return torch.stack([radius * torch.sin(angle), radius * torch.cos(angle)], -1).reshape(-1) * std + mean


# -- rejections: every element tries its own subsequence until a try is accepted ---------------------------------------

Attempt = Callable[[int, Tensor], tuple[Tensor, Tensor]]


def _until_accepted(attempt: Attempt, positions: Tensor) -> Tensor:
    found = torch.empty(positions.shape, dtype=torch.float64, device=positions.device)
    waiting = torch.arange(positions.shape[0], device=positions.device)
    turn = 0
    while waiting.numel():
        numbers, accepted = attempt(turn, positions[waiting])
        found[waiting[accepted]] = numbers[accepted]
        waiting = waiting[~accepted]
        turn += 1
    return found


def _log_gamma(seed: int, positions: Tensor, shape: float, second: bool) -> Tensor:
    """Marsaglia and Tsang, "A simple method for generating gamma variables", ACM TOMS 26 (2000); logarithms."""
    d = (shape if shape >= 1.0 else shape + 1.0) - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)

    def attempt(turn: int, where: Tensor) -> tuple[Tensor, Tensor]:
        first = wide(element_words(seed, where, 2 * turn, second))
        other = wide(element_words(seed, where, 2 * turn + 1, second))
        x = torch.sqrt(-2.0 * torch.log(above(first[:, 0], True))) * torch.cos(2.0 * math.pi * unit(first[:, 1]))
        v = (1.0 + c * x) ** 3
        log_v = torch.log(torch.where(v > 0, v, 1.0))
        accepted = (v > 0) & (torch.log(above(other[:, 0], True)) < 0.5 * x * x + d - d * v + d * log_v)
        found = math.log(d) + log_v
        return found + torch.log(above(other[:, 1], True)) / shape if shape < 1.0 else found, accepted

    return _until_accepted(attempt, positions)


def gamma(seed: int, positions: Tensor, shape: float, scale: float) -> Tensor:
    """f64, for elements at these positions."""
    return torch.exp(_log_gamma(seed, positions, shape, False)) * scale


def beta(seed: int, positions: Tensor, alpha: float, beta: float) -> Tensor:
    """f64, from two gamma numbers whose ratio is formed of their logarithms."""
    difference = _log_gamma(seed, positions, beta, True) - _log_gamma(seed, positions, alpha, False)
    return 1.0 / (1.0 + torch.exp(difference))


def poisson(seed: int, positions: Tensor, rate: float) -> Tensor:
    """Inversion below 10, transformed rejection above: Hörmann (1993), PTRS."""
    if rate < 10.0:
        u = unit(wide(element_words(seed, positions, 0)))[:, 0]
        total = term = math.exp(-rate)
        found = torch.zeros_like(u)
        for k in range(1, 128):
            larger = u >= total
            if not bool(larger.any()):
                break
            found = torch.where(larger, float(k), found)
            term *= rate / k
            total += term
        return found
    root, log_rate = math.sqrt(rate), math.log(rate)
    b = 0.931 + 2.53 * root
    a = -0.059 + 0.02483 * b
    inverse_alpha, v_r = 1.1239 + 1.1328 / (b - 3.4), 0.9277 - 3.6224 / (b - 2.0)

    def attempt(turn: int, where: Tensor) -> tuple[Tensor, Tensor]:
        drawn = wide(element_words(seed, where, turn))
        u, v = unit(drawn[:, 0]) - 0.5, unit(drawn[:, 1])
        us = 0.5 - u.abs()
        k = torch.floor((2.0 * a / us + b) * u + rate + 0.43)
        sure = (us >= 0.07) & (v <= v_r)
        never = (k < 0) | ((us < 0.013) & (v > us))
        left = torch.log(v) + math.log(inverse_alpha) - torch.log(a / (us * us) + b)
        return k, sure | ~never & (left <= k * log_rate - rate - torch.lgamma(k + 1.0))

    return _until_accepted(attempt, positions)


def integers(words: Tensor, bits: int, seed: int, positions: Tensor, low: int, span: int) -> Tensor:
    """``low`` plus numbers below ``span``, 0 standing for 2**64; Lemire (2019), modulo 2**64."""
    size = span or 2**64
    threshold = 2**bits % size

    def product(x: Tensor) -> tuple[Tensor, Tensor]:
        if size == 2**64:
            return x, torch.zeros_like(x)
        if bits == 32:
            whole = x * as_i64(size)
            return (whole >> 32) & LOW, whole & LOW
        return high_product(x, size), x * as_i64(size)

    def enough(rest: Tensor) -> Tensor:
        return rest >= threshold if bits == 32 else rest - 2**63 >= as_i64(threshold - 2**63)

    found, rest = product(words)
    waiting = (~enough(rest)).nonzero()[:, 0]
    turn = 0
    while waiting.numel():
        drawn = element_words(seed, positions[waiting], turn)
        for one in (drawn if bits == 32 else wide(drawn)).unbind(-1):
            high, rest = product(one)
            accepted = enough(rest) & (waiting >= 0)
            found[waiting[accepted]] = high[accepted]
            waiting = torch.where(accepted, -1, waiting)
        waiting = waiting[waiting >= 0]
        turn += 1
    return found + as_i64(low)
