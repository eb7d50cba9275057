"""``State``: the weights of a trainer and all that a step depends on, in a form that travels between devices."""

import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from callboard.core.errors import ContextLost

__all__ = ["Kept", "State", "check_alike", "merged", "pack", "pack_host", "unpack"]

PLAIN = "float32", "float64", "float16", "int32", "int64", "uint8"
"""Dtypes that NumPy has, too; arrays of others travel as bytes."""

SMALL = 1024
"""Elements up to which a tensor travels inside the structure, not as an array of its own."""


class State(msgspec.Struct, frozen=True):
    """What a replica is at the end of a step.

    Attributes:
        step: Steps done.
        updates: Steps done that were not skipped.
        structure: The model's and the optimizer's ``state_dict``, with numbers in place of the arrays; pickled, and
            read by replicas only.
        arrays: Refs, or arrays of the host.
        dtypes: The arrays' dtypes, as torch names them.
    """

    step: int
    updates: int
    structure: bytes
    arrays: list[Any]
    dtypes: list[str]

    def at(self, step: int) -> "State":
        """The same weights, as those after another step."""
        return msgspec.structs.replace(self, step=step)


class Kept(NamedTuple):
    """A state as those who train have it, for their own use.

    Attributes:
        parts: Of one step; together the whole.
        cut: What the parts are, as those who made them know it; None: there is one, the whole.
    """

    parts: Sequence[State]
    cut: Any = None

    @property
    def step(self) -> int:
        """Steps done."""
        return self.parts[0].step

    @property
    def updates(self) -> int:
        """Steps done that were not skipped."""
        return self.parts[0].updates

    @property
    def nbytes(self) -> int:
        """Of all arrays."""
        return sum(array.nbytes for part in self.parts for array in part.arrays)

    def at(self, step: int) -> "Kept":
        """The same weights, as those after another step."""
        return Kept([part.at(step) for part in self.parts], self.cut)


def check_alike(states: Iterable[State]) -> None:
    """Check that parts of a state are of one step.

    Raises:
        ContextLost: They are not: a device was lost, and its new instance has no weights yet.
    """
    if len({state.step for state in states}) > 1:
        raise ContextLost("a device was lost while the state was being read")


class _Array(NamedTuple):
    at: int


def pack(own: Any, step: int, updates: int, share: Callable[[Any], Any], device: Any) -> State:
    """A state of nested dicts and lists of tensors.

    Args:
        own: The structure.
        step, updates: See :class:`State`.
        share: What turns a tensor of the device into an array that travels.
        device: The tensors' device; others travel inside the structure.
    """
    import torch

    arrays: list[Any] = []
    dtypes: list[str] = []

    def packed(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return travelling(value)
        if isinstance(value, dict):
            return {key: packed(item) for key, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(packed(item) for item in value)
        return value

    def travelling(tensor: Any) -> Any:
        if tensor.device.type != device.type or tensor.numel() <= SMALL:
            return tensor.detach().cpu().clone()
        bits = tensor.detach().contiguous()
        dtypes.append(str(tensor.dtype).removeprefix("torch."))
        arrays.append(share(bits if dtypes[-1] in PLAIN else bits.view(torch.uint8)))
        return _Array(len(arrays) - 1)

    structure = pickle.dumps(packed(own))
    return State(step, updates, structure, arrays, dtypes)


def pack_host(own: Any, step: int, updates: int) -> State:
    """A state of tensors of the host; see :func:`pack`."""
    import torch

    return pack(own, step, updates, lambda tensor: tensor.numpy(), torch.device("cpu"))


def unpack(state: State) -> Any:
    """The structure, with tensors of its own in place of the arrays."""
    import torch

    tensors = [
        torch.as_tensor(array).view(getattr(torch, dtype)).clone()
        for array, dtype in zip(state.arrays, state.dtypes, strict=True)
    ]

    return _mapped(pickle.loads(state.structure), tensors.__getitem__)


def merged(parts: Sequence[State]) -> State:
    """The state of a model whose parameters have their optimizer's state in different parts.

    Args:
        parts: Of one step; the first one has the weights.
    """
    owns = []
    arrays: list[Any] = []
    dtypes: list[str] = []
    for part in parts:
        numbers = [_Array(at) for at in range(len(arrays), len(arrays) + len(part.arrays))]
        owns.append(_mapped(pickle.loads(part.structure), numbers.__getitem__))
        arrays += part.arrays
        dtypes += part.dtypes
    model, optimizer, rates = owns[0]
    state = dict(sorted(item for _, each, _ in owns for item in each["state"].items()))
    structure = pickle.dumps((model, {**optimizer, "state": state}, rates))
    return State(parts[0].step, parts[0].updates, structure, arrays, dtypes)


def _mapped(value: Any, of_array: Callable[[int], Any]) -> Any:
    """The structure, with something in place of the numbers of the arrays."""
    if isinstance(value, _Array):
        return of_array(value.at)
    if isinstance(value, dict):
        return {key: _mapped(item, of_array) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_mapped(item, of_array) for item in value)
    return value
