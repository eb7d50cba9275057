"""cuDNN's descriptors of a recurrent network and of the arrays that it is given.

The lengths of sequences are numbers of a call: they are set before each launch, which cuDNN reads on the host.
"""

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from callboard.backends.cuda.dnn.legacy import DATA_TYPES, INT, PTR, SIZE, U64, Cudnn, Destroyed, ints
from callboard.core.dtype import DType
from callboard.core.errors import LibraryError, UnsupportedOp
from callboard.kernel.dnn.rnn.messages import Recurrent
from callboard.kernel.dnn.rnn.params import RnnParams

if TYPE_CHECKING:
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["Descriptors", "Sizes"]

MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
"""``cudnnRNNMode_t``."""
ALGORITHMS = {"standard": 0, "persist_static": 1, "persist_static_small_h": 3}
"""``cudnnRNNAlgo_t``."""
PADDED, PACKED, BATCH_MAJOR = 0, 1, 2
"""``cudnnRNNDataLayout_t``: padded steps, packed steps, batch first."""
NO_BIAS, DOUBLE_BIAS = 0, 2
DEFAULT_MATH, TENSOR_OP_MATH, FMA_MATH = 0, 1, 3
PADDED_IO = 1
INFERENCE, TRAINING = 0, 1
ADD = 0
"""``cudnnWgradMode_t``: gradients are accumulated, the only mode of cuDNN."""


class Sizes(NamedTuple):
    """Bytes that cuDNN needs.

    Attributes:
        work: While it runs.
        reserve: Bytes kept from the training pass to the backward pass.
        weights: Bytes of all weights.
    """

    work: int
    reserve: int
    weights: int


