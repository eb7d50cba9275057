"""The dtypes in which elements are held between steps.

Halves are held in f32. PyTorch has hardly a function of unsigned integers beyond u8: those of 16 and 32 bits are held
in the next wider signed type, those of 64 bits in the signed type of the same bits.
"""

from typing import Any

from callboard.backends.torch.conversion import converted, element
from callboard.backends.torch.vendor import Tensor, held_as, torch
from callboard.core.dtype import DTYPES, DType

__all__ = ["ORDER", "fitted", "held", "number", "rounded", "stored"]

_HELD = {"f16": "f32", "bf16": "f32", "u16": "i32", "u32": "i64", "u64": "i64"}
_MASKS = {"u16": 2**16 - 1, "u32": 2**32 - 1}
ORDER = -(2**63)
"""Added to a held u64, so that signed comparisons order it."""


def held(x: Tensor, dtype: DType) -> Tensor:
    """Elements of an array as they are held."""
    if dtype.name == "u64":
        return x.view(torch.int64)
    return x.to(held_as(DTYPES[_HELD[dtype.name]])) if dtype.name in _HELD else x


def number(value: Any, dtype: DType, where: Any) -> Tensor:
    """A number as it is held: rounded to its dtype first."""
    return held(element(value, dtype), dtype).to(where)


def stored(x: Tensor, dtype: DType) -> Tensor:
    """Held elements as an array has them."""
    return x.view(torch.uint64) if dtype.name == "u64" else x.to(held_as(dtype))


def rounded(x: Tensor, source: DType, dtype: DType) -> Tensor:
    """Held elements converted to another dtype."""
    return held(converted(stored(x, source), source, dtype), dtype)


def fitted(x: Tensor, dtype: DType) -> Tensor:
    """The result of an integer function as it is held: wrapped around."""
    mask = _MASKS.get(dtype.name)
    return x if mask is None else x & mask
