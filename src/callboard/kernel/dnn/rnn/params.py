"""``RnnParams``: the structure of a recurrent network, and the packing of its weights into one array."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeVar, get_type_hints

import msgspec
import numpy as np

from callboard.core.dtype import DTypeLike, as_dtype
from callboard.core.errors import ShapeError
from callboard.core.ref.hostarrays import refuse_masked
from callboard.core.settings import converted

__all__ = ["RnnDirection", "RnnMode", "RnnParams", "WeightSlot"]

RnnMode = Literal["rnn_relu", "rnn_tanh", "lstm", "gru"]
"""The cell. LSTM and GRU are those of cuDNN and PyTorch: a GRU applies its reset gate after the recurrent product."""
RnnDirection = Literal["unidirectional", "bidirectional"]

Array = np.ndarray[Any, Any]
Packed = TypeVar("Packed", bound=Any)
GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}
KINDS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
"""PyTorch's order within a layer and direction."""


class WeightSlot(NamedTuple):
    """The location of a weight in the packed array.

    Attributes:
        name: PyTorch's, ``"weight_ih_l0"``.
        layer, reverse: Index of the layer, and whether the weight belongs to the reverse direction.
        shape: ``[rows, columns]``, or ``[rows]`` of a bias.
        start: Position of its first element.
    """

    name: str
    layer: int
    reverse: bool
    shape: tuple[int, ...]
    start: int

    @property
    def kind(self) -> str:
        """``"weight_ih"``, ``"weight_hh"``, ``"weight_hr"``, ``"bias_ih"`` or ``"bias_hh"``."""
        return self.name.partition("_l")[0]

    @property
    def size(self) -> int:
        """Elements."""
        rows, *columns = self.shape
        return rows * (columns[0] if columns else 1)


