"""Sequences of different length as rows: step after step of those that have not ended, the longest first.

All layouts are computed in this one form, so that each step works on the first rows of the states.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from callboard.kernel.dnn.rnn.messages import RnnLayout, Sequences

__all__ = ["Rows"]

Array = np.ndarray[Any, Any]


class Rows:
    """The layout of the steps of a batch of sequences.

    Args:
        layout: Layout of the arrays.
        extents: Extents of batch and time.
        lengths: Lengths of the sequences, or None.

    Attributes:
        count: Number of rows.
        steps: First row of each step, and how many there are: those of the sequences that have not ended.
    """

    def __init__(self, layout: RnnLayout, extents: Sequences, lengths: Sequence[int] | None) -> None:
        self._layout = layout
        self._order: Array | None = None
        self._places: tuple[Array, Array] | None = None
        if lengths is None:
            counts = np.full(extents.steps, extents.batch)
        else:
            given = np.asarray(lengths)
            order = np.argsort(-given, kind="stable")
            counts = (given[:, None] > np.arange(extents.steps)).sum(0)
            if layout != "packed":
                self._order = order
                sequences = np.concatenate([order[:n] for n in counts])
                self._places = np.repeat(np.arange(extents.steps), counts), sequences
        starts = np.cumsum(counts) - counts
        self.steps = [(int(start), int(n)) for start, n in zip(starts, counts, strict=True)]
        self.count = int(counts.sum())

    def gather(self, array: Array, wide: Any) -> Array:
        """The rows of an array of the layout, in a wide type."""
        if self._layout == "batch_major":
            array = array.swapaxes(0, 1)
        if self._places is not None:
            array = array[self._places]
        return np.ascontiguousarray(array.reshape(self.count, array.shape[-1]), wide)

    def scatter(self, rows: Array, into: Array) -> None:
        """Store rows in an array of the layout, with 0 after the end of each sequence."""
        if self._layout == "batch_major":
            into = into.swapaxes(0, 1)
        if self._places is not None:
            into[...] = 0
            into[self._places] = rows
        else:
            into[...] = rows.reshape(into.shape)

    def gather_states(self, states: Array | None, shape: tuple[int, ...], wide: Any) -> Array:
        """A copy of states ``[cells, batch, n]`` in the order of the rows; zeros for None."""
        if states is None:
            return np.zeros(shape, wide)
        return np.array(states if self._order is None else states[:, self._order], wide, order="C")

    def scatter_states(self, states: Array, into: Array) -> None:
        """Store states in the order of the sequences."""
        if self._order is None:
            into[...] = states
        else:
            into[:, self._order] = states
