"""Arguments of a generated kernel: fields in C and, at the same offsets, in ctypes."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from callboard.backends.cuda.elementwise.text import HELD
from callboard.core.dtype import DType

__all__ = ["Divider", "Field", "arguments_class", "arguments_text", "number_fields", "put_number"]

Field = tuple[str, str]
"""Name and type; ``"divider"``, ``"index"`` and ``"step"`` beside the types of C."""


class Divider(ctypes.Structure):
    """``Divider`` of the kernels."""

    _fields_ = (("divisor", ctypes.c_uint32), ("factor", ctypes.c_uint32), ("shift", ctypes.c_uint32))


class ComplexFloat(ctypes.Structure):
    """``Complex<float>``."""

    _fields_ = (("re", ctypes.c_float), ("im", ctypes.c_float))


class ComplexDouble(ctypes.Structure):
    """``Complex<double>``."""

    _fields_ = (("re", ctypes.c_double), ("im", ctypes.c_double))


_TYPES: dict[str, Any] = {
    "void*": ctypes.c_uint64,
    "u8": ctypes.c_uint8,
    "i8": ctypes.c_int8,
    "i16": ctypes.c_int16,
    "u16": ctypes.c_uint16,
    "i32": ctypes.c_int32,
    "u32": ctypes.c_uint32,
    "i64": ctypes.c_int64,
    "u64": ctypes.c_uint64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "Complex<float>": ComplexFloat,
    "Complex<double>": ComplexDouble,
    "Divider": Divider,
}


def number_fields(dtypes: Sequence[DType], prefix: str = "n") -> list[Field]:
    """Fields for the numbers of a call, which a program calls ``p.n0`` and so on."""
    return [(f"{prefix}{i}", "u8" if dtype.kind == "bool" else HELD[dtype.name]) for i, dtype in enumerate(dtypes)]


def arguments_text(fields: Sequence[Field]) -> str:
    """The structure in C."""
    return "\n".join(["struct Args {", *(f"    {kind} {name};" for name, kind in fields), "};"])


def arguments_class(fields: Sequence[Field]) -> type[ctypes.Structure]:
    """The structure in ctypes."""
    return type("Args", (ctypes.Structure,), {"_fields_": tuple((name, _TYPES[kind]) for name, kind in fields)})


def put_number(name: str, dtype: DType) -> Callable[[Any, Any], None]:
    """A function that puts a number of this dtype into the field of a structure."""
    exact = dtype.np.type
    if dtype.is_complex:

        def put_complex(args: Any, value: Any) -> None:
            cell = getattr(args, name)
            cell.re, cell.im = value.real, value.imag

        return put_complex
    if dtype.name in ("f16", "bf16"):
        return lambda args, value: setattr(args, name, float(exact(value)))
    return lambda args, value: setattr(args, name, value)
