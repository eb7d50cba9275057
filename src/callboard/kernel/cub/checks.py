"""Operand checks of the parallel primitives, and the compute dtypes of their operators."""

from collections.abc import Mapping
from typing import Any, Literal

from callboard.core.dtype import DTYPES, DType, dtypes_of
from callboard.core.errors import ShapeError
from callboard.core.layout import BoundedExtent, Layout, layout_of
from callboard.core.op import Outputs
from callboard.core.operand import Operand
from callboard.kernel.checks import AnyOp, refuse

__all__ = [
    "ANY",
    "INDICES",
    "LONGEST",
    "NUMBERS",
    "ORDERED",
    "Comparison",
    "Operation",
    "check_dtype",
    "check_index",
    "check_line",
    "check_number",
    "check_texts",
    "compute_dtype",
    "found_of",
    "no_room",
    "rows_of",
]


NUMBERS = dtypes_of("f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64")
"""Dtypes that can be added."""
ORDERED = (*NUMBERS, DTYPES["bool"])
"""Dtypes that can be compared."""
ANY = tuple(dtype for dtype in DTYPES.values() if dtype.name != "f4_e2m1")
"""Dtypes that can be selected and moved."""
INDICES = dtypes_of("i32 i64")

LONGEST = 2**31 - 1
"""Elements of a row that CUB counts with 32 bits."""

Operation = Literal["sum", "product", "min", "max", "custom"]
Comparison = Literal["less", "less_equal", "equal", "not_equal", "greater", "greater_equal", "custom"]


def check_dtype(op: AnyOp, name: str, operand: Operand, accepted: tuple[DType, ...]) -> DType:
    """Return the dtype of an operand, which must be among ``accepted``."""
    if operand.dtype not in accepted:
        names = ", ".join(d.name for d in accepted)
        raise refuse(op, f"{name} is {operand.layout!r}; its dtype must be one of {names}")
    return operand.dtype


def check_line(op: AnyOp, name: str, operand: Operand, length: int | None = None) -> int:
    """The length of an array of one axis, which must be ``length`` if given."""
    if operand.ndim != 1:
        raise refuse(op, f"{name} is {operand.layout!r}; it must have one axis (ref.reshape(-1) gives it one)")
    if length is not None and operand.shape[0] != length:
        raise refuse(op, f"{name} is {operand.layout!r}; it must have {length} elements")
    return int(operand.shape[0])


def check_index(op: AnyOp, name: str, operand: Operand) -> int:
    """The length of a line of offsets or lengths."""
    check_dtype(op, name, operand, INDICES)
    return check_line(op, name, operand)


def rows_of(op: AnyOp, name: str, operand: Operand) -> tuple[tuple[int, ...], int]:
    """The other axes and the extent of the last one, along which an op works."""
    if operand.ndim == 0:
        raise refuse(op, f"{name} is {operand.layout!r}; it must have at least one axis")
    return tuple(operand.shape[:-1]), int(operand.shape[-1])


def compute_dtype(dtype: DType) -> DType:
    """The compute dtype of operators on elements of this dtype: f32 for halves, u8 for bool, else the same."""
    if dtype.kind == "bool":
        return DTYPES["u8"]
    return DTYPES["f32"] if dtype.is_float and dtype.itemsize < 4 else dtype


def check_number(op: AnyOp, name: str, value: Any, dtype: DType) -> None:
    """A number on the host, whole if the arrays are."""
    if isinstance(value, Operand):
        raise refuse(op, f"{name} is {value.layout!r}; pass a number")
    if isinstance(value, complex):
        raise refuse(op, f"{name} is complex and the arrays are {dtype}; pass a real number")
    if isinstance(value, float) and not dtype.is_float:
        raise refuse(op, f"{name} is a float and the arrays are {dtype}; pass an integer")


def check_texts(op: AnyOp, kind: str, cuda: str | None, python: str | None) -> None:
    """A custom operator has a body for at least one backend, the others have none."""
    given = cuda is not None or python is not None
    if kind == "custom" and not given:
        raise refuse(op, "a custom operator has no body; pass its C++ text as cuda, its Python text as python, or both")
    if kind != "custom" and given:
        raise refuse(op, f"cuda or python is given, and the operator is {kind!r}; leave them out or pass 'custom'")


def found_of(op: AnyOp, most: int, dtypes: Mapping[str, DType], count: Operand | None) -> Outputs:
    """Lines whose length depends on data: new ones, or given ones with room for some elements.

    Args:
        op: The message.
        most: Upper bound of the number of elements.
        dtypes: The dtype of each output, by name.
        count: The message's.
    """
    given = {name: getattr(op, name) for name in dtypes}
    missing = [name for name, out in {**given, "count": count}.items() if out is None]
    if missing and len(missing) <= len(dtypes):
        raise refuse(
            op, f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} None; "
            f"{', '.join(dtypes)} and count go together: arrays with room, and one for the number found",
        )  # fmt: skip
    extents: dict[str, int | BoundedExtent] = dict.fromkeys(dtypes, BoundedExtent(most))
    if not missing:
        for name, out in given.items():
            extents[name] = check_line(op, name, out)
        if len(set(extents.values())) > 1:
            shown = ", ".join(f"{name} is {out.layout!r}" for name, out in given.items())
            raise refuse(op, f"{shown}; they must have one length")
    made: dict[str, Layout] = {name: layout_of(dtype, (extents[name],)) for name, dtype in dtypes.items()}
    return made if missing else {**made, "count": layout_of(DTYPES["i64"], ())}


def no_room(tag: str, found: int, room: int) -> ShapeError:
    """More elements than the given arrays hold."""
    return ShapeError(f"{tag}: {found} elements, and out has room for {room}; give larger arrays")
