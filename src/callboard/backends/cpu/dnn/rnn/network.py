"""Layers of cells in both directions, with dropout between them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from callboard.backends.cpu.dnn.rnn.cells import CELLS, Matrices, Memory, Steps, previous
from callboard.kernel.dnn.rnn.params import RnnParams

__all__ = ["Kept", "Layer", "matrices", "run_backward", "run_forward"]

Array = np.ndarray[Any, Any]


class Layer(NamedTuple):
    """The values a layer saves in the forward pass.

    Attributes:
        gates, inner: Arrays of each direction; see :class:`Memory`.
        out: ``[rows, output_size]``: all directions side by side.
        mask: Mask of the elements that are passed on, u8 ``[rows, output_size]``; None: all.
    """

    gates: tuple[Array, ...]
    inner: tuple[Array, ...]
    out: Array
    mask: Array | None


Kept = list[Layer]


def matrices(params: RnnParams, packed: Array) -> dict[tuple[int, bool], Matrices]:
    """Views of packed weights by layer and direction."""
    found: dict[tuple[int, bool], dict[str, Array]] = {}
    for slot in params.slots():
        name = slot.kind.replace("weight_", "")
        view = packed[slot.start : slot.start + slot.size].reshape(slot.shape)
        found.setdefault((slot.layer, slot.reverse), {})[name] = view
    return {key: Matrices(**views) for key, views in found.items()}


def run_forward(
    params: RnnParams, steps: Steps, packed: Array, x: Array, h: Array, c: Array, kept: Kept, scale: float
) -> None:
    """Fill ``kept``; leave the last states in ``h`` and ``c``.

    Args:
        params: The network.
        steps: Steps over the rows.
        packed: Packed weights of the network.
        x: ``[rows, input_size]``.
        h, c: The first states, ``[cells, batch, n]``.
        kept: Arrays of all layers; masks are filled already.
        scale: Factor of the numbers that a mask passes on.
    """
    weights = matrices(params, packed)
    for at, (layer, reverse, out) in enumerate(_cells(params, kept)):
        own, memory = weights[layer, reverse], kept[layer]
        if layer and not reverse:
            x = passed(kept[layer - 1], scale)
        gates = memory.gates[reverse]
        np.matmul(x, own.ih.T, out=gates)
        if own.bias_ih is not None:
            gates += own.bias_ih
        if own.bias_hh is not None and params.mode != "gru":  # a GRU's is inside the reset gate's product
            gates += own.bias_hh
        order = steps[::-1] if reverse else steps
        CELLS[params.mode].forward(order, own, Memory(gates, memory.inner[reverse], out), h[at], c[at])


def run_backward(
    params: RnnParams,
    steps: Steps,
    packed: Array,
    x: Array,
    first: tuple[Array, Array],
    kept: Kept,
    scale: float,
    dy: Array,
    dh: Array,
    dc: Array,
    d_packed: Array,
) -> Array:
    """The gradient by ``x``; fill those by the weights, and leave those by the first states in ``dh`` and ``dc``.

    Args:
        params, steps, packed, x, kept, scale: Arguments of the forward pass.
        first: First states of the forward pass.
        dy: The gradient by the last layer's output.
        dh, dc: The gradients by the last states.
        d_packed: Gradient with respect to ``packed``; same shape and dtype.
    """
    weights, gradients = matrices(params, packed), matrices(params, d_packed)
    dx = dy
    for layer in reversed(range(params.num_layers)):
        memory, given = kept[layer], passed(kept[layer - 1], scale) if layer else x
        if memory.mask is not None:
            dy = dy * (memory.mask * dy.dtype.type(scale))
        dx = np.zeros_like(given)
        for reverse in (False, True)[: params.directions]:
            at, own, found = layer * params.directions + reverse, weights[layer, reverse], gradients[layer, reverse]
            side = slice(reverse * params.state_size, (reverse + 1) * params.state_size)
            order = steps[::-1] if reverse else steps
            cell = Memory(memory.gates[reverse], memory.inner[reverse], memory.out[:, side])
            begin = first[0][at], first[1][at]
            by_input, by_state, by_projection = CELLS[params.mode].backward(
                order, own, cell, begin, dy[:, side], dh[at], dc[at]
            )
            dx += by_input @ own.ih
            np.matmul(by_input.T, given, out=found.ih)
            np.matmul(by_state.T, previous(order, cell.out, begin[0]), out=found.hh)
            if found.bias_ih is not None and found.bias_hh is not None:
                by_input.sum(0, out=found.bias_ih)
                by_state.sum(0, out=found.bias_hh)
            if found.hr is not None and by_projection is not None:
                size = params.hidden_size
                np.matmul(by_projection.T, cell.gates[:, 3 * size :] * np.tanh(cell.inner), out=found.hr)
        dy = dx
    return dx


def passed(layer: Layer, scale: float) -> Array:
    """The output of a layer as passed to the next layer, after dropout."""
    return layer.out if layer.mask is None else layer.out * (layer.mask * layer.out.dtype.type(scale))


def _cells(params: RnnParams, kept: Kept) -> Iterator[tuple[int, bool, Array]]:
    """Layer, direction and place of the output of each cell, in the order of their states."""
    size = params.state_size
    for layer in range(params.num_layers):
        for reverse in (False, True)[: params.directions]:
            yield layer, reverse, kept[layer].out[:, reverse * size : (reverse + 1) * size]
