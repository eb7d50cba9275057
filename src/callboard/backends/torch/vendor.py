"""PyTorch, imported when it is first used; its dtypes; and what each kind of device lacks."""

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any

from callboard.core.dtype import DTYPES, DType, dtypes_of
from callboard.core.errors import BackendUnavailable

__all__ = ["KINDS", "LACKS", "Tensor", "held_as", "required", "torch"]

Tensor = Any
"""A ``torch.Tensor``; PyTorch's types are not imported."""

KINDS: Mapping[str, str] = {
    "cpu": "the processor",
    "cuda": "NVIDIA GPUs by CUDA, AMD GPUs by ROCm",
    "mps": "Apple GPUs by Metal",
    "xpu": "Intel GPUs by SYCL",
}
"""The kinds of devices, as PyTorch calls them."""

LACKS: Mapping[str, frozenset[DType]] = {
    "cpu": frozenset(),
    "cuda": frozenset(),
    "mps": frozenset(dtypes_of("f64 c128 u16 u32 u64 f8_e4m3 f8_e5m2")),
    "xpu": frozenset(),
}
"""Dtypes that a kind of device does not have: an op with an array of such a dtype is refused there."""

_NAMES: Mapping[str, str] = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "bool": "bool",
    "f8_e4m3": "float8_e4m3fn",
    "f8_e5m2": "float8_e5m2",
    "f4_e2m1": "uint8",  # the codes: PyTorch has only pairs of such numbers
}
assert _NAMES.keys() == DTYPES.keys()


class _Torch:
    """The package, imported by the first attribute that is asked for: a backend is listed without it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module("torch"), name)


torch: Any = _Torch()


def required() -> None:
    """Refuse a machine without PyTorch.

    Raises:
        BackendUnavailable
    """
    if importlib.util.find_spec("torch") is None:
        raise BackendUnavailable("PyTorch is not installed; pip install 'callboard[torch]'")


def held_as(dtype: DType) -> Any:
    """PyTorch's dtype for arrays of this one."""
    return getattr(torch, _NAMES[dtype.name])
