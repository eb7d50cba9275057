"""The ops of recurrent networks: inference, a training pass, and its gradients.

The order of work is that of cuDNN: a training pass leaves a *reserve*, which one backward pass uses up.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import msgspec

from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import Layout, layout_of
from callboard.core.mode import Mode
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, InOut, Operand, Out, Placeholder, Whole
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.dnn.actor import CudnnActor
from callboard.kernel.dnn.checks import FLOATS, check_like, dtype_of
from callboard.kernel.dnn.rnn.params import RnnParams
from callboard.kernel.dnn.rnn.reserve import reserve_bytes

__all__ = [
    "RnnAlgorithm",
    "RnnBackward",
    "RnnForward",
    "RnnForwardTraining",
    "RnnGradients",
    "RnnLayout",
    "RnnOutput",
    "RnnTrained",
]

R_co = TypeVar("R_co", covariant=True)

RnnLayout = Literal["seq_major", "batch_major", "packed"]
"""Layout of sequences in ``x``, ``y`` and their gradients: ``[steps, batch, n]``, ``[batch, steps, n]``, or step after
step of the sequences that have not ended, ``[all steps, n]``, as in the data of PyTorch's ``PackedSequence``."""
RnnAlgorithm = Literal["standard", "persist_static", "persist_static_small_h"]
"""cuDNN's: a product at each step, or kernels that keep the weights on the chip."""


STATES = "a state for each layer, direction and sequence"


class Sequences(NamedTuple):
    """Extents of a batch of sequences.

    Attributes:
        steps: Steps of the longest sequence.
        batch: Number of sequences.
    """

    steps: int
    batch: int


class RnnOutput(NamedTuple, Generic[Mode]):
    """The output of a network.

    Attributes:
        y: The outputs of the last layer at each step.
        h_n: The last state of each layer and direction.
        c_n: Last cell state of each layer and direction of an LSTM; None otherwise.
    """

    y: GpuRef[Mode]
    h_n: GpuRef[Mode]
    c_n: GpuRef[Mode] | None = None


class RnnTrained(NamedTuple, Generic[Mode]):
    """:class:`RnnOutput` and the data for the backward pass.

    Attributes:
        reserve: Bytes for one :class:`RnnBackward`.
    """

    y: GpuRef[Mode]
    h_n: GpuRef[Mode]
    reserve: GpuRef[Mode]
    c_n: GpuRef[Mode] | None = None


class RnnGradients(NamedTuple, Generic[Mode]):
    """Gradients by the inputs of the training pass.

    Attributes:
        dx: Gradient with respect to the input.
        dweights: Gradient with respect to the packed weights, packed likewise (``params.unpack`` gives views by name).
        dhx: Gradient with respect to the first state.
        dcx: Gradient with respect to the first cell state of an LSTM; None otherwise.
    """

    dx: GpuRef[Mode]
    dweights: GpuRef[Mode]
    dhx: GpuRef[Mode]
    dcx: GpuRef[Mode] | None = None


