"""The sequences of a call: packed, padded or all of one length."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from callboard.backends.cpu.views import viewer
from callboard.core.errors import ShapeError
from callboard.core.layout import Layout
from callboard.core.operand import Operand
from callboard.kernel.attention.problem import SeqLayout
from callboard.kernel.attention.scores import Problem, Scores

__all__ = ["Array", "Lengths", "Sequence", "heads_first", "optional"]

Array = np.ndarray[Any, Any]


class Sequence(NamedTuple):
    """One of a call.

    Attributes:
        number: Index among the sequences.
        item: Position of its arrays along the batch axis.
        q, k: Positions of its queries and of its keys along the axis of positions.
    """

    number: int
    item: int
    q: slice
    k: slice

    @property
    def queries(self) -> int:
        return int(self.q.stop - self.q.start)

    @property
    def keys(self) -> int:
        return int(self.k.stop - self.k.start)


def heads_first(layout: Layout, order: SeqLayout) -> Callable[[int], Array]:
    """A function that returns an operand at an address as ``[batch, heads, rows, dim]``."""
    view = viewer(layout)
    if layout.ndim == 3:
        return lambda address: view(address).swapaxes(0, 1)[None]
    return view if order == "bhsd" else lambda address: view(address).swapaxes(1, 2)


def optional(x: Operand | None) -> Callable[[int | None], Array | None]:
    """Likewise for an operand that may have been left out, unchanged."""
    if x is None:
        return lambda address: None
    view = viewer(x.layout)
    return lambda address: None if address is None else view(address)


class Lengths:
    """The lengths of the sequences of a call.

    Args:
        op: The message, with placeholders.
        problem: The problem of the message.
        rows_q, rows_k: Extents of the axes of positions.
    """

    def __init__(self, op: Scores[Any], problem: Problem, rows_q: int, rows_k: int) -> None:
        self._tag = type(op).__struct_config__.tag
        self._problem = problem
        self._rows = rows_q, rows_k
        self._cu = optional(op.cu_seqlens_q), optional(op.cu_seqlens_k)
        self._lengths = optional(op.seqlens_q), optional(op.seqlens_k)

    def sequences(
        self, cu_q: int | None, cu_k: int | None, seqlens_q: int | None, seqlens_k: int | None
    ) -> Iterator[Sequence]:
        """Return the sequences, given the addresses of the call's operands.

        Raises:
            ShapeError: They are not inside the operands; names the operand.
        """
        p = self._problem
        if p.ragged:
            starts = [
                self._starts(f"cu_seqlens_{which}", view(address), rows, longest)
                for which, view, address, rows, longest in zip(
                    "qk", self._cu, (cu_q, cu_k), self._rows, (p.seq_q, p.seq_k), strict=True
                )
            ]
            for index in range(p.batch):
                q, k = (slice(int(s[index]), int(s[index + 1])) for s in starts)
                yield Sequence(index, 0, q, k)
            return
        lengths = [
            self._padded(f"seqlens_{which}", view(address), rows)
            for which, view, address, rows in zip("qk", self._lengths, (seqlens_q, seqlens_k), self._rows, strict=True)
        ]
        for index in range(p.batch):
            yield Sequence(index, index, slice(0, int(lengths[0][index])), slice(0, int(lengths[1][index])))

    def _starts(self, name: str, starts: Array | None, rows: int, longest: int) -> Array:
        assert starts is not None
        steps = np.diff(starts.astype(np.int64))
        if starts[0] != 0 or (steps < 0).any() or starts[-1] > rows or (steps > longest).any():
            raise ShapeError(
                f"{self._tag}: {name} is {np.array2string(starts, threshold=8)}; it must ascend from 0 to at most "
                f"{rows}, by at most {longest}"
            )
        return starts

    def _padded(self, name: str, lengths: Array | None, rows: int) -> Array:
        if lengths is None:
            return np.full(self._problem.batch, rows)
        if lengths.size and (lengths.min() < 0 or lengths.max() > rows):
            raise ShapeError(
                f"{self._tag}: {name} is {np.array2string(lengths, threshold=8)}; lengths lie between 0 and {rows}"
            )
        return lengths
