"""The memory of a torch tensor by its attributes, which takes less time than a capsule of DLPack."""

import functools
import sys
from typing import Any

from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import Layout, layout_of

__all__ = ["tensor_memory"]

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
    torch: Any = sys.modules.get("torch")
    if (
        torch is None
        or type(array) is not getattr(torch, "Tensor", None)
        or not (array.is_cpu if on_host else array.is_cuda)
        or array.requires_grad
        or array.layout is not torch.strided
        or array.is_conj()
        or array.is_neg()
    ):
        return None
    dtype = _dtypes().get(array.dtype)
    if dtype is None or not array.numel():
        return None
    return array.data_ptr(), layout_of(dtype, tuple(array.shape), array.stride())


@functools.cache
def _dtypes() -> dict[Any, DType]:
    torch: Any = sys.modules["torch"]
    return {getattr(torch, name): DTYPES[ours] for ours, name in _NAMES.items() if hasattr(torch, name)}
