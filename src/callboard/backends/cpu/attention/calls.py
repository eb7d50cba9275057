"""What a call was given beside queries, keys and values, by sequence."""

from collections.abc import Callable
from typing import Any, NamedTuple

from callboard.backends.cpu.attention.blocks import Extras
from callboard.backends.cpu.attention.sequences import Array, Lengths, Sequence, optional
from callboard.backends.cpu.views import viewer
from callboard.core.layout import Layout
from callboard.core.operand import Operand
from callboard.kernel.attention.scores import Problem, Scores

__all__ = ["Bound", "Call", "Draw", "given", "lse_heads_first"]


class Draw(NamedTuple):
    """Which numbers the dropout of a sequence takes."""

    sequence: int
    seed: int
    offset: int


class Bound(NamedTuple):
    """The operands of one call.

    Attributes:
        bias: ``[batch or 1, heads or 1, queries or 1, keys]``.
        sink: ``[heads]``.
        slopes: ``[heads]`` or ``[batch, heads]``.
        sequences: All of them.
        seed, offset: Of the dropout.
    """

    bias: Array | None
    sink: Array | None
    slopes: Array | None
    sequences: list[Sequence]
    seed: int
    offset: int

    def extras(self, sequence: Sequence) -> Extras:
        """What is added to the scores of a sequence."""
        bias, slopes = self.bias, self.slopes
        return Extras(
            None if bias is None else bias[min(sequence.item, bias.shape[0] - 1)],
            slopes if slopes is None or slopes.ndim == 1 else slopes[sequence.number],
        )

    def draw(self, sequence: Sequence) -> Draw:
        """Which numbers its dropout takes."""
        return Draw(sequence.number, self.seed, self.offset)


class Call:
    """Binds the operands that all messages share.

    Args:
        op: The message, with placeholders.
        problem: Of it.

    Attributes:
        count: How many operands and numbers it binds: the first ones of a launch.
    """

    count = 9

    def __init__(self, op: Scores[Any], problem: Problem) -> None:
        at = 0 if op.q.ndim == 3 else 2 if op.layout == "bhsd" else 1  # type: ignore[attr-defined] # every message has it
        rows_q, rows_k = op.q.shape[at], op.k.shape[at]  # type: ignore[attr-defined]
        self._lengths = Lengths(op, problem, rows_q, rows_k)
        self._bias, self._sink, self._slopes = optional(op.bias), optional(op.sink), optional(op.alibi_slopes)

    def bound(
        self,
        bias: int | None,
        sink: int | None,
        slopes: int | None,
        cu_q: int | None,
        cu_k: int | None,
        seqlens_q: int | None,
        seqlens_k: int | None,
        seed: int,
        offset: int,
    ) -> Bound:
        """The operands of a call, by their addresses.

        Raises:
            ShapeError: Lengths leave the operands.
        """
        found = list(self._lengths.sequences(cu_q, cu_k, seqlens_q, seqlens_k))
        return Bound(self._bias(bias), self._sink(sink), self._slopes(slopes), found, seed, offset)


def given(out: Operand | None, made: Layout) -> Layout:
    """The layout of an output: of what was given, else of what is made."""
    return made if out is None else out.layout


def lse_heads_first(layout: Layout) -> Callable[[int], Array]:
    """A function that gives log-sum-exps at an address as ``[batch, heads, rows]``."""
    view = viewer(layout)
    return (lambda address: view(address).T[None]) if layout.ndim == 2 else view
