"""The memory of a torch tensor by its attributes, which takes less time than a capsule of DLPack."""

import functools
import sys
from typing import Any

import numpy as np

from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import Layout, layout_of
from callboard.device.protocol.residents.values import INLINE

__all__ = ["tensor_items", "tensor_memory"]

_NAMES = {name: held.np.name for name, held in DTYPES.items() if not name.startswith(("f8", "f4"))}
"""Torch attribute name of each dtype; torch uses the names of NumPy."""


def tensor_memory(array: Any, *, on_host: bool) -> tuple[int, Layout] | None:
    """Address of element 0 and layout of a tensor of torch.

    Args:
        array: Any object.
        on_host: The tensor is to be in host memory; else on a CUDA device.

    Returns:
        None for values that DLPack has to describe or reject: anything but a tensor, a tensor of a subclass or of
        another device, an empty one, and one that is sparse, conjugated, negated, or requires a gradient.
    """
    if not _is_plain(array, on_host):
        return None
    dtype = _dtypes().get(array.dtype)
    if dtype is None or not array.numel():
        return None
    return array.data_ptr(), layout_of(dtype, tuple(array.shape), array.stride())


def tensor_items(array: Any, ordinal: int | None) -> "np.ndarray[Any, Any] | None":
    """The items of a tensor as an array, where torch takes no longer to give them than a download takes.

    Those are tensors in host memory, whose memory this is, and on a GPU the small ones, which travel in the message: a
    copy of them here, after the work on torch's present stream.

    Args:
        array: Any object.
        ordinal: GPU that the tensor is to be on; None: it is to be in host memory.

    Returns:
        None for all other values, for dtypes that NumPy does not have, and for tensors that torch does not give.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or type(array) is not getattr(torch, "Tensor", None) or array.dtype not in _numpy_dtypes():
        return None
    if ordinal is None:
        if not array.is_cpu:
            return None
    elif array.get_device() != ordinal or array.layout is not torch.strided or array.nbytes > INLINE:
        return None
    else:
        array = array.cpu()
    try:
        items: np.ndarray[Any, Any] = array.numpy()
    except (RuntimeError, TypeError):  # it is sparse, conjugated or negated, or requires a gradient
        return None
    return items


def _is_plain(array: Any, on_host: bool) -> bool:
    torch: Any = sys.modules.get("torch")
    return not (
        torch is None
        or type(array) is not getattr(torch, "Tensor", None)
        or not (array.is_cpu if on_host else array.is_cuda)
        or array.requires_grad
        or array.layout is not torch.strided
        or array.is_conj()
        or array.is_neg()
    )


@functools.cache
def _dtypes() -> dict[Any, DType]:
    torch: Any = sys.modules["torch"]
    return {getattr(torch, name): DTYPES[ours] for ours, name in _NAMES.items() if hasattr(torch, name)}


@functools.cache
def _numpy_dtypes() -> frozenset[Any]:
    return frozenset(dtype for dtype, ours in _dtypes().items() if ours.np.isbuiltin == 1)