class Recurrent(Op[CudnnActor, R_co], Generic[R_co]):
    """Base of the ops: the network, and the layout of the sequences."""

    dtypes: ClassVar[tuple[DType, ...]] = FLOATS

    x: In
    weights: In
    params: RnnParams
    hx: In | None = None
    cx: In | None = None
    lengths: tuple[Whole, ...] | None = None
    layout: RnnLayout = "seq_major"
    tf32: bool = False
    algorithm: RnnAlgorithm = "standard"
    max_length: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.x, Placeholder) and self.lengths is not None:  # a context host does not have the numbers
            self._check_lengths(self.lengths)

    def _check_lengths(self, lengths: Sequence[int]) -> None:
        if not lengths:
            raise refuse(self, "lengths is empty; give the length of each sequence, or leave it out")
        if self.layout == "packed":
            msgspec.structs.force_setattr(self, "max_length", lengths[0])
            if wrong := next((i for i in range(1, len(lengths)) if lengths[i] > lengths[i - 1]), 0):
                raise refuse(
                    self,
                    f"lengths[{wrong}] is {lengths[wrong]} and follows {lengths[wrong - 1]}; packed sequences must be "
                    "ordered by length, the longest first",
                )
        most = lengths[0] if self.layout == "packed" else self.sequences().steps
        for at, length in enumerate(lengths):
            if not 1 <= length <= most:
                raise refuse(self, f"lengths[{at}] is {length}; it must lie between 1 and {most}, the steps of x")
        if self.layout == "packed" and self.x.ndim == 2 and sum(lengths) != self.x.shape[0]:
            raise refuse(self, f"lengths are {sum(lengths)} steps together, and x is {self.x.layout!r}")

    def sequences(self) -> Sequences:
        """The extents of batch and time.

        Raises:
            ShapeError: ``x`` does not fit the network or the lengths.
        """
        axes = {"seq_major": "steps, batch", "batch_major": "batch, steps", "packed": "steps of all"}[self.layout]
        size, shape = self.params.input_size, self.x.shape
        if len(shape) != (2 if self.layout == "packed" else 3) or shape[-1] != size:
            raise refuse(self, f"x is {self.x.layout!r}; it must be [{axes}, {size}] according to layout and params")
        if self.layout == "packed":
            if self.lengths is None:
                raise refuse(self, "lengths is None; packed sequences have lengths")
            return Sequences(self.max_length, len(self.lengths))
        steps, batch = shape[:2] if self.layout == "seq_major" else (shape[1], shape[0])
        if steps == 0 or batch == 0:
            raise refuse(self, f"x is {self.x.layout!r}; there must be a sequence, and a step")
        if self.lengths is not None and len(self.lengths) != batch:
            raise refuse(
                self, f"there are {len(self.lengths)} lengths, and x is {self.x.layout!r}: one for each sequence"
            )
        return Sequences(steps, batch)

    def result(self) -> Layout:
        """The layout of ``y``."""
        return layout_of(self.x.dtype, (*self.x.shape[:-1], self.params.output_size))

    def states(self) -> tuple[Layout, Layout]:
        """The layouts of a state and of a cell state."""
        params, dtype = self.params, self.x.dtype
        cells, batch = params.num_layers * params.directions, self.sequences().batch
        return (
            layout_of(dtype, (cells, batch, params.state_size)),
            layout_of(dtype, (cells, batch, params.hidden_size)),
        )

    def check(self, **others: Operand | None) -> None:
        """Checks that all of them make of their operands.

        Args:
            others: Further operands of the same dtype.

        Raises:
            ShapeError: Names operand, value and the expected value.
        """
        dtype = dtype_of(self, FLOATS, x=self.x, weights=self.weights, hx=self.hx, cx=self.cx, **others)
        state, cell = self.states()
        check_like(self, "weights", self.weights, (self.params.weight_size,), f"the packed weights of {self.params}")
        check_like(self, "hx", self.hx, state.shape, STATES)
        self.check_cell("cx", self.cx, cell)
        if self.tf32 and dtype.name != "f32":
            raise refuse(self, f"tf32 is True and the arrays are {dtype}; leave it out, it applies to f32 only")

    def check_cell(self, name: str, operand: Operand | None, layout: Layout) -> None:
        """The shape of a cell state, which only an LSTM has."""
        if operand is not None and self.params.mode != "lstm":
            raise refuse(self, f"{name} is {operand.layout!r}; only an LSTM has cell states, not {self.params.mode}")
        check_like(self, name, operand, layout.shape, STATES)


class RnnForward(Recurrent[RnnOutput], tag="dnn.rnn_forward"):
    """Compute the output of a recurrent network for a batch of sequences, for inference (``RnnFwdRequest``).

    Args:
        x: ``[steps, batch, input_size]``, f16, bf16, f32 or f64; see ``layout``.
        weights: ``[params.weight_size]``, same dtype, as ``params.pack`` packs them.
        params: The network.
        hx: The first state, ``[num_layers * directions, batch, state_size]``, same dtype; zeros when None.
        cx: First cell state of an LSTM, ``[num_layers * directions, batch, hidden_size]``; zeros when None.
        y: Outputs: shape and dtype of ``x``, but with ``output_size`` numbers at each step; 0 after the end of a
            sequence.
        h_n, c_n: The states after the last step of each sequence, with the shapes of ``hx`` and ``cx``.
        lengths: Steps of each sequence, between 1 and all; what ``x`` holds after them is not read. None: all steps.
        layout: ``"seq_major"``, ``"batch_major"`` (``[batch, steps, n]``) or ``"packed"`` (``[all steps, n]``, the
            longest sequence first).
        tf32: f32 only: products may round their factors to TF32.
        algorithm: Algorithm of cuDNN; the CPU has only one. Must be the same for a training pass and its backward pass.
        max_length: Steps of the longest packed sequence; taken from ``lengths``.
    """

    returns: ClassVar[tuple[str, ...]] = ("y", "h_n", "c_n")
    results: ClassVar[type[Any] | None] = RnnOutput

    y: Out | None = None
    h_n: Out | None = None
    c_n: Out | None = None

    def infer(self) -> Outputs:
        self.check()
        state, cell = self.states()
        found = {"y": self.result(), "h_n": state}
        return found | {"c_n": cell} if self.params.mode == "lstm" else found


