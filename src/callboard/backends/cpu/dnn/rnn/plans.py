"""Plans of the recurrent networks: from addresses to rows, through the network, and back."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from callboard.backends.cpu.dnn.rnn.network import Kept, Layer, run_backward, run_forward
from callboard.backends.cpu.dnn.rnn.rows import Rows
from callboard.backends.cpu.rng.philox import philox_words
from callboard.backends.cpu.views import viewer
from callboard.core.layout import Layout
from callboard.core.library import plans
from callboard.core.operand import Operand
from callboard.kernel.dnn.rnn.messages import (
    Recurrent,
    RnnBackward,
    RnnForward,
    RnnForwardTraining,
    RnnLayout,
    Training,
)
from callboard.kernel.dnn.rnn.reserve import FILLED, HEADER, USED, check_filled

__all__ = ["backward", "forward", "forward_training"]

Array = np.ndarray[Any, Any]
Plan = Callable[..., None]
Make = Callable[[tuple[int, ...], Any], Array]
WIDE = {"f16": np.float32, "bf16": np.float32, "f32": np.float32, "f64": np.float64}
"""Compute dtype by storage dtype."""
ALIGNED = 64
"""Bytes: where arrays of a reserve begin."""


@plans(RnnForward)
def forward(op: RnnForward) -> Plan:
    """Called with ``(x, weights, hx, cx, lengths, y, h_n, c_n)``."""
    net = Network(op)
    y_of, last = viewer(_given(op.y, op.result())), net.last(op)

    def work(x: int, weights: int, hx: Any, cx: Any, lengths: Any, y: int, h_n: int, c_n: int | None) -> None:
        rows = net.rows(lengths)
        kept = net.layers(rows.count, net.new)
        h, c = net.first(rows, hx, cx)
        run_forward(net.params, rows.steps, net.packed(weights), net.gather(rows, x), h, c, kept, 1.0)
        rows.scatter(kept[-1].out, y_of(y))
        last(rows, h, c, h_n, c_n)

    return work


@plans(RnnForwardTraining)
def forward_training(op: RnnForwardTraining) -> Plan:
    """Called with ``(x, weights, hx, cx, lengths, y, h_n, c_n, reserve, seed, offset)``."""
    net = Network(op)
    y_layout = op.result()
    y_of, reserve_of, last = viewer(_given(op.y, y_layout)), viewer(_given(op.reserve, op.reserved())), net.last(op)
    scale, masks = _dropout(op)
    lets = round(op.dropout * 2**32)

    def work(
        x: int,
        weights: int,
        hx: Any,
        cx: Any,
        lengths: Any,
        y: int,
        h_n: int,
        c_n: int | None,
        reserve: int,
        seed: int,
        offset: int,
    ) -> None:
        rows, raw = net.rows(lengths), reserve_of(reserve)
        stored = net.layers(rows.count, _carver(raw, net.dtype), masks)
        kept = stored if net.is_wide else net.layers(rows.count, net.new, masks)
        for number, layer in enumerate(kept[:-1] if masks else ()):
            words = philox_words(seed, offset + number * y_layout.size, y_layout.size)
            layer.mask[...] = rows.gather((words >= lets).reshape(y_layout.shape), np.uint8)  # type: ignore[index]
        h, c = net.first(rows, hx, cx)
        run_forward(net.params, rows.steps, net.packed(weights), net.gather(rows, x), h, c, kept, scale)
        if kept is not stored:
            _copy(kept, stored)
        rows.scatter(kept[-1].out, y_of(y))
        last(rows, h, c, h_n, c_n)
        _word(raw)[0] = FILLED

    return work


@plans(RnnBackward)
def backward(op: RnnBackward) -> Plan:
    """Called with ``(x, weights, hx, cx, lengths, y, reserve, dy, dh_n, dc_n, dx, dweights, dhx, dcx)``."""
    net = Network(op)
    reserve_of, inferred = viewer(op.reserve.layout), op.infer()
    scale, masks = _dropout(op)
    dy_of, dh_of, dc_of = (None if a is None else viewer(a.layout) for a in (op.dy, op.dh_n, op.dc_n))
    dx_of, dw_of = viewer(_given(op.dx, inferred["dx"])), viewer(_given(op.dweights, inferred["dweights"]))
    last = net.stored(_given(op.dhx, inferred["dhx"]), inferred.get("dcx") and _given(op.dcx, inferred["dcx"]))

    def work(
        x: int,
        weights: int,
        hx: Any,
        cx: Any,
        lengths: Any,
        y: int,
        reserve: int,
        dy: int | None,
        dh_n: int | None,
        dc_n: int | None,
        dx: int,
        dweights: int,
        dhx: int,
        dcx: int | None,
    ) -> None:
        rows, raw = net.rows(lengths), reserve_of(reserve)
        check_filled(int(_word(raw)[0]))
        kept = net.layers(rows.count, _carver(raw, net.dtype), masks)
        if not net.is_wide:
            stored, kept = kept, net.layers(rows.count, net.new, masks)
            _copy(stored, kept)
        by_y = np.zeros((rows.count, net.params.output_size), net.wide)
        if dy is not None and dy_of is not None:
            by_y = rows.gather(dy_of(dy), net.wide)
        dh = rows.gather_states(None if dh_n is None or dh_of is None else dh_of(dh_n), net.shapes[0], net.wide)
        dc = rows.gather_states(None if dc_n is None or dc_of is None else dc_of(dc_n), net.shapes[1], net.wide)
        d_packed = np.empty(net.params.weight_size, net.wide)
        d_rows = run_backward(
            net.params,
            rows.steps,
            net.packed(weights),
            net.gather(rows, x),
            net.first(rows, hx, cx),
            kept,
            scale,
            by_y,
            dh,
            dc,
            d_packed,
        )
        rows.scatter(d_rows, dx_of(dx))
        dw_of(dweights)[...] = d_packed
        last(rows, dh, dc, dhx, dcx)
        _word(raw)[0] = USED

    return work


class Network:
    """Base of the plans.

    Args:
        op: The message, with placeholders.

    Attributes:
        params: The network.
        dtype, wide: The dtypes in which arrays are stored, and in which they are computed.
        is_wide: True if these are equal.
        shapes: Shapes of the states and of the cell states.
    """

    def __init__(self, op: Recurrent[Any]) -> None:
        self.params, self._extents = op.params, op.sequences()
        self._layout: RnnLayout = op.layout
        self.dtype, self.wide = op.x.dtype.np, np.dtype(WIDE[op.x.dtype.name])
        self.is_wide = self.dtype == self.wide
        self.shapes = [layout.shape for layout in op.states()]
        self._x, self._weights = viewer(op.x.layout), viewer(op.weights.layout)
        self._hx, self._cx = (None if a is None else viewer(a.layout) for a in (op.hx, op.cx))

    def rows(self, lengths: Sequence[int] | None) -> Rows:
        """The layout of the steps in the data."""
        return Rows(self._layout, self._extents, lengths or None)

    def packed(self, address: int) -> Array:
        """The weights."""
        return np.ascontiguousarray(self._weights(address), self.wide)

    def gather(self, rows: Rows, x: int) -> Array:
        """The rows of the input."""
        return rows.gather(self._x(x), self.wide)

    def first(self, rows: Rows, hx: int | None, cx: int | None) -> tuple[Array, Array]:
        """The first states."""
        return (
            rows.gather_states(None if hx is None or self._hx is None else self._hx(hx), self.shapes[0], self.wide),
            rows.gather_states(None if cx is None or self._cx is None else self._cx(cx), self.shapes[1], self.wide),
        )

    def last(self, op: RnnForward | RnnForwardTraining) -> Callable[..., None]:
        """Stores the last states of a forward pass."""
        state, cell = op.states()
        return self.stored(_given(op.h_n, state), _given(op.c_n, cell))

    def stored(self, state: Layout, cell: Layout | None) -> Callable[..., None]:
        """``store(rows, h, c, at_h, at_c)``."""
        h_of, c_of = viewer(state), None if cell is None else viewer(cell)

        def store(rows: Rows, h: Array, c: Array, at_h: int, at_c: int | None) -> None:
            rows.scatter_states(h, h_of(at_h))
            if at_c is not None and c_of is not None:
                rows.scatter_states(c, c_of(at_c))

        return store

    def new(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """An array to compute in."""
        return np.empty(shape, self.wide if dtype is None else dtype)

    def layers(self, rows: int, make: Make, masks: bool = False) -> Kept:
        """Arrays for the saved values of all layers."""
        return [Layer(*arrays) for arrays in self._arrays(rows, make, masks)]

    def _arrays(self, rows: int, make: Make, masks: bool) -> Iterator[Any]:
        params = self.params
        sides, size, width = range(params.directions), params.hidden_size, params.output_size
        for layer in range(params.num_layers):
            yield (
                tuple(make((rows, params.gates * size), None) for _ in sides),
                tuple(make((rows, size if params.gates > 1 else 0), None) for _ in sides),
                make((rows, width), None),
                make((rows, width), np.uint8) if masks and layer < params.num_layers - 1 else None,
            )


def _given(operand: Operand | None, inferred: Layout) -> Layout:
    return inferred if operand is None else operand.layout


def _dropout(op: Training[Any]) -> tuple[float, bool]:
    """Return the scale of the elements dropout keeps, and whether there are masks."""
    return 1 / (1 - op.dropout), op.dropout > 0 and op.params.num_layers > 1


def _word(raw: Array) -> Array:
    return raw[:4].view(np.uint32)


def _carver(raw: Array, dtype: Any) -> Make:
    """Takes arrays from a reserve, one after the other."""
    at = HEADER

    def take(shape: tuple[int, ...], other: Any) -> Array:
        nonlocal at
        kind = np.dtype(dtype if other is None else other)
        nbytes = math.prod(shape) * kind.itemsize
        found: Array = raw[at : at + nbytes].view(kind).reshape(shape)
        at += -(-nbytes // ALIGNED) * ALIGNED
        return found

    return take


def _copy(source: Kept, target: Kept) -> None:
    for one, other in zip(source, target, strict=True):
        for a, b in zip(_arrays_of(one), _arrays_of(other), strict=True):
            b[...] = a


def _arrays_of(layer: Layer) -> list[Array]:
    return [*layer.gates, *layer.inner, layer.out, *([] if layer.mask is None else [layer.mask])]
