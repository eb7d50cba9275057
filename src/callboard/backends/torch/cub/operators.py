"""Operators of reductions and scans along the last axis, of numbers as they are held (u64 by its bits)."""

import math
from typing import Any

from callboard.backends.torch.conversion import converted
from callboard.backends.torch.elementwise.holding import ORDER, held, stored
from callboard.backends.torch.vendor import Tensor, torch
from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import ShapeError
from callboard.kernel.cub.checks import compute_dtype

__all__ = ["Operator", "custom", "segments", "signed"]


def custom(op: Any) -> str | None:
    """Say why an operator of the caller's is refused."""
    if op.cuda is None and op.python is None:
        return None
    return "cuda and python are texts in CUDA C++ and NumPy, and PyTorch takes neither; use an operation by name"


def signed(x: Tensor, dtype: DType) -> Tensor:
    """Keys of a type that PyTorch compares, in the same order."""
    if dtype.name == "u64":
        return held(x, dtype) + ORDER
    return held(x, dtype) if dtype.name in ("u16", "u32") else x.to(torch.uint8) if dtype.kind == "bool" else x


def segments(op: Any, offsets: Tensor, n: int, whole: bool = False) -> Tensor:
    """Offsets that are in order and in range; ``whole``: from 0 to n.

    Raises:
        ShapeError: They are not.
    """
    offsets = offsets.to(torch.int64)
    wrong = int((offsets[1:] < offsets[:-1]).sum())
    out = int(((offsets < 0) | (offsets > n)).sum())
    ends = whole and (int(offsets[0]) != 0 or int(offsets[-1]) != n)
    if wrong or out or ends:
        what = f"fall {wrong} times" if wrong else f"leave [0, {n}] {out} times" if out else f"are not from 0 to {n}"
        raise ShapeError(f"{type(op).__struct_config__.tag}: offsets {what}")
    return offsets


class Operator:
    """A named operation on numbers of one dtype.

    Args:
        operation: ``"sum"``, ``"product"``, ``"min"`` or ``"max"``.
        source: The dtype of the elements.
        result: That of the result.
    """

    def __init__(self, operation: str, source: DType, result: DType) -> None:
        self.operation = operation
        self.source = source
        self.result = result
        self.dtype = compute_dtype(result)
        self._order = ORDER if self.dtype.name == "u64" and operation in ("min", "max") else 0

    def taken(self, x: Tensor) -> Tensor:
        """Elements as they are combined."""
        return held(converted(x, self.source, self.dtype), self.dtype) + self._order

    def given(self, x: Tensor) -> Tensor:
        """Combined elements as the result has them."""
        x = x - self._order
        return converted(stored(self._wrapped(x), self.dtype), self.dtype, self.result)

    def _wrapped(self, x: Tensor) -> Tensor:
        masks = {"u16": 2**16 - 1, "u32": 2**32 - 1}
        return x & masks[self.dtype.name] if self.dtype.name in masks else x

    def start(self, init: Any, like: Tensor) -> Tensor:
        """The number that results begin with: the given one, or the operation's own."""
        if init is None:
            init = self._identity()
        elif self.dtype.is_integer:
            bits = self.dtype.itemsize * 8
            low = -(2 ** (bits - 1)) if self.dtype.kind == "int" else 0
            init = (int(init) - low) % 2**bits + low
        if self.dtype.name == "u64":
            init = (init + 2**63) % 2**64 - 2**63
            if self._order:
                init = (init + ORDER + 2**63) % 2**64 - 2**63
        return torch.tensor(init, dtype=like.dtype, device=like.device)

    def _identity(self) -> Any:
        if self.operation in ("sum", "product"):
            return int(self.operation == "product")
        least = self.operation == "max"
        if self.dtype.is_float:
            return -math.inf if least else math.inf
        bits = self.dtype.itemsize * 8 - (self.dtype.kind == "int")
        return (-(2**bits) if self.dtype.kind == "int" else 0) if least else 2**bits - 1

    def join(self, a: Tensor, b: Tensor) -> Tensor:
        """Two elements combined."""
        if self.operation == "sum":
            return a + b
        if self.operation == "product":
            return a * b
        return torch.minimum(a, b) if self.operation == "min" else torch.maximum(a, b)

    def reduced(self, x: Tensor) -> Tensor:
        """All elements of each row combined; of at least one."""
        if self.operation in ("sum", "product"):
            return getattr(torch, {"sum": "sum", "product": "prod"}[self.operation])(x, -1, dtype=x.dtype)
        return x.amin(-1) if self.operation == "min" else x.amax(-1)

    def scanned(self, x: Tensor) -> Tensor:
        """Running results of each row."""
        if self.operation in ("sum", "product"):
            return getattr(torch, {"sum": "cumsum", "product": "cumprod"}[self.operation])(x, -1, dtype=x.dtype)
        return (torch.cummin if self.operation == "min" else torch.cummax)(x, -1).values


def numbers(dtype: DType) -> DType:
    """The dtype in which samples are compared with levels."""
    return DTYPES["f32"] if dtype.is_float and dtype.itemsize == 2 else dtype