class Training(Recurrent[R_co], Generic[R_co]):
    """Base of the ops that have dropout between layers."""

    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.dropout < 1.0:
            raise refuse(self, f"dropout is {self.dropout!r}; it must lie between 0 and 1, below 1")

    def reserved(self) -> Layout:
        """The layout of the reserve."""
        drops = self.dropout > 0.0 and self.params.num_layers > 1
        extents = self.sequences()
        nbytes = reserve_bytes(self.params, self.x.dtype, extents.steps * extents.batch, drops)
        return layout_of(DTYPES["u8"], (nbytes,))


class RnnForwardTraining(Training[RnnTrained], tag="dnn.rnn_forward_training"):
    """Compute the output of a recurrent network, with dropout and a reserve for the backward pass.

    Args:
        x, weights, params, hx, cx, y, h_n, c_n, lengths, layout, tf32, algorithm, max_length: See :class:`RnnForward`.
        reserve: u8; its length is that of the array that is made when None.
        dropout: The share of the numbers between two layers that become 0; the others are divided by ``1 - dropout``.
            Their positions select them: number *i* of the output of layer *l* uses word ``offset + l * y.size + i`` of
            the stream, as in ``dev.dnn.dropout``. The same call therefore drops the same numbers on every backend, also
            after a lost context.
        seed: 0 to 2**64 - 1.
        offset: Position in the stream; the call takes ``(num_layers - 1) * y.size`` words.
    """

    returns: ClassVar[tuple[str, ...]] = ("y", "h_n", "reserve", "c_n")
    results: ClassVar[type[Any] | None] = RnnTrained

    y: Out | None = None
    h_n: Out | None = None
    c_n: Out | None = None
    reserve: Out | None = None
    seed: Whole = 0
    offset: Whole = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("seed", "offset"):
            if getattr(self, name) < 0:
                raise refuse(self, f"{name} is {getattr(self, name)}; it must lie between 0 and 2**64 - 1")

    def infer(self) -> Outputs:
        self.check()
        state, cell = self.states()
        found = {"y": self.result(), "h_n": state, "reserve": self.reserved()}
        return found | {"c_n": cell} if self.params.mode == "lstm" else found


class RnnBackward(Training[RnnGradients], tag="dnn.rnn_backward"):
    """The gradients of a training pass (``RnnBwdRequest``), by backpropagation through time.

    Takes the operands and outputs of the training pass, and the gradients with respect to its outputs.

    Args:
        x, weights, params, hx, cx, lengths, layout, dropout, tf32, algorithm, max_length: The same as in the training
            pass.
        y: Output of the training pass.
        reserve: The reserve of that pass. It is used up: a second backward pass with it is a ``NumericalError``, unless
            it is given a copy that was made before (``dev.copy``).
        dy: Gradient with respect to ``y``; elements after the end of a sequence are not read. Zeros when None.
        dh_n, dc_n: The gradients by the last states; zeros when None.
        dx: Gradient with respect to ``x``; 0 after the end of a sequence.
        dweights: Gradient with respect to ``weights``.
        dhx, dcx: Gradients with respect to ``hx`` and ``cx``, even if those were None.

    The gradient of a ReLU at exactly 0 is 0; on CUDA in f16 and bf16 it is 1, as in cuDNN.
    """

    returns: ClassVar[tuple[str, ...]] = ("dx", "dweights", "dhx", "dcx")
    results: ClassVar[type[Any] | None] = RnnGradients

    y: In
    reserve: InOut
    dy: In | None = None
    dh_n: In | None = None
    dc_n: In | None = None
    dx: Out | None = None
    dweights: Out | None = None
    dhx: Out | None = None
    dcx: Out | None = None

    def infer(self) -> Outputs:
        self.check(y=self.y, dy=self.dy, dh_n=self.dh_n, dc_n=self.dc_n)
        state, cell = self.states()
        result = self.result()
        check_like(self, "y", self.y, result.shape, "what the training pass made")
        check_like(self, "dy", self.dy, result.shape, "that of y")
        check_like(self, "dh_n", self.dh_n, state.shape, STATES)
        self.check_cell("dc_n", self.dc_n, cell)
        reserve = self.reserved()
        if self.reserve.dtype is not reserve.dtype or self.reserve.shape != reserve.shape:
            raise refuse(self, f"reserve is {self.reserve.layout!r}, expected {reserve!r}, as a training pass makes it")
        if self.dy is None and self.dh_n is None and self.dc_n is None:
            raise refuse(
                self, "dy, dh_n and dc_n are None; pass the gradient with respect to at least one of y, h_n and c_n"
            )
        found = {
            "dx": layout_of(self.x.dtype, self.x.shape),
            "dweights": layout_of(self.x.dtype, self.weights.shape),
            "dhx": state,
        }
        return found | {"dcx": cell} if self.params.mode == "lstm" else found
