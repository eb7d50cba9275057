"""The packed weights of a recurrent network: from and to the state dict of ``torch.nn.LSTM``, ``GRU`` and ``RNN``."""

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from callboard.core.dtype import DTypeLike, as_dtype
from callboard.core.errors import ShapeError
from callboard.kernel.dnn.rnn.params import RnnParams

__all__ = ["initial_weights", "pack_weights", "unpack_weights"]

Array = np.ndarray[Any, Any]
Packed = TypeVar("Packed", bound=Any)
_KINDS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
"""PyTorch's order within a layer and direction."""


def pack_weights(
    params: RnnParams, state: Mapping[str, Any], dtype: DTypeLike | None = None, *, prefix: str = ""
) -> Array:
    """The weights of a state dict in one array, as the ops take them.

    Args:
        params: The network.
        state: Arrays, or PyTorch's tensors, by PyTorch's names (``"weight_ih_l0"``, ``"bias_hh_l1_reverse"``).
        dtype: Of the result: f16, bf16, f32 or f64; by default that of the first weight.
        prefix: What precedes the names in ``state``, as ``"encoder.lstm."``; names without it are passed over.

    Returns:
        ``[params.weight_size]``.

    Raises:
        KeyError: A weight is missing, or there is one that the network does not have; names it.
        ShapeError: A weight has another shape; names it, and what was expected.
    """
    given = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
    slots = params.slots()
    if missing := [slot.name for slot in slots if slot.name not in given]:
        raise KeyError(f"the state dict has no {prefix + missing[0]!r}; {params} needs it")
    if extra := sorted(given.keys() - {slot.name for slot in slots}):
        raise KeyError(f"the state dict has {prefix + extra[0]!r}, and {params} has no such weight")
    arrays = [_array(given[slot.name]) for slot in slots]
    packed = np.empty(params.weight_size, as_dtype(arrays[0].dtype if dtype is None else dtype).np)
    for slot, array in zip(slots, arrays, strict=True):
        if array.shape != slot.shape:
            raise ShapeError(f"{prefix}{slot.name} has shape {list(array.shape)}; {params} needs {list(slot.shape)}")
        packed[slot.start : slot.start + slot.size] = array.ravel()
    return packed


def unpack_weights(params: RnnParams, packed: Packed) -> dict[str, Packed]:
    """Views of the packed weights (or of their gradients) by PyTorch's names, in PyTorch's order.

    Args:
        params: The network.
        packed: ``[params.weight_size]``: an array of the host, or a ref, whose views are refs.

    Raises:
        ShapeError: It has another shape.
    """
    if tuple(packed.shape) != (params.weight_size,):
        raise ShapeError(f"the packed weights have shape {list(packed.shape)}; {params} has {params.weight_size}")
    slots = sorted(params.slots(), key=lambda slot: (slot.layer, slot.reverse, _KINDS.index(slot.kind)))
    return {slot.name: packed[slot.start : slot.start + slot.size].reshape(*slot.shape) for slot in slots}


def initial_weights(params: RnnParams, seed: int = 0, dtype: DTypeLike = "f32") -> Array:
    """Packed weights to begin a training with: uniform in ``±1 / sqrt(hidden_size)``, as PyTorch begins.

    The numbers are those of ``numpy.random.default_rng(seed)``.
    """
    bound = params.hidden_size**-0.5
    drawn = np.random.default_rng(seed).uniform(-bound, bound, params.weight_size)
    return drawn.astype(as_dtype(dtype).np)


def _array(value: Any) -> Array:
    """A weight on the host. NumPy has no bf16 for PyTorch to convert to; f32 holds it exactly."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if "bfloat16" in str(value.dtype):
            value = value.float()
    return np.asarray(value)
