"""``Value``: a tensor on its way from stage to stage."""

from typing import Any

import msgspec

from callboard.train.batches import copied
from callboard.train.states import PLAIN

__all__ = ["Value", "arrived", "of_batch", "on_its_way"]


class Value(msgspec.Struct, frozen=True):
    """What travels between stages.

    Attributes:
        array: A ref, an array of a batch, or the value itself if it is no tensor.
        dtype: As torch names it; empty: no tensor.
        shape: Of the tensor; arrays of dtypes that NumPy does not have travel as bytes.
        needs_gradient: The stage that gave it waits for its gradient.
        cast: For an array of the host: the dtype to convert it to.
    """

    array: Any
    dtype: str = ""
    shape: tuple[int, ...] = ()
    needs_gradient: bool = False
    cast: str = ""


def of_batch(array: Any, weights: str) -> Value:
    """An array of a batch; floating-point numbers get the dtype of the weights."""
    dtype = weights if array.dtype.kind == "f" else array.dtype.name
    return Value(array, dtype, array.shape, cast=dtype)


def on_its_way(value: Any, ctx: Any, given: set[int], *, in_host_memory: bool) -> Value:
    """What a stage gave, for other devices.

    Args:
        value: A tensor, a number, a text, None, or numbers in a tuple.
        ctx: The device's context.
        given: Addresses of the memory that belongs to the application; a tensor there is copied.
        in_host_memory: As an array in the answer of the call, which costs no further message, but two copies.
    """
    import torch

    if not isinstance(value, torch.Tensor):
        return Value(value)
    bits, dtype = value.detach().contiguous(), str(value.dtype).removeprefix("torch.")
    if not in_host_memory and bits.untyped_storage().data_ptr() in given:
        bits = bits.clone()
    sent = dtype
    if dtype not in PLAIN:
        bits, sent = bits.reshape(-1).view(torch.uint8), "uint8"
    if in_host_memory:
        return Value(ctx.host(bits), dtype, tuple(value.shape), value.requires_grad, cast=sent)
    return Value(ctx.ref(bits), dtype, tuple(value.shape), value.requires_grad)


def arrived(value: Value, device: Any) -> Any:
    """The tensor. That of a ref is the same memory, valid as long as the application keeps it."""
    import torch

    if not value.dtype:
        return value.array
    array = value.array
    if value.cast:
        tensor = copied(array, device, getattr(torch, value.cast))
    else:
        tensor = torch.as_tensor(array, device=device)
    dtype = getattr(torch, value.dtype)
    return tensor if tensor.dtype == dtype else tensor.view(dtype).reshape(value.shape)
