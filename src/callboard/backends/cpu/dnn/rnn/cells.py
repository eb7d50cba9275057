"""The cells, a direction of a layer at a time, forward through time and back.

Rows are those of :class:`Rows`. A gate's rows hold the product with the input when a cell begins, and the gate's
values when it ends. The formulas are those that ``torch.nn.LSTM``, ``GRU`` and ``RNN`` document; the gradients follow
by the chain rule.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["CELLS", "Cell", "Matrices", "Memory", "previous"]

Array = np.ndarray[Any, Any]
Steps = Sequence[tuple[int, int]]
States = tuple[Array, Array]
"""Output state and inner state of a cell."""


class Matrices(NamedTuple):
    """The weights of a cell, or their gradients."""

    ih: Array
    hh: Array
    hr: Array | None = None
    bias_ih: Array | None = None
    bias_hh: Array | None = None


class Memory(NamedTuple):
    """The values a cell saves in the forward pass, one row per step.

    Attributes:
        gates: ``[rows, gates * hidden]``.
        inner: ``[rows, hidden]``: the cell states of an LSTM; the factor of the reset gate of a GRU.
        out: ``[rows, state]``.
    """

    gates: Array
    inner: Array
    out: Array


class Cell:
    """A kind of cell."""

    def forward(self, steps: Steps, weights: Matrices, memory: Memory, h: Array, c: Array) -> None:
        """Fill ``memory``, whose gates hold the product with the input; leave the last states in ``h`` and ``c``."""
        raise NotImplementedError

    def backward(
        self,
        steps: Steps,
        weights: Matrices,
        memory: Memory,
        first: States,
        dy: Array,
        dh: Array,
        dc: Array,
    ) -> tuple[Array, Array, Array | None]:
        """Gradients by the sums that the gates are functions of.

        Args:
            steps: Steps in the order of the forward pass.
            weights, memory: Weights and memory of the forward pass.
            first: First states of the forward pass.
            dy: The gradient by its output.
            dh, dc: The gradients by its last states; those by the first states when it ends.

        Returns:
            The gradient of each row by the input's part of the sums, the one by the state's part, and the one by the
            projection.
        """
        raise NotImplementedError


class Lstm(Cell):
    def forward(self, steps: Steps, weights: Matrices, memory: Memory, h: Array, c: Array) -> None:
        size = memory.inner.shape[1]
        for start, n in steps:
            gates = memory.gates[start : start + n]
            gates += h[:n] @ weights.hh.T
            _sigmoid(gates[:, : 2 * size])
            np.tanh(gates[:, 2 * size : 3 * size], out=gates[:, 2 * size : 3 * size])
            _sigmoid(gates[:, 3 * size :])
            i, f, g, o = np.split(gates, 4, 1)
            cell = memory.inner[start : start + n]
            np.multiply(f, c[:n], out=cell)
            cell += i * g
            c[:n] = cell
            out = o * np.tanh(cell)
            h[:n] = out if weights.hr is None else out @ weights.hr.T
            memory.out[start : start + n] = h[:n]

    def backward(
        self,
        steps: Steps,
        weights: Matrices,
        memory: Memory,
        first: States,
        dy: Array,
        dh: Array,
        dc: Array,
    ) -> tuple[Array, Array, Array | None]:
        before = previous(steps, memory.inner, first[1])
        found = np.empty_like(memory.gates)
        by_projection = None if weights.hr is None else np.empty_like(dy)
        for start, n in reversed(steps):
            at = slice(start, start + n)
            i, f, g, o = np.split(memory.gates[at], 4, 1)
            di, df, dg, do = np.split(found[at], 4, 1)
            d_out = dh[:n] + dy[at]
            if weights.hr is not None and by_projection is not None:
                by_projection[at] = d_out
                d_out = d_out @ weights.hr
            bounded = np.tanh(memory.inner[at])
            d_cell = dc[:n] + d_out * o * (1 - bounded * bounded)
            di[...] = d_cell * g * i * (1 - i)
            df[...] = d_cell * before[at] * f * (1 - f)
            dg[...] = d_cell * i * (1 - g * g)
            do[...] = d_out * bounded * o * (1 - o)
            dc[:n] = d_cell * f
            dh[:n] = found[at] @ weights.hh
        return found, found, by_projection


class Gru(Cell):
    def forward(self, steps: Steps, weights: Matrices, memory: Memory, h: Array, c: Array) -> None:
        size = memory.inner.shape[1]
        for start, n in steps:
            gates, inner = memory.gates[start : start + n], memory.inner[start : start + n]
            product = h[:n] @ weights.hh.T
            if weights.bias_hh is not None:
                product += weights.bias_hh
            inner[...] = product[:, 2 * size :]
            gates[:, : 2 * size] += product[:, : 2 * size]
            _sigmoid(gates[:, : 2 * size])
            r, z, new = np.split(gates, 3, 1)
            new += r * inner
            np.tanh(new, out=new)
            h[:n] = new + z * (h[:n] - new)
            memory.out[start : start + n] = h[:n]

    def backward(
        self,
        steps: Steps,
        weights: Matrices,
        memory: Memory,
        first: States,
        dy: Array,
        dh: Array,
        dc: Array,
    ) -> tuple[Array, Array, Array | None]:
        size = memory.inner.shape[1]
        before = previous(steps, memory.out, first[0])
        by_input, by_state = np.empty_like(memory.gates), np.empty_like(memory.gates)
        for start, n in reversed(steps):
            at = slice(start, start + n)
            r, z, new = np.split(memory.gates[at], 3, 1)
            dr, dz, dn = np.split(by_input[at], 3, 1)
            d_out = dh[:n] + dy[at]
            dn[...] = d_out * (1 - z) * (1 - new * new)
            dz[...] = d_out * (before[at] - new) * z * (1 - z)
            dr[...] = dn * memory.inner[at] * r * (1 - r)
            by_state[at] = by_input[at]
            by_state[at, 2 * size :] *= r
            dh[:n] = d_out * z + by_state[at] @ weights.hh
        return by_input, by_state, None


class Simple(Cell):
    """One gate, which is the output: ``max(x, 0)`` or ``tanh(x)``."""

    def __init__(self, relu: bool) -> None:
        self._relu = relu

    def forward(self, steps: Steps, weights: Matrices, memory: Memory, h: Array, c: Array) -> None:
        for start, n in steps:
            gates = memory.gates[start : start + n]
            gates += h[:n] @ weights.hh.T
            if self._relu:
                np.maximum(gates, 0, out=gates)
            else:
                np.tanh(gates, out=gates)
            h[:n] = memory.out[start : start + n] = gates

    def backward(
        self,
        steps: Steps,
        weights: Matrices,
        memory: Memory,
        first: States,
        dy: Array,
        dh: Array,
        dc: Array,
    ) -> tuple[Array, Array, Array | None]:
        found = np.empty_like(memory.out)
        for start, n in reversed(steps):
            at = slice(start, start + n)
            out = memory.out[at]
            found[at] = (dh[:n] + dy[at]) * (out > 0 if self._relu else 1 - out * out)
            dh[:n] = found[at] @ weights.hh
        return found, found, None


CELLS: dict[str, Cell] = {
    "lstm": Lstm(),
    "gru": Gru(),
    "rnn_relu": Simple(relu=True),
    "rnn_tanh": Simple(relu=False),
}


def previous(steps: Steps, rows: Array, first: Array) -> Array:
    """The state before each row."""
    state, found = first.copy(), np.empty_like(rows)
    for start, n in steps:
        found[start : start + n] = state[:n]
        state[:n] = rows[start : start + n]
    return found


def _sigmoid(x: Array) -> None:
    """In place, by tanh, which does not overflow."""
    x *= 0.5
    np.tanh(x, out=x)
    x *= 0.5
    x += 0.5
