"""The per-sequence operands of a call other than queries, keys and values."""

from collections.abc import Callable
from typing import Any, NamedTuple

from callboard.backends.cpu.attention.blocks import Extras
from callboard.backends.cpu.attention.sequences import Array, Lengths, Sequence, optional
from callboard.backends.cpu.views import viewer
from callboard.core.layout import Layout
from callboard.core.op import info_of
from callboard.core.operand import Operand
from callboard.kernel.attention.scores import Problem, Scores

__all__ = ["Bound", "Call", "Draw", "given", "lse_heads_first"]


class Draw(NamedTuple):
    """The random numbers used by the dropout of a sequence."""

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
        seed, offset: Seed and offset of the dropout.
    """

    bias: Array | None
    sink: Array | None
    slopes: Array | None
    sequences: list[Sequence]
    seed: int
    offset: int

    def extras(self, sequence: Sequence) -> Extras:
        """The terms added to the scores of a sequence."""
        bias, slopes = self.bias, self.slopes
        return Extras(
            None if bias is None else bias[min(sequence.item, bias.shape[0] - 1)],
            slopes if slopes is None or slopes.ndim == 1 else slopes[sequence.number],
        )

    def draw(self, sequence: Sequence) -> Draw:
        """The random numbers used by its dropout."""
        return Draw(sequence.number, self.seed, self.offset)


class Call:
    """Binds the operands that all messages over whole arrays share.

    Args:
        op: The message, with placeholders.
        problem: The problem of the message.
    """

    def __init__(self, op: Scores[Any], problem: Problem) -> None:
        q, k = (getattr(op, name) for name in "qk")  # all messages over whole arrays have them
        at = 0 if q.ndim == 3 else 2 if op.layout == "bhsd" else 1
        self._names = tuple(field.name for field in info_of(type(op)).dynamic)
        self._lengths = Lengths(op, problem, q.shape[at], k.shape[at])
        self._bias, self._sink, self._slopes = optional(op.bias), optional(op.sink), optional(op.alibi_slopes)

    def named(self, operands: tuple[Any, ...]) -> dict[str, Any]:
        """The arguments of a launch by name."""
        return dict(zip(self._names, operands, strict=True))

    def bound(self, given: dict[str, Any]) -> Bound:
        """The operands of a call, by their addresses.

        Raises:
            ShapeError: Lengths leave the operands.
        """
        names = ("cu_seqlens_q", "cu_seqlens_k", "seqlens_q", "seqlens_k")
        return Bound(
            self._bias(given["bias"]),
            self._sink(given["sink"]),
            self._slopes(given["alibi_slopes"]),
            list(self._lengths.sequences(*(given[name] for name in names))),
            given["dropout_seed"],
            given["dropout_offset"],
        )


def given(out: Operand | None, made: Layout) -> Layout:
    """The layout of an output: given or allocated."""
    return made if out is None else out.layout


def lse_heads_first(layout: Layout) -> Callable[[int], Array]:
    """A function that returns log-sum-exps at an address as ``[batch, heads, rows]``."""
    view = viewer(layout)
    return (lambda address: view(address).T[None]) if layout.ndim == 2 else view
