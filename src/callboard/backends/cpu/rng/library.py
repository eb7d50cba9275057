"""``CpuRng``: which fill serves which message."""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.library import CpuLibrary
from callboard.backends.cpu.rng import distributions, rejections
from callboard.backends.cpu.rng.fills import (
    LONG_SLICE,
    SLICE,
    Make,
    Slices,
    filled,
    from_points,
    from_words,
    normal,
    numpy_uniform,
)
from callboard.backends.cpu.rng.sources import sources
from callboard.backends.cpu.rng.states import States
from callboard.backends.cpu.views import viewer
from callboard.core.backend import AccelDevice, AccelStream
from callboard.core.backend.machine import workers
from callboard.core.library import plans
from callboard.kernel.rng import (
    RngFillBeta,
    RngFillBits,
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
from callboard.kernel.rng.fill import Fill
from callboard.kernel.rng.streams import KINDS, points_of, words_per_element
from callboard.kernel.rng.transforms import TRANSFORMS
from callboard.kernel.rng.weights import bad_sum, bad_weight

__all__ = ["CpuRng"]

Array = np.ndarray[Any, Any]
Plan = Callable[..., None]


class CpuRng(CpuLibrary):
    """Serves :mod:`callboard.kernel.rng` with NumPy: every op is the reference of its numbers."""

    name = "rng"
    implementation = "rng"

    def __init__(self, device: AccelDevice, stream: AccelStream) -> None:
        super().__init__(device, stream)
        self._slices = Slices(workers())
        self._in_turn = Slices(workers=1)
        self._states = States()
        self._words = sources(self._states)

    def close(self) -> None:
        self._slices.close()
        self._states.clear()

    # -- a fixed number of words an element ----------------------------------------------------------------------------

    @plans(*TRANSFORMS)
    def plan_transform(self, op: Fill) -> Plan:
        layout, kind = op.out.layout, KINDS[op.kind]
        make = self._make(op)
        if kind.quasi and points_of(layout)[1] > 1:  # slices of whole points
            return filled(layout, lambda flat, seed, position, numbers: make(flat, seed, position, *numbers))
        step = 1 if kind.quasi else words_per_element(layout.dtype)
        size = LONG_SLICE if op.kind in ("xorwow", "mrg32k3a") else SLICE
        slices = self._slices if kind.skips else self._in_turn

        def work(flat: Array, seed: int, position: int, numbers: tuple[Any, ...]) -> None:
            slices.run(make, step, flat, seed, position, numbers, size)

        return filled(layout, work)

    def _make(self, op: Fill) -> Make:
        dtype, kind = op.out.dtype, KINDS[op.kind]
        if op.kind == "philox64" and isinstance(op, RngFillUniform) and dtype.name in ("f32", "f64"):
            return numpy_uniform(dtype)
        if op.kind in ("philox", "philox64") and isinstance(op, RngFillNormal | RngFillLogNormal):
            return normal(op.kind, self._words[op.kind, op.ordering], dtype, isinstance(op, RngFillLogNormal))
        numbers_of: distributions.Distribution
        match op:
            case RngFillBits():
                numbers_of = _bits(dtype.np)
            case RngFillUniform():
                numbers_of = distributions.uniform(dtype)
            case RngFillNormal():
                numbers_of = distributions.inverse_normal
            case RngFillLogNormal():
                numbers_of = distributions.log_inverse_normal
            case RngFillExponential():
                numbers_of = distributions.exponential
            case _:
                numbers_of = distributions.cauchy
        if kind.quasi:
            return from_points(op.kind, op.out.layout, numbers_of)
        return from_words(self._words[op.kind, op.ordering], numbers_of, words_per_element(dtype))

    # -- rejections ----------------------------------------------------------------------------------------------------

    def _by_element(self, op: Fill, numbers_of: Callable[..., Array]) -> Plan:
        """``numbers_of(seed, positions, *numbers)``, one word of the position an element."""

        def make(flat: Array, seed: int, position: int, *numbers: Any) -> None:
            positions = np.arange(position, position + flat.size, dtype=np.uint64)
            flat[...] = numbers_of(seed, positions, *numbers)

        return filled(op.out.layout, lambda *a: self._slices.run(make, 1, *a))

    @plans(RngFillPoisson)
    def plan_poisson(self, op: RngFillPoisson) -> Plan:
        return self._by_element(op, rejections.poisson)

    @plans(RngFillGamma)
    def plan_gamma(self, op: RngFillGamma) -> Plan:
        return self._by_element(op, rejections.gamma)

    @plans(RngFillBeta)
    def plan_beta(self, op: RngFillBeta) -> Plan:
        return self._by_element(op, rejections.beta)

    @plans(RngFillIntegers)
    def plan_integers(self, op: RngFillIntegers) -> Plan:
        words, step, dtype = self._words[op.kind, op.ordering], words_per_element(op.out.dtype), op.out.dtype.np

        def make(flat: Array, seed: int, position: int, low: int, high: int) -> None:
            drawn = np.ascontiguousarray(words(seed, position, step * flat.size)).view(f"u{4 * step}")
            positions = np.arange(position, position + step * flat.size, step, dtype=np.uint64)
            mask = 2 ** (8 * drawn.dtype.itemsize) - 1
            span = high - low & 2**64 - 1
            flat[...] = rejections.integers(drawn, seed, positions, low & mask, span).view(dtype)

        return filled(op.out.layout, lambda *a: self._slices.run(make, step, *a))

    # -- choices and orders --------------------------------------------------------------------------------------------

    @plans(RngFillDiscrete)
    def plan_discrete(self, op: RngFillDiscrete) -> Plan:
        words, view = self._words[op.kind, op.ordering], viewer(op.weights.layout)

        def make(flat: Array, seed: int, position: int, sums: Array) -> None:
            drawn = np.ascontiguousarray(words(seed, position, 2 * flat.size)).view(np.uint64)
            total = sums[-1]
            x = np.minimum(distributions.unit_53(drawn) * total, np.nextafter(total, 0.0))
            flat[...] = np.searchsorted(sums, x, side="right")

        fill = filled(op.out.layout, lambda *a: self._slices.run(make, 2, *a))
        return lambda out, seed, position, weights: fill(out, seed, position, _sums(view(weights)))

    @plans(RngFillPermutation)
    def plan_permutation(self, op: RngFillPermutation) -> Plan:
        words, slices = self._words[op.kind, op.ordering], self._slices

        def work(flat: Array, seed: int, position: int, numbers: tuple[Any, ...]) -> None:
            keys = np.empty(flat.size, np.uint64)
            slices.run(from_words(words, lambda drawn: drawn, 2), 2, keys, seed, position, ())
            flat[...] = np.argsort(keys, kind="stable")

        return filled(op.out.layout, work)


def _bits(dtype: Any) -> distributions.Distribution:
    return lambda words: words.view(dtype)


def _sums(weights: Array) -> Array:
    """Running sums of the weights, in f64.

    Raises:
        NumericalError: They are not weights.
    """
    wrong = np.flatnonzero(~((weights >= 0) & np.isfinite(weights)))
    if wrong.size:
        raise bad_weight(int(wrong[0]), float(weights[wrong[0]]))
    with np.errstate(over="ignore"):  # overflow is handled below
        sums = np.cumsum(weights, dtype=np.float64)
    if error := bad_sum(float(sums[-1])):
        raise error
    return sums
