"""``Layout``: which rows of which weights each shard of a parameter server has."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from callboard.train.parameterserver.gradients import Gradients, SparseRows

__all__ = ["Layout", "Part", "Piece"]

Array = np.ndarray[Any, Any]
Part = tuple[int, Any, Any]
"""The gradient of a shard's piece: its number, the rows (None: all of them), the values."""

Choice = tuple[int, Any, Any]
"""A piece's number, its rows (None: all), and their places among the rows that were asked for."""


class Piece(NamedTuple):
    """SparseRows ``start`` to ``stop`` of one array; an array without axes is one row.

    Attributes:
        name: The array's.
        start, stop: SparseRows.
        shape: The piece's.
        dtype: As NumPy names it.
    """

    name: str
    start: int
    stop: int
    shape: tuple[int, ...]
    dtype: str


class Layout:
    """Weights in order of their names, cut between rows into ranges of about equal size, one for each shard.

    Args:
        weights: The arrays.
        shards: Number of ranges; there are fewer if there are fewer rows.

    Attributes:
        shards: The pieces of each.
        shapes: Of the whole arrays.
    """

    def __init__(self, weights: Mapping[str, Array], shards: int) -> None:
        total = sum(array.nbytes for array in weights.values())
        self.shards: list[list[Piece]] = [[] for _ in range(shards)]
        position = 0
        for name, array in weights.items():
            rows = _rows(array)
            size = array.nbytes / rows
            bounds = [round((total * at / shards - position) / size) for at in range(1, shards)]
            cuts = sorted({0, rows, *(cut for cut in bounds if 0 < cut < rows)})
            for start, stop in itertools.pairwise(cuts):
                middle = position + (start + stop) / 2 * size
                shape = (stop - start, *array.shape[1:]) if array.ndim else ()
                piece = Piece(name, start, stop, shape, array.dtype.name)
                self.shards[min(shards - 1, int(middle * shards / total))].append(piece)
            position += array.nbytes
        self.shards = [pieces for pieces in self.shards if pieces]
        self.shapes = {name: array.shape for name, array in weights.items()}

    def cut(self, arrays: Mapping[str, Array]) -> list[list[Array]]:
        """The arrays' pieces by shard, as views."""
        return [[_slice(arrays[piece.name], piece) for piece in pieces] for pieces in self.shards]

    def parts(self, gradients: Gradients) -> list[list[Part]]:
        """What each shard gets of these gradients."""
        return [
            [_part(at, piece, gradients[piece.name]) for at, piece in enumerate(pieces) if piece.name in gradients]
            for pieces in self.shards
        ]

    def chosen(self, rows: Mapping[str, Array]) -> list[list[Choice]]:
        """What to ask each shard for, to have some weights' rows and the others whole."""
        return [
            [
                _choice(at, piece, rows[piece.name]) if piece.name in rows else (at, None, None)
                for at, piece in enumerate(pieces)
            ]
            for pieces in self.shards
        ]

    def gather(
        self, found: Sequence[Sequence[Array]], chosen: Sequence[Sequence[Choice]], rows: Mapping[str, Array]
    ) -> dict[str, Array]:
        """The answers put together."""
        whole = self.join(found)
        for name, numbers in rows.items():
            order = np.concatenate(
                [
                    places
                    for pieces, choices in zip(self.shards, chosen, strict=True)
                    for piece, (_, _, places) in zip(pieces, choices, strict=True)
                    if piece.name == name
                ]
            )
            placed = np.empty((len(numbers), *self.shapes[name][1:]), whole[name].dtype)
            placed[order] = whole[name]
            whole[name] = placed
        return whole

    def join(self, by_shard: Sequence[Sequence[Array]]) -> dict[str, Array]:
        """The whole arrays again; those of one piece are not copied."""
        found: dict[str, list[Array]] = {}
        for pieces, arrays in zip(self.shards, by_shard, strict=True):
            for piece, array in zip(pieces, arrays, strict=True):
                found.setdefault(piece.name, []).append(array)
        return {name: arrays[0] if len(arrays) == 1 else np.concatenate(arrays) for name, arrays in found.items()}


def _rows(array: Array) -> int:
    return len(array) if array.ndim else 1


def _slice(array: Array, piece: Piece) -> Array:
    return array[piece.start : piece.stop] if array.ndim else array


def _choice(at: int, piece: Piece, rows: Array) -> Choice:
    places = np.flatnonzero((rows >= piece.start) & (rows < piece.stop))
    return at, rows[places] - piece.start, places


def _part(at: int, piece: Piece, gradient: Array | SparseRows) -> Part:
    if not isinstance(gradient, SparseRows):
        return at, None, _slice(gradient, piece)
    own = (gradient.rows >= piece.start) & (gradient.rows < piece.stop)
    return at, gradient.rows[own] - piece.start, gradient.values[own]
