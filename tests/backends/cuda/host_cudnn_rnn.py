"""A stand-in for the part of libcudnn that recurrent networks need, which executes on host memory.

It has weights in an order of its own, with gaps, unless told to have callboard's; leaves what is behind the end of a
sequence unwritten in gradients; adds gradients by weights to what is there; and spoils a reserve in a backward pass.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from host_driver import HostDriver, array_at

from callboard.backends.cpu.dnn.rnn.network import Kept, Layer, run_backward, run_forward
from callboard.backends.cpu.dnn.rnn.rows import Rows
from callboard.backends.cpu.rng.philox import philox_words
from callboard.backends.cuda.dnn.rnn.dropping import DropArgs
from callboard.kernel.dnn.rnn.messages import Sequences
from callboard.kernel.dnn.rnn.params import RnnParams

DTYPES = {0: np.dtype("f4"), 1: np.dtype("f8")}
MODES: Any = ("rnn_relu", "rnn_tanh", "lstm", "gru")
LAYOUTS: Any = ("seq_major", "packed", "batch_major")
WORK, GAP = 4096, 32


class RnnDriver(HostDriver):
    """With the kernels of ``data/dnn_rnn.cu``."""

    def _drop(self, kind: str, params: Any) -> None:
        args = DropArgs.from_address(params[0])
        words = philox_words(args.seed, args.offset, args.count)
        array_at(args.mask, "u1", (args.count,), (1,))[...] = words >= args.below
        self._passed(kind, params)

    def _passed(self, kind: str, params: Any) -> None:
        args = DropArgs.from_address(params[0])
        dtype = {"f32": "f4", "f64": "f8"}[kind]
        x, out = (array_at(at, dtype, (args.count,), (1,)) for at in (args.x, args.out))
        kept = array_at(args.mask, "u1", (args.count,), (1,)).astype(bool)
        out[...] = np.where(kept, x * np.dtype(dtype).type(args.scale), 0)


class Data(NamedTuple):
    """An RNN data descriptor."""

    layout: int
    steps: int
    batch: int
    size: int
    lengths: tuple[int, ...]


class Function:
    """A function of the library; ctypes' attributes can be set."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)


