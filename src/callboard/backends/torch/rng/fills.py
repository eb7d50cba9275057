"""Plans of fills."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from callboard.backends.torch.library import Plan, TorchLibrary
from callboard.backends.torch.rng import laws
from callboard.backends.torch.rng.words import LOW, points, wide, words
from callboard.backends.torch.vendor import Tensor, held_as, torch
from callboard.core.dtype import DType
from callboard.core.library import plans
from callboard.kernel import rng
from callboard.kernel.rng.fill import Fill
from callboard.kernel.rng.streams import KINDS, points_of, words_per_element
from callboard.kernel.rng.weights import bad_sum, bad_weight

__all__ = ["by_element", "by_words", "chosen", "permuted", "ranged"]

BY_WORDS: Mapping[type[Any], Callable[..., Tensor]] = {
    rng.RngFillBits: lambda drawn, dtype: drawn,
    rng.RngFillUniform: laws.uniform,
    rng.RngFillExponential: laws.exponential,
    rng.RngFillCauchy: laws.cauchy,
    rng.RngFillNormal: laws.inverse_normal,
    rng.RngFillLogNormal: laws.inverse_normal,
}
BY_ELEMENT: Mapping[type[Any], Callable[..., Tensor]] = {
    rng.RngFillBeta: laws.beta,
    rng.RngFillGamma: laws.gamma,
    rng.RngFillPoisson: laws.poisson,
}
NORMAL = (rng.RngFillNormal, rng.RngFillLogNormal)


def _as_bits(found: Tensor, dtype: DType) -> Tensor:
    """Integers of 64 bits in a narrower or unsigned dtype, by their bits."""
    if dtype.itemsize == 4:
        found = (((found & LOW) ^ 2**31) - 2**31).to(torch.int32)
    return found.contiguous().view(held_as(dtype))


def _drawn(op: Fill, seed: int, position: int, count: int, where: Any) -> Tensor:
    """Words for so many elements, of the bits that the dtype takes."""
    step = words_per_element(op.out.dtype)
    if not KINDS[op.kind].quasi:
        found = words(op.kind, seed, position, count * step, where)
        return found if step == 1 else wide(found)
    dimensions, bits = points_of(op.out.layout)[1], KINDS[op.kind].bits
    found = points(op.kind, seed, position, count // max(dimensions, 1), dimensions, where).reshape(-1)
    if bits < 32 * step:
        return found << 32 * step - bits
    return (found >> bits - 32 * step) & LOW if bits > 32 * step else found


@plans(*BY_WORDS)
def by_words(library: TorchLibrary, op: Fill) -> Plan:
    """Return numbers made of a fixed number of words."""
    dtype, shape, law = op.out.dtype, op.out.shape, BY_WORDS[type(op)]
    count, step = op.out.size, words_per_element(op.out.dtype)
    pairs = isinstance(op, NORMAL) and not KINDS[op.kind].quasi

    def work(seed: int, position: int, *numbers: float) -> Tensor:
        if not count:
            return torch.empty(shape)
        if pairs:
            skipped = position // step % 2
            drawn = _drawn(op, seed, position - skipped * step, (skipped + count + 1) // 2 * 2, library.where)
            found = laws.normal(drawn, dtype, *numbers)[skipped : skipped + count]
        else:
            found = law(_drawn(op, seed, position, count, library.where), dtype, *numbers)
        found = torch.exp(found) if isinstance(op, rng.RngFillLogNormal) else found
        return (_as_bits(found, dtype) if dtype.is_integer else found).reshape(shape)

    return library.planned(op, work)


def _positions(position: int, count: int, step: int, where: Any) -> Tensor:
    return torch.arange(count, dtype=torch.int64, device=where) * step + position


@plans(*BY_ELEMENT)
def by_element(library: TorchLibrary, op: Any) -> Plan:
    """Return numbers whose elements have a subsequence each."""
    law, shape, count = BY_ELEMENT[type(op)], op.out.shape, op.out.size

    def work(seed: int, position: int, *numbers: float) -> Tensor:
        found = law(seed, _positions(position, count, 1, library.where), *numbers)
        return (_as_bits(found.to(torch.int64), op.out.dtype) if op.out.dtype.is_integer else found).reshape(shape)

    return library.planned(op, work)


@plans(rng.RngFillIntegers)
def ranged(library: TorchLibrary, op: rng.RngFillIntegers) -> Plan:
    """Return integers of a range."""
    dtype, count, step = op.out.dtype, op.out.size, words_per_element(op.out.dtype)

    def work(seed: int, position: int, low: int, high: int) -> Tensor:
        drawn = _drawn(op, seed, position, count, library.where)
        at = _positions(position, count, step, library.where)
        found = laws.integers(drawn, 32 * step, seed, at, low, (high - low) % 2**64)
        return _as_bits(found, dtype).reshape(op.out.shape)

    return library.planned(op, work)


@plans(rng.RngFillDiscrete)
def chosen(library: TorchLibrary, op: rng.RngFillDiscrete) -> Plan:
    """Return indices by their weights."""
    dtype, count = op.out.dtype, op.out.size

    def work(seed: int, position: int, weights: Tensor) -> Tensor:
        wrong = (~((weights >= 0) & torch.isfinite(weights))).nonzero()
        if wrong.numel():
            raise bad_weight(int(wrong[0]), float(weights[wrong[0]]))
        sums = torch.cumsum(weights, 0, dtype=torch.float64)
        total = float(sums[-1])
        if error := bad_sum(total):
            raise error
        at = laws.unit(wide(words(op.kind, seed, position, 2 * count, library.where))) * total
        found = torch.searchsorted(sums, at.clamp(max=math.nextafter(total, 0.0)), right=True)
        return _as_bits(found, dtype).reshape(op.out.shape)

    return library.planned(op, work)


@plans(rng.RngFillPermutation)
def permuted(library: TorchLibrary, op: rng.RngFillPermutation) -> Plan:
    """Return the order of random keys."""
    dtype, count = op.out.dtype, op.out.size

    def work(seed: int, position: int) -> Tensor:
        keys = wide(words(op.kind, seed, position, 2 * count, library.where))
        return _as_bits(torch.argsort(keys - 2**63, stable=True), dtype)

    return library.planned(op, work)
