"""``Joined``: requests to an ONNX file, joined along their first axis where its rows do not depend on each other."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

import callboard as cb
from callboard.actors.errors import printable
from callboard.core.errors import ContextLost, Unrecoverable
from callboard.serve.http.compression import off_loop
from callboard.serve.tensors import DATATYPES, Array

__all__ = ["Joined"]

Declared = Sequence[tuple[str, str, list[int]]]
Outputs = dict[str, Array]

CHECKED = 4
"""Joined batches whose results are compared with those of each request alone, after :meth:`Joined.probe`."""

EXTENTS = (4, 32, 224)
"""Extents of the dynamic axes behind the first one in a probe: the first one that the file can compute."""
SCALES = ((1.0, 1.0), (100.0, 1.0), (1.0, 100.0))
"""Sizes of the numbers of both requests of a probe."""
MOST = 1 << 24
"""Elements of an input of a probe at most."""

TOLERANCES = {"f2": 2e-2, "f4": 2e-3, "f8": 1e-6}
"""Relative differences between a row alone and in a batch that are rounding."""

_log = logging.getLogger("callboard.serve")


class Joined:
    """A batch function: requests joined along the first axis, results cut as they were.

    A file whose first extents are dynamic may still mix the rows of a batch (a softmax over the first axis, a mean, a
    concatenation), and nothing in its declared shapes says so. The first batches are therefore computed twice, joined
    and each request alone. Where a result differs, and where an output of any batch has another number of rows than its
    inputs, requests run alone from then on, which is logged. A batch that fails is repeated alone, too: a request that
    the file cannot compute fails no other. If one of the first batches fails while each of its requests can be
    computed, requests run alone as well.

    Args:
        run: Runs the file on arrays as it declares them (:meth:`OnnxModel.run`).
        inputs, outputs: Names, datatypes and shapes. An item is an array if there is one input, else a tuple of arrays.
        name: Name of the file, for the log and errors.
        max_batch: Rows of a request at most; None: no bound.

    Attributes:
        apart: Why requests run alone; None while they are joined.
    """

    def __init__(
        self,
        run: Callable[[list[Any]], Awaitable[list[Any]]],
        inputs: Declared,
        outputs: Declared,
        name: str,
        max_batch: int | None = None,
    ) -> None:
        self._run = run
        self._inputs = inputs
        self._names = [each for each, _, _ in outputs]
        self._name = name
        self._max_batch = max_batch
        self._left = CHECKED
        self.apart: str | None = None

    def _arrays(self, item: Any) -> tuple[Array, ...]:
        return (item,) if len(self._inputs) == 1 else item

    def rows(self, item: Any) -> int:
        """The first extent, which all inputs must have.

        Raises:
            ShapeError: An input has no first axis, or their first extents differ.
            ItemTooLarge: There are more than ``max_batch``.
        """
        arrays = self._arrays(item)
        for (name, _, _), array in zip(self._inputs, arrays, strict=True):
            if not array.ndim:
                raise cb.ShapeError(f"input {name!r} has no axis, and requests are joined along the first one")
        rows = {len(array) for array in arrays}
        if len(rows) > 1:
            raise cb.ShapeError(f"the first extents of the inputs differ: {[len(array) for array in arrays]}")
        count = rows.pop()
        if self._max_batch is not None and count > self._max_batch:
            raise cb.ItemTooLarge(
                f"{self._name}: the request has {count} rows, and max_batch is {self._max_batch}: send at most "
                f"{self._max_batch} rows in a request, or serve the file with a larger max_batch"
            )
        return count

    def key(self, item: Any) -> Any:
        """Only requests of equal further extents are joined."""
        return tuple(array.shape[1:] for array in self._arrays(item))

    async def __call__(self, items: list[Any]) -> list[Outputs | Exception]:
        given = [self._arrays(item) for item in items]
        if len(given) == 1:
            return [await self._alone(given[0])]
        if self.apart is not None:
            return await self._each(given)
        try:
            together = await self._together(given)
        except (ContextLost, Unrecoverable):
            raise
        except Exception as e:  # of the file, which may not be able to compute one of the requests
            alone = await self._each(given)
            if self._left and not _failed(alone):
                self._separate(f"a batch fails while each of its requests is computed: {printable(e):.300}")
            return alone
        if together is not None and not self._left:
            return list(together)
        alone = await self._each(given)
        if together is not None and await off_loop(_bytes(given), lambda: _differ(given)):
            self._left -= 1
            pairs = list(zip(alone, together, strict=True))
            size = _bytes(tuple(row.values()) for row in together)
            wrong = await off_loop(size, lambda: next((why for pair in pairs if (why := _difference(*pair))), None))
            if wrong is not None:
                self._separate(f"{wrong} when it is computed in a batch")
        return alone

    async def probe(self) -> None:
        """Compare batches of two made-up requests with each alone; the file may not be able to compute them."""
        draw = np.random.default_rng(0)
        found: list[Outputs | Exception] = []
        for extent in EXTENTS:
            found = []
            for scales in SCALES:
                self._left = CHECKED
                both = zip((2, 1), scales, strict=True)
                made = (partial(self._made_up, draw, rows, extent, scale) for rows, scale in both)
                found += await self([await asyncio.to_thread(each) for each in made])
            if not _failed(found):
                break
        else:
            _log.debug("%s computes no made-up request, such as: %s", self._name, found[-1])
        self._left = CHECKED

    def _made_up(self, draw: np.random.Generator, rows: int, extent: int, scale: float) -> Any:
        shapes = [[rows, *(each if each >= 0 else extent for each in shape[1:])] for _, _, shape in self._inputs]
        if max(map(math.prod, shapes)) > MOST:
            shapes = [[rows] + [1] * (len(shape) - 1) for shape in shapes]
        arrays = tuple(
            _made(draw, datatype, shape, scale) for (_, datatype, _), shape in zip(self._inputs, shapes, strict=True)
        )
        return arrays if len(arrays) > 1 else next(iter(arrays))

    async def _alone(self, arrays: tuple[Array, ...]) -> Outputs:
        return dict(zip(self._names, await self._run(list(arrays)), strict=True))

    async def _each(self, given: list[tuple[Array, ...]]) -> list[Outputs | Exception]:
        found = await asyncio.gather(*map(self._alone, given), return_exceptions=True)
        for each in found:
            if isinstance(each, ContextLost | Unrecoverable) or not isinstance(each, dict | Exception):
                raise each
        return [each for each in found if isinstance(each, dict | Exception)]

    async def _together(self, given: list[tuple[Array, ...]]) -> list[Outputs] | None:
        """The outputs of a batch, cut; None if they cannot be cut."""
        parts = list(zip(*given, strict=True))
        outputs = await self._alone(await off_loop(_bytes(given), lambda: tuple(map(np.concatenate, parts))))
        ends = np.cumsum([len(arrays[0]) for arrays in given])
        for name, output in outputs.items():
            if output.ndim == 0 or len(output) != ends[-1]:
                self._separate(f"output {name!r} has shape {list(output.shape)} for {ends[-1]} rows")
                return None
        return [
            {name: output[end - len(arrays[0]) : end] for name, output in outputs.items()}
            for end, arrays in zip(ends, given, strict=True)
        ]

    def _separate(self, why: str) -> None:
        self.apart = why
        _log.warning("%s: requests are not joined to batches, as its rows depend on each other: %s", self._name, why)


def _bytes(given: Iterable[tuple[Array, ...]]) -> int:
    return sum(array.nbytes for arrays in given for array in arrays)


def _differ(given: list[tuple[Array, ...]]) -> bool:
    """True if the rows of the requests are not all the same, which would hide that they are mixed."""
    for parts in zip(*given, strict=True):
        rows = np.concatenate(parts)
        if len(rows) > 1 and bool((rows[1:] != rows[:1]).any()):
            return True
    return False


def _failed(found: Sequence[Outputs | Exception]) -> bool:
    return any(isinstance(each, Exception) for each in found)


def _difference(alone: Outputs | Exception, row: Outputs) -> str | None:
    if isinstance(alone, Exception):
        return "a request fails alone, but not"
    for name, expected in alone.items():
        found = row[name]
        if found.shape != expected.shape:
            return f"output {name!r} has shape {list(expected.shape)} alone, and {list(found.shape)}"
        tolerance = TOLERANCES.get(expected.dtype.str[1:])
        if tolerance is None:
            same = bool(np.array_equal(found, expected))
        else:
            scale = float(np.nanmax(np.abs(expected[np.isfinite(expected)]), initial=0.0))
            same = bool(np.allclose(found, expected, rtol=tolerance, atol=tolerance * scale, equal_nan=True))
        if not same:
            return f"output {name!r} differs from that of the request alone"
    return None


def _made(draw: np.random.Generator, datatype: str, shape: list[int], scale: float) -> Array:
    """An array of a datatype: integers are 0 and 1, which are valid indices of most tables."""
    if datatype == "TEXT":
        texts = np.empty(shape, object)
        texts.ravel()[:] = ["a" if bit else "b" for bit in draw.integers(0, 2, texts.size)]
        return texts
    dtype = DATATYPES[datatype]
    if dtype.kind == "f":
        return draw.normal(0, scale, shape).astype(dtype)
    return draw.integers(0, 2, shape).astype(dtype)