class HostCudnn:
    """Has the functions of libcudnn as attributes.

    Args:
        driver: Whose memory it works on.
        ours: Weights lie as callboard packs them.
    """

    def __init__(self, driver: HostDriver, ours: bool) -> None:
        self._driver, self._ours = driver, ours
        self._ids = itertools.count(1)
        self._functions: dict[str, Function] = {}
        self.alive: dict[int, Any] = {}
        self._kept: dict[int, Any] = {}
        self._stream = 0

    def __getattr__(self, name: str) -> Function:
        if name not in self._functions:
            if name.startswith("cudnnCreate"):
                call: Any = self._create
            elif name.startswith("cudnnDestroy"):
                call = self._destroy
            else:
                call = getattr(type(self), f"_{name.removeprefix('cudnn').lower()}").__get__(self)
            self._functions[name] = Function(call)
        return self._functions[name]

    def _create(self, out: Any) -> int:
        out._obj.value = made = next(self._ids)
        self.alive[made] = None
        return 0

    def _destroy(self, what: int) -> int:
        del self.alive[what]
        return 0

    def _getversion(self) -> int:
        return 91900

    def _geterrorstring(self, status: int) -> bytes:
        return b"status"

    def _getlasterrorstring(self, text: Any, size: int) -> None:
        text.value = b""

    def _setstream(self, handle: int, stream: int) -> int:
        self._stream = stream
        return 0

    def _settensornddescriptor(self, what: int, code: int, axes: int, shape: Any, strides: Any) -> int:
        self.alive[what] = tuple(shape)
        return 0

    def _setdropoutdescriptor(self, what: int, handle: int, share: float, states: Any, size: int, seed: int) -> int:
        assert share == 0.0
        return 0

    def _setrnndescriptor_v8(self, what: int, *given: int) -> int:
        _, mode, bias, both, _, dtype, compute, _, inputs, hidden, projected, layers, _, _ = given
        if mode == 0 and dtype == 1:
            return 2000  # so that a network that cuDNN does not have is met
        direction: Any = ("unidirectional", "bidirectional")[both]
        proj = 0 if projected == hidden else projected
        self.alive[what] = RnnParams(MODES[mode], inputs, hidden, layers, direction, proj, bias == 2), DTYPES[dtype]
        assert compute == dtype
        return 0

    def _setrnndatadescriptor(
        self, what: int, code: int, layout: int, steps: int, batch: int, size: int, lengths: Any, fill: int
    ) -> int:
        assert array_at(fill, DTYPES[code], (1,), (1,))[0] == 0
        self.alive[what] = Data(layout, steps, batch, size, tuple(lengths))
        return 0

    def _getrnntempspacesizes(self, handle: int, network: int, mode: int, data: int, work: Any, reserve: Any) -> int:
        work._obj.value, reserve._obj.value = WORK, 64 if mode else 0
        return 0

    def _table(self, network: int) -> tuple[dict[tuple[int, bool, str], tuple[int, Any]], int]:
        """Where each weight lies, in elements, and how many there are with the gaps."""
        params, _ = self.alive[network]
        slots = list(params.slots())
        if self._ours:
            return {(s.layer, s.reverse, s.kind): (s.start, s) for s in slots}, params.weight_size
        at, found = 0, {}
        for slot in sorted(slots, key=lambda s: (s.reverse, s.kind, s.layer)):
            found[slot.layer, slot.reverse, slot.kind] = at, slot
            at += slot.size + GAP
        return found, at

    def _getrnnweightspacesize(self, handle: int, network: int, out: Any) -> int:
        out._obj.value = self._table(network)[1] * self.alive[network][1].itemsize
        return 0

    def _getrnnweightparams(
        self, handle: int, network: int, cell: int, nbytes: int, base: int, number: int,
        matrix: int, at_matrix: Any, bias: int, at_bias: Any,
    ) -> int:  # fmt: skip
        (params, dtype), (table, _) = self.alive[network], self._table(network)
        layer, reverse = cell // params.directions, bool(cell % params.directions)
        side = "hr" if number == 8 else ("ih", "hh")[number // params.gates]
        for kind, out in ((f"weight_{side}", at_matrix), (f"bias_{side}", at_bias)):
            if (layer, reverse, kind) in table:
                start, slot = table[layer, reverse, kind]
                gate = 0 if number == 8 else number % params.gates
                out._obj.value = base + (start + gate * slot.size // params.gates) * dtype.itemsize
            else:
                out._obj.value = None
        return 0

    # -- passes --------------------------------------------------------------------------------------------------------

    def _array(self, address: int, dtype: Any, *shape: int) -> Any:
        assert self._driver.on_device(address, int(np.prod(shape)) * dtype.itemsize)
        return array_at(address, dtype, shape, tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape))))

    def _rows(self, data: Data) -> Rows:
        return Rows(LAYOUTS[data.layout], Sequences(data.steps, data.batch), data.lengths)

    def _data(self, address: int, data: Data, dtype: Any) -> Any:
        shape = {0: (data.steps, data.batch), 1: (sum(data.lengths),), 2: (data.batch, data.steps)}[data.layout]
        return self._array(address, dtype, *shape, data.size)

    def _state(self, address: int | None, shape: tuple[int, ...], dtype: Any) -> Any:
        return None if address is None else self._array(address, dtype, *shape)

    def _packed(self, network: int, weights: int, nbytes: int) -> Any:
        (params, dtype), (table, size) = self.alive[network], self._table(network)
        assert nbytes == size * dtype.itemsize
        space, packed = self._array(weights, dtype, size), np.empty(params.weight_size, dtype)
        for start, slot in table.values():
            packed[slot.start : slot.start + slot.size] = space[start : start + slot.size]
        return packed

    def _rnnforward(
        self, handle: int, network: int, mode: int, lengths: Any, x_data: int, x: int, y_data: int, y: int,
        h_desc: int, hx: Any, hy: Any, c_desc: Any, cx: Any, cy: Any,
        nbytes: int, weights: int, work_size: int, work: int, reserve_size: int, reserve: Any,
    ) -> int:  # fmt: skip
        self._driver.streams.add(self._stream)
        params, dtype = self.alive[network]
        given, rows = self.alive[x_data], self._rows(self.alive[x_data])
        h_shape, c_shape = self.alive[h_desc], self.alive[c_desc] if c_desc else (*self.alive[h_desc][:2], 0)
        first = [rows.gather_states(self._state(a, s, dtype), s, dtype) for a, s in ((hx, h_shape), (cx, c_shape))]
        h, c = (a.copy() for a in first)
        kept = _kept(params, rows.count, dtype)
        fed, packed = rows.gather(self._data(x, given, dtype), dtype), self._packed(network, weights, nbytes)
        run_forward(params, rows.steps, packed, fed, h, c, kept, 1.0)
        rows.scatter(kept[-1].out, self._data(y, self.alive[y_data], dtype))
        for states, address, shape in ((h, hy, h_shape), (c, cy, c_shape)):
            if address is not None:
                rows.scatter_states(states, self._state(address, shape, dtype))
        assert (reserve is None) == (mode == 0)
        if reserve is not None:
            assert reserve_size == 64
            self._kept[name := next(self._ids)] = kept, first, fed
            self._array(reserve, np.dtype("i8"), 1)[0] = name
        return 0

    def _rnnbackwarddata_v8(
        self, handle: int, network: int, lengths: Any, y_data: int, y: int, dy: int, x_data: int, dx: int,
        h_desc: int, hx: Any, dhy: Any, dhx: Any, c_desc: Any, cx: Any, dcy: Any, dcx: Any,
        nbytes: int, weights: int, work_size: int, work: int, reserve_size: int, reserve: int,
    ) -> int:  # fmt: skip
        self._driver.streams.add(self._stream)
        params, dtype = self.alive[network]
        rows, token = self._rows(self.alive[x_data]), self._array(reserve, np.dtype("i8"), 1)
        if int(token[0]) not in self._kept:
            return 0  # what no pass has filled: as on a device, anything may come of it
        kept, first, fed = self._kept[int(token[0])]
        h_shape, c_shape = self.alive[h_desc], self.alive[c_desc] if c_desc else (*self.alive[h_desc][:2], 0)
        dh, dc = (rows.gather_states(self._state(a, s, dtype), s, dtype) for a, s in ((dhy, h_shape), (dcy, c_shape)))
        np.testing.assert_array_equal(rows.gather(self._data(y, self.alive[y_data], dtype), dtype), kept[-1].out)
        by_y = rows.gather(self._data(dy, self.alive[y_data], dtype), dtype)
        found, packed = np.empty(params.weight_size, dtype), self._packed(network, weights, nbytes)
        by_x = run_backward(params, rows.steps, packed, fed, tuple(first), kept, 1.0, by_y, dh, dc, found)
        out = self._data(dx, self.alive[x_data], dtype)
        before = out.copy()
        rows.scatter(by_x, out)
        if self.alive[x_data].layout != 1:
            within = np.arange(out.shape[0])[:, None] < np.array(self.alive[x_data].lengths)
            if self.alive[x_data].layout == 2:
                within = (np.arange(out.shape[1])[:, None] < np.array(self.alive[x_data].lengths)).T
            out[~within] = before[~within]
        for states, address, shape in ((dh, dhx, h_shape), (dc, dcx, c_shape)):
            if address is not None:
                rows.scatter_states(states, self._state(address, shape, dtype))
        self._kept[name := next(self._ids)] = found, fed
        token[0] = name
        return 0

    def _rnnbackwardweights_v8(
        self, handle: int, network: int, add: int, lengths: Any, x_data: int, x: int, h_desc: int, hx: Any,
        y_data: int, y: int, nbytes: int, dweights: int, work_size: int, work: int, reserve_size: int, reserve: int,
    ) -> int:  # fmt: skip
        self._driver.streams.add(self._stream)
        assert add == 0
        (_, dtype), (table, size) = self.alive[network], self._table(network)
        name = int(self._array(reserve, np.dtype("i8"), 1)[0])
        if name not in self._kept:
            return 0
        found, fed = self._kept.pop(name)
        rows = self._rows(self.alive[x_data])
        np.testing.assert_array_equal(rows.gather(self._data(x, self.alive[x_data], dtype), dtype), fed)
        space = self._array(dweights, dtype, size)
        for start, slot in table.values():
            space[start : start + slot.size] += found[slot.start : slot.start + slot.size]
        return 0


def _kept(params: RnnParams, rows: int, dtype: Any) -> Kept:
    sides, size = range(params.directions), params.hidden_size
    return [
        Layer(
            tuple(np.empty((rows, params.gates * size), dtype) for _ in sides),
            tuple(np.empty((rows, size if params.gates > 1 else 0), dtype) for _ in sides),
            np.empty((rows, params.output_size), dtype),
            None,
        )
        for _ in range(params.num_layers)
    ]


def library_of(driver: HostDriver, ours: bool) -> Any:
    """What :class:`callboard.backends.cuda.dnn.legacy.Cudnn` takes for libcudnn."""
    return HostCudnn(driver, ours)
