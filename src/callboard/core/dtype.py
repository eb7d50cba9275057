"""Element types, by the names every backend shares.

``f16 bf16 f32 f64 c64 c128 i8 i16 i32 i64 u8 u16 u32 u64 bool`` and the low-precision storage types ``f8_e4m3``,
``f8_e5m2`` and ``f4_e2m1``. The encodings of the types NumPy lacks are those of :mod:`ml_dtypes` (round to nearest,
ties to even).
"""

from functools import lru_cache
from typing import Any, Literal

import ml_dtypes
import numpy as np

__all__ = ["DTYPES", "DType", "DTypeLike", "as_dtype", "dtypes_of"]

Kind = Literal["float", "complex", "int", "uint", "bool"]


class DType:
    """An element type. One instance each; compare with ``is``, or with ``==`` to any name of it (``np.float32``).

    Attributes:
        name: The field's short name (``"f32"``, ``"bf16"`` …).
        code: Number of the dtype on the wire; never reused.
        np: The NumPy dtype of a host array that holds it.
        itemsize: Bytes of one element (``f4_e2m1`` keeps one value a byte).
        kind: ``"float"``, ``"complex"``, ``"int"``, ``"uint"`` or ``"bool"``.
    """

    __slots__ = ("code", "itemsize", "kind", "name", "np")

    def __init__(self, name: str, code: int, np_dtype: "np.dtype[Any]", kind: Kind) -> None:
        self.name = name
        self.code = code
        self.np = np_dtype
        self.itemsize: int = np_dtype.itemsize
        self.kind: Kind = kind

    @property
    def is_float(self) -> bool:
        """Real floating point, low precision included."""
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        return self.kind == "complex"

    @property
    def is_integer(self) -> bool:
        """Signed or unsigned integer; ``bool`` is not one."""
        return self.kind in ("int", "uint")

    @property
    def is_signed(self) -> bool:
        return self.kind in ("float", "complex", "int")

    @property
    def real(self) -> "DType":
        """``f32`` for ``c64``, ``f64`` for ``c128``, else itself."""
        return {"c64": DTYPES["f32"], "c128": DTYPES["f64"]}.get(self.name, self)

    @property
    def type(self) -> Any:
        """NumPy's class of single elements, as ``numpy.dtype.type``."""
        return self.np.type

    def __eq__(self, other: object) -> bool:
        if self is other or type(other) is DType:
            return self is other
        try:
            return _lookup(other) is self
        except Exception:  # an object that cannot be hashed or compared names no dtype
            return False

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return as_dtype, (self.name,)


DTypeLike = DType | str | type | np.dtype[Any]
"""Everything that names a dtype: a :class:`DType`, a name of callboard's or of NumPy's, ``np.float32``,
``ml_dtypes.bfloat16``, ``np.dtype("f4")``, ``float``. See :func:`as_dtype`."""

_TABLE: tuple[tuple[str, Any, Kind], ...] = (
    ("f16", np.float16, "float"),
    ("bf16", ml_dtypes.bfloat16, "float"),
    ("f32", np.float32, "float"),
    ("f64", np.float64, "float"),
    ("c64", np.complex64, "complex"),
    ("c128", np.complex128, "complex"),
    ("i8", np.int8, "int"),
    ("i16", np.int16, "int"),
    ("i32", np.int32, "int"),
    ("i64", np.int64, "int"),
    ("u8", np.uint8, "uint"),
    ("u16", np.uint16, "uint"),
    ("u32", np.uint32, "uint"),
    ("u64", np.uint64, "uint"),
    ("bool", np.bool_, "bool"),
    ("f8_e4m3", ml_dtypes.float8_e4m3fn, "float"),
    ("f8_e5m2", ml_dtypes.float8_e5m2, "float"),
    ("f4_e2m1", ml_dtypes.float4_e2m1fn, "float"),
)

DTYPES: dict[str, DType] = {
    name: DType(name, code, np.dtype(np_type), kind) for code, (name, np_type, kind) in enumerate(_TABLE)
}
"""Every dtype by name; the position is the wire code."""

BY_CODE: tuple[DType, ...] = tuple(DTYPES.values())
_BY_NUMPY: dict[Any, DType] = {d.np: d for d in BY_CODE}


@lru_cache(maxsize=512)
def _lookup(x: Any) -> DType:
    if isinstance(x, str) and x in DTYPES:
        return DTYPES[x]
    if not isinstance(x, str | type | np.dtype):
        raise TypeError  # None is NumPy's word for f64, and whatever has a dtype names one
    try:
        return _BY_NUMPY[np.dtype(x).newbyteorder("=")]
    except Exception:  # of NumPy's parser, which raises SyntaxError and others for some texts
        raise TypeError from None


def dtypes_of(names: str) -> tuple[DType, ...]:
    """The dtypes with these names, separated by blanks."""
    return tuple(DTYPES[name] for name in names.split())


def as_dtype(x: DTypeLike, name: str = "dtype") -> DType:
    """The :class:`DType` that ``x`` names: itself, a name, a NumPy or ml_dtypes type.

    Short names win over NumPy's codes of the same spelling (``"f4"`` and ``"f8"`` are NumPy's f32 and f64).

    Args:
        x: See :data:`DTypeLike`.
        name: The name of the argument, for the error.

    Raises:
        TypeError: ``x`` names no supported type (``object``, strings, ``longdouble`` …).
    """
    if type(x) is DType:
        return x
    try:
        return _lookup(x)
    except TypeError:
        raise TypeError(f"{name} {x!r} is not supported; use one of {', '.join(DTYPES)}") from None