class Descriptors:
    """A network for arrays of given extents.

    Args:
        cudnn: The library.
        op: The message: layout of the sequences, and settings.
        params: The network: that of ``op``, or a layer of it.
        training: True for a training pass and for its backward pass.
        destroyed: Collects the descriptors to destroy.

    Attributes:
        network: The ``cudnnRNNDescriptor_t``.
        sizes: Bytes that the network needs.

    Raises:
        UnsupportedOp: cuDNN has no such network.
    """

    def __init__(
        self, cudnn: Cudnn, op: Recurrent[Any], params: RnnParams, training: bool, destroyed: Destroyed
    ) -> None:
        self.cudnn, self.params, self.dtype = cudnn, params, op.x.dtype
        self._extents = op.sequences()
        self._mode = TRAINING if training else INFERENCE
        dense = op.lengths is None and op.layout == "seq_major"
        self._layout = (
            PACKED if dense else {"seq_major": PADDED, "packed": PACKED, "batch_major": BATCH_MAJOR}[op.layout]
        )
        self._zero = ctypes.c_double(0)
        self._set_data = cudnn.plain("cudnnSetRNNDataDescriptor", PTR, INT, INT, INT, INT, INT, PTR, PTR)
        self._x, self._y = (cudnn.descriptor("RNNData", destroyed) for _ in range(2))
        cells, batch = params.num_layers * params.directions, self._extents.batch
        self._h = _states(cudnn, self.dtype, cells, batch, params.state_size)
        self._c = _states(cudnn, self.dtype, cells, batch, params.hidden_size) if params.mode == "lstm" else None
        try:
            self.network = self._described(op, destroyed)
            self.set_lengths([self._extents.steps] * batch)
            self.sizes = self._sized()
        except LibraryError as e:
            raise UnsupportedOp(f"cuda, {type(op).__struct_config__.tag}: cuDNN has no such network: {e}") from None
        spaces = (SIZE, PTR) * 3
        self._forward = cudnn.function("cudnnRNNForward", PTR, INT, *(PTR,) * 11, *spaces)
        self._data = cudnn.function("cudnnRNNBackwardData_v8", *(PTR,) * 15, *spaces)
        self._weights = cudnn.function("cudnnRNNBackwardWeights_v8", PTR, INT, *(PTR,) * 7, *spaces)

    def set_lengths(self, lengths: Sequence[int]) -> None:
        """Set the sequence lengths of the next launches."""
        steps, batch = self._extents
        given, code, zero = ints(lengths), DATA_TYPES[self.dtype.name], ctypes.addressof(self._zero)
        for descriptor, size in ((self._x, self.params.input_size), (self._y, self.params.output_size)):
            self._set_data(descriptor, code, self._layout, steps, batch, size, given, zero)

    def forward(
        self,
        stream: "CudaStream",
        x: int,
        y: int,
        hx: int | None,
        h_n: int | None,
        cx: int | None,
        c_n: int | None,
        weights: int,
        work: int,
        reserve: int | None,
    ) -> None:
        """Enqueue the pass that the network was described for."""
        sizes = self.sizes
        self._forward(
            stream, self.network, self._mode, None, self._x, x, self._y, y, self._h, hx, h_n, self._c, cx, c_n,
            sizes.weights, weights, sizes.work, work, sizes.reserve if reserve else 0, reserve,
        )  # fmt: skip

    def backward_data(
        self,
        stream: "CudaStream",
        y: int,
        dy: int,
        dx: int,
        states: Sequence[int | None],
        cells: Sequence[int | None],
        weights: int,
        work: int,
        reserve: int,
    ) -> None:
        """Enqueue the gradients by the input and by the first states, before those by the weights.

        Args:
            stream: The stream.
            y, dy, dx: The output, the gradients by it and by the input.
            states, cells: The first ones, the gradients by the last ones, and those by the first ones.
            weights, work, reserve: Addresses.
        """
        sizes = self.sizes
        self._data(
            stream, self.network, None, self._y, y, dy, self._x, dx, self._h, *states, self._c, *cells,
            sizes.weights, weights, sizes.work, work, sizes.reserve, reserve,
        )  # fmt: skip

    def backward_weights(
        self, stream: "CudaStream", x: int, hx: int | None, y: int, dweights: int, work: int, reserve: int
    ) -> None:
        """Enqueue the gradients by the weights, which are accumulated."""
        sizes = self.sizes
        self._weights(
            stream, self.network, ADD, None, self._x, x, self._h, hx, self._y, y,
            sizes.weights, dweights, sizes.work, work, sizes.reserve, reserve,
        )  # fmt: skip

    def _described(self, op: Recurrent[Any], destroyed: Destroyed) -> int:
        cudnn, params, dtype = self.cudnn, self.params, self.dtype.name
        dropout = cudnn.descriptor("Dropout", destroyed)  # none: callboard's own is between the layers
        cudnn.plain("cudnnSetDropoutDescriptor", PTR, PTR, ctypes.c_float, PTR, SIZE, U64)(
            dropout, cudnn.preparing, 0.0, None, 0, 0
        )
        network = cudnn.descriptor("RNN", destroyed)
        math = {"f16": TENSOR_OP_MATH, "f32": DEFAULT_MATH if op.tf32 else FMA_MATH}.get(dtype, DEFAULT_MATH)
        set_network = cudnn.plain("cudnnSetRNNDescriptor_v8", PTR, *(INT,) * 12, PTR, ctypes.c_uint)
        set_network(
            network,
            ALGORITHMS[op.algorithm],
            MODES[params.mode],
            DOUBLE_BIAS if params.bias else NO_BIAS,
            params.directions - 1,
            0,
            DATA_TYPES[dtype],
            DATA_TYPES["f64" if dtype == "f64" else "f32"],
            math,
            params.input_size,
            params.hidden_size,
            params.state_size,
            params.num_layers,
            dropout,
            0 if self._layout == PACKED else PADDED_IO,
        )
        return network

    def _sized(self) -> Sizes:
        cudnn, cells = self.cudnn, [ctypes.c_size_t() for _ in range(3)]
        work, reserve, weights = map(ctypes.byref, cells)
        query = cudnn.plain("cudnnGetRNNTempSpaceSizes", PTR, PTR, INT, PTR, PTR, PTR)
        query(cudnn.preparing, self.network, self._mode, self._x, work, reserve)
        cudnn.plain("cudnnGetRNNWeightSpaceSize", PTR, PTR, PTR)(cudnn.preparing, self.network, weights)
        return Sizes(*(cell.value for cell in cells))


def _states(cudnn: Cudnn, dtype: DType, cells: int, batch: int, size: int) -> int:
    return cudnn.tensor(dtype, (cells, batch, size), (batch * size, size, 1))
