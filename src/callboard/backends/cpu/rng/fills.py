"""Fills of arrays, slice by slice; slices of generators that skip are made by several threads at once."""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.rng.distributions import (
    Distribution,
    in_range,
    normal_pairs,
    unit_53,
)
from callboard.backends.cpu.rng.philox import generator_at
from callboard.backends.cpu.rng.sobol import sobol_words
from callboard.backends.cpu.rng.sources import Words
from callboard.backends.cpu.views import viewer
from callboard.core.backend import Threads
from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import Layout
from callboard.kernel.rng.streams import KINDS, points_of, words_per_element

__all__ = ["LONG_SLICE", "SLICE", "Make", "Slices", "filled", "from_points", "from_words", "normal", "numpy_uniform"]

Array = np.ndarray[Any, Any]
Make = Callable[..., None]
"""``make(flat, seed, position, *numbers)``: fill a slice, whose first element is at ``position``."""

SLICE = 1 << 17
"""Elements that are computed at once: many, because threads that share an interpreter delay each other with every call
of NumPy; few enough that the intermediate steps stay in a core's cache."""
LONG_SLICE = 1 << 21
"""The same for generators whose lanes all have to be moved to where a slice begins."""


class Slices:
    """Cuts fills into slices.

    Args:
        workers: Number of threads that share the slices; with one, slices are made in turn.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._pool = Threads(self.workers, "callboard-rng") if self.workers > 1 else None

    def run(
        self,
        make: Make,
        step: int,
        flat: Array,
        seed: int,
        position: int,
        numbers: tuple[Any, ...],
        size: int = SLICE,
    ) -> None:
        """Fill ``flat`` with slices of ``size``, ``step`` words an element; reraises the error of a slice."""

        def one(start: int) -> None:
            with np.errstate(all="ignore"):
                make(flat[start : start + size], seed, position + start * step, *numbers)

        def several(starts: range) -> None:
            for start in starts:
                one(start)

        starts = range(0, flat.size, size)
        if self._pool is None or len(starts) < 2:
            several(starts)
        else:
            share = -(-len(starts) // (4 * self.workers))
            self._pool.share(several, [(starts[i : i + share],) for i in range(0, len(starts), share)])

    def close(self) -> None:
        """End the threads; all work is done."""
        if self._pool is not None:
            self._pool.shutdown()


def filled(layout: Layout, work: Callable[[Array, int, int, tuple[Any, ...]], None]) -> Callable[..., None]:
    """``fill(out, seed, position, *numbers)`` of an array of any strides: ``work`` fills one without gaps, flat."""
    view = viewer(layout)

    def fill(out: int, seed: int, position: int, *numbers: Any) -> None:
        array = view(out)
        flat = array.reshape(-1) if layout.contiguous else np.empty(layout.size, layout.dtype.np)
        if flat.size:
            work(flat, seed, position, numbers)
        if not layout.contiguous:
            array[...] = flat.reshape(array.shape)

    return fill


def from_words(words: Words, numbers_of: Distribution, step: int) -> Make:
    """Elements of one number each, of 32 or 64 bits."""

    def make(flat: Array, seed: int, position: int, *numbers: Any) -> None:
        drawn = words(seed, position, step * flat.size)
        flat[...] = numbers_of(drawn if step == 1 else np.ascontiguousarray(drawn).view(np.uint64), *numbers)

    return make


def from_points(kind: str, layout: Layout, numbers_of: Distribution) -> Make:
    """Elements of one coordinate each, of the 32 or 64 bits that the dtype takes."""
    scrambled, bits = KINDS[kind].seeded, KINDS[kind].bits
    wanted, dimensions = 32 * words_per_element(layout.dtype), points_of(layout)[1]

    def make(flat: Array, seed: int, position: int, *numbers: Any) -> None:
        points = sobol_words(scrambled, bits, seed, position, flat.size // dimensions, dimensions).reshape(-1)
        if bits < wanted:
            points <<= np.uint64(wanted - bits)
        elif bits > wanted:
            points >>= np.uint64(bits - wanted)
        flat[...] = numbers_of(points if wanted == 64 else points.astype(np.uint32), *numbers)

    return make


def numpy_uniform(dtype: DType) -> Make:
    """Uniform f32 or f64 numbers of ``philox64``, which NumPy writes where they belong."""
    real: Any = dtype.np

    def make(flat: Array, seed: int, position: int, low: float, high: float) -> None:
        generator_at(seed, position).random(dtype=real, out=flat)
        in_range(flat, low, high, dtype)

    return make


def normal(kind: str, words: Words, dtype: DType, log: bool) -> Make:
    """Normal numbers by pairs of aligned elements; the other half of a pair at either end is dropped."""
    double = dtype is DTYPES["f64"]
    real: Any = np.float64 if double else np.float32
    step = words_per_element(dtype)

    def make(flat: Array, seed: int, position: int, mean: float, std: float) -> None:
        skipped = position // step % 2
        count = (skipped + flat.size + 1) // 2 * 2
        begin = position - skipped * step
        there = count == flat.size and flat.dtype == real
        units = flat if there else np.empty(count, real)
        if double and kind == "philox64":
            generator_at(seed, begin).random(out=units)
        elif double:
            units[...] = unit_53(np.ascontiguousarray(words(seed, begin, 2 * count)).view(np.uint64))
        else:
            units[...] = words(seed, begin, count)
            units *= np.float32(2.0**-32)
        normal_pairs(units)
        if std != 1.0:
            units *= real(std)
        if mean != 0.0:
            units += real(mean)
        if log:
            np.exp(units, out=units)
        if not there:
            flat[...] = units[skipped : skipped + flat.size]

    return make