class RnnParams(msgspec.Struct, frozen=True, array_like=True, cache_hash=True):
    """A recurrent network (``RnnParams``): layers of cells; each layer reads the output of the one below.

    Extents of batch and time are those of the arrays that an op is given.

    Attributes:
        mode: The cell.
        input_size: Numbers at each step of a sequence.
        hidden_size: Numbers in the state of a cell.
        num_layers: Number of layers, at least 1.
        direction: ``"bidirectional"``: a second network reads each sequence from its end, layer by layer; the outputs
            of both are concatenated.
        proj_size: For an LSTM: number of rows of a matrix that the output of a cell is multiplied by, less than
            ``hidden_size`` (Sak et al., "Long short-term memory recurrent neural network architectures for large scale
            acoustic modeling", 2014). 0: no projection.
        bias: Two vectors a cell, of the input and of the state, as in PyTorch.

    Raises:
        TypeError: When it is made: a field is of the wrong type, or a word that is not known.
        ShapeError: A size is not positive, or there is no such projection.
    """

    mode: RnnMode
    input_size: int
    hidden_size: int
    num_layers: int = 1
    direction: RnnDirection = "unidirectional"
    proj_size: int = 0
    bias: bool = True

    def __post_init__(self) -> None:
        for name, hint in _HINTS.items():
            value = getattr(self, name)
            try:
                fixed = converted(name, value, hint)
            except TypeError as e:
                raise TypeError(f"RnnParams: {e}") from None
            if fixed is not value:
                msgspec.structs.force_setattr(self, name, fixed)
        for name in ("input_size", "hidden_size", "num_layers"):
            if not 1 <= getattr(self, name) < 2**31:
                raise ShapeError(f"RnnParams: {name} is {getattr(self, name)}; it must be positive, and below 2**31")
        if self.proj_size and self.mode != "lstm":
            raise ShapeError(f"RnnParams: proj_size is {self.proj_size}; only an LSTM has projections, not {self.mode}")
        if not 0 <= self.proj_size < self.hidden_size:
            raise ShapeError(
                f"RnnParams: proj_size is {self.proj_size}; it must be less than hidden_size, {self.hidden_size} "
                "(0: no projection)"
            )

    @property
    def gates(self) -> int:
        """Row blocks of a weight matrix: 4 of an LSTM (i, f, g, o), 3 of a GRU (r, z, n), else 1."""
        return GATES[self.mode]

    @property
    def directions(self) -> int:
        """1 or 2."""
        return 2 if self.direction == "bidirectional" else 1

    @property
    def state_size(self) -> int:
        """Numbers of a cell's output: ``proj_size`` if there is one, else ``hidden_size``."""
        return self.proj_size or self.hidden_size

    @property
    def output_size(self) -> int:
        """Numbers at each step of the result: of all directions."""
        return self.state_size * self.directions

    @property
    def weight_size(self) -> int:
        """Elements of the packed weights."""
        last = self.slots()[-1]
        return last.start + last.size

    def slots(self) -> tuple[WeightSlot, ...]:
        """Every weight in the packed order: the matrices of all layers, then the biases."""
        found = _SLOTS.get(self)
        if found is None:
            found = _SLOTS[self] = tuple(_slots(self))
        return found

    def pack(self, state: Mapping[str, Any], dtype: DTypeLike | None = None, *, prefix: str = "") -> Array:
        """The weights of a state dict in one array, as the ops take them.

        Args:
            state: Arrays, or PyTorch's tensors, by the names of ``torch.nn.LSTM``, ``GRU`` and ``RNN``
                (``"weight_ih_l0"``, ``"bias_hh_l1_reverse"``).
            dtype: The dtype of the result: f16, bf16, f32 or f64; by default that of the first weight.
            prefix: Prefix of the names in ``state``, for example ``"encoder.lstm."``; names without it are skipped.

        Returns:
            ``[weight_size]``.

        Raises:
            KeyError: A weight is missing, or there is one that the network does not have; names it.
            ShapeError: A weight has another shape; names the weight and the expected shape.
        """
        given = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        slots = self.slots()
        if missing := [slot.name for slot in slots if slot.name not in given]:
            raise KeyError(f"the state dict has no {prefix + missing[0]!r}; {self} needs it")
        if extra := sorted(given.keys() - {slot.name for slot in slots}):
            raise KeyError(f"the state dict has {prefix + extra[0]!r}, and {self} has no such weight")
        arrays = [_array(given[slot.name]) for slot in slots]
        packed = np.empty(self.weight_size, as_dtype(arrays[0].dtype if dtype is None else dtype).np)
        for slot, array in zip(slots, arrays, strict=True):
            if array.shape != slot.shape:
                raise ShapeError(f"{prefix}{slot.name} has shape {list(array.shape)}; {self} needs {list(slot.shape)}")
            packed[slot.start : slot.start + slot.size] = array.ravel()
        return packed

    def unpack(self, packed: Packed) -> dict[str, Packed]:
        """Views of packed weights (or of their gradients) by PyTorch's names, in PyTorch's order.

        Args:
            packed: ``[weight_size]``: an array of the host, or a ref, whose views are refs.

        Raises:
            ShapeError: It has another shape.
        """
        if tuple(packed.shape) != (self.weight_size,):
            raise ShapeError(f"the packed weights have shape {list(packed.shape)}; {self} has {self.weight_size}")
        slots = sorted(self.slots(), key=lambda slot: (slot.layer, slot.reverse, KINDS.index(slot.kind)))
        return {slot.name: packed[slot.start : slot.start + slot.size].reshape(*slot.shape) for slot in slots}

    def initial_weights(self, seed: int = 0, dtype: DTypeLike = "f32") -> Array:
        """Packed weights to begin a training with: uniform in ``±1 / sqrt(hidden_size)``, as PyTorch begins.

        The numbers are those of ``numpy.random.default_rng(seed)``.
        """
        bound = self.hidden_size**-0.5
        drawn = np.random.default_rng(seed).uniform(-bound, bound, self.weight_size)
        return drawn.astype(as_dtype(dtype).np)


_HINTS: dict[str, Any] = get_type_hints(RnnParams)
_SLOTS: dict[RnnParams, tuple[WeightSlot, ...]] = {}


def _slots(params: RnnParams) -> list[WeightSlot]:
    rows, state, found, start = params.gates * params.hidden_size, params.state_size, list[WeightSlot](), 0
    for biases in (False, True) if params.bias else (False,):
        for layer in range(params.num_layers):
            width = params.output_size if layer else params.input_size
            matrices = {"weight_ih": (rows, width), "weight_hh": (rows, state)}
            if params.proj_size:
                matrices["weight_hr"] = (params.proj_size, params.hidden_size)
            shapes: dict[str, tuple[int, ...]] = {"bias_ih": (rows,), "bias_hh": (rows,)} if biases else {**matrices}
            for reverse in (False, True)[: params.directions]:
                for name, shape in shapes.items():
                    named = f"{name}_l{layer}{'_reverse' if reverse else ''}"
                    found.append(WeightSlot(named, layer, reverse, shape, start))
                    start += found[-1].size
    return found


def _array(value: Any) -> Array:
    """A weight on the host. NumPy has no bf16 for PyTorch to convert to; f32 holds it exactly."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if "bfloat16" in str(value.dtype):
            value = value.float()
    refuse_masked(value, "weights")
    return np.asarray(value)
