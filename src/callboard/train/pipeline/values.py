"""``Value``: a tensor on its way from stage to stage."""

from typing import Any

import msgspec

from callboard.train.states import PLAIN

__all__ = ["Value", "arrived", "of_batch", "on_its_way"]


class Value(msgspec.Struct, frozen=True):
    """What travels between stages.

    Attributes:
        array: A ref, an array of a batch, or the value itself if it is no tensor.
        dtype: As torch names it; empty: no tensor.
        shape: Of the tensor; arrays of dtypes that NumPy does not have travel as bytes.
        needs_gradient: The stage that gave it waits for its gradient.
        cast: For an array of a batch: the dtype to convert it to.
    """

    array: Any
    dtype: str = ""
    shape: tuple[int, ...] = ()
    needs_gradient: bool = False
    cast: str = ""


def of_batch(array: Any, weights: str) -> Value:
    """An array of a batch; floating-point numbers get the dtype of the weights."""
    return Value(array, array.dtype.name, array.shape, cast=weights if array.dtype.kind == "f" else array.dtype.name)


def on_its_way(value: Any, ctx: Any, given: set[int]) -> Value:
    """What a stage gave, for other devices.

    Args:
        value: A tensor, a number, a text, None, or numbers in a tuple.
        ctx: The device's context.
        given: Addresses of the memory that belongs to the application; a tensor there is copied.
    """
    import torch

    if not isinstance(value, torch.Tensor):
        return Value(value)
    bits, dtype = value.detach().contiguous(), str(value.dtype).removeprefix("torch.")
    if bits.untyped_storage().data_ptr() in given:
        bits = bits.clone()
    if dtype not in PLAIN:
        bits = bits.reshape(-1).view(torch.uint8)
    return Value(ctx.ref(bits), dtype, tuple(value.shape), value.requires_grad)


def arrived(value: Value, device: Any) -> Any:
    """The tensor; it is the memory that the ref has, valid as long as the application keeps that."""
    import torch

    if not value.dtype:
        return value.array
    array = value.array
    if value.cast:  # valid until the call returns; and torch's own memory, as some products round by its alignment
        given = torch.from_numpy(array if array.flags.writeable else array.copy())
        return given.to(device, getattr(torch, value.cast), copy=True)
    tensor = torch.as_tensor(array, device=device)
    dtype = getattr(torch, value.dtype)
    return tensor if tensor.dtype == dtype else tensor.view(dtype).reshape(value.shape)
