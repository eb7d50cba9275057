"""Checks of operands for norms, activations, losses and the other ops on whole arrays."""

from callboard.core.dtype import DTYPES, DType, dtypes_of
from callboard.core.operand import Operand
from callboard.kernel.checks import AnyOp, refuse

__all__ = [
    "FLOATS",
    "INDICES",
    "accumulator",
    "axis_of",
    "check_floats",
    "check_like",
    "check_number",
    "check_parameter",
    "check_parameters",
    "check_statistics",
]


FLOATS = dtypes_of("f16 bf16 f32 f64")
INDICES = dtypes_of("i32 i64")


def accumulator(dtype: DType) -> DType:
    """The dtype in which sums over arrays are accumulated, and their statistics are returned."""
    return dtype if dtype.name == "f64" else DTYPES["f32"]


def check_floats(op: AnyOp, name: str, operand: Operand) -> DType:
    """Return the dtype of an operand, which must be one of :data:`FLOATS`."""
    if operand.dtype not in FLOATS:
        raise refuse(op, f"{name} is {operand.layout!r}; its dtype must be f16, bf16, f32 or f64 (dev.array.cast)")
    return operand.dtype


def check_like(op: AnyOp, name: str, operand: Operand, other: str, model: Operand) -> None:
    """It must have the dtype and the shape of another operand."""
    if operand.dtype is not model.dtype or operand.shape != model.shape:
        raise refuse(op, f"{name} is {operand.layout!r}; it must have the dtype and shape of {other}, {model.layout!r}")


def check_parameter(op: AnyOp, name: str, operand: Operand | None, shape: tuple[int, ...], dtype: DType) -> None:
    """A scale or bias: of this shape, in the dtype of the array or in that of its statistics."""
    if operand is None:
        return
    accepted = dict.fromkeys((dtype, accumulator(dtype)))
    if operand.dtype not in accepted or operand.shape != shape:
        names = " or ".join(d.name for d in accepted)
        raise refuse(op, f"{name} is {operand.layout!r}; it must be {names} and have shape {shape}")


def check_parameters(
    op: AnyOp, scale: Operand | None, bias: Operand | None, shape: tuple[int, ...], dtype: DType
) -> None:
    """Scale and bias, which have one dtype."""
    check_parameter(op, "scale", scale, shape, dtype)
    check_parameter(op, "bias", bias, shape, dtype)
    if scale is not None and bias is not None and scale.dtype is not bias.dtype:
        raise refuse(op, f"bias is {bias.layout!r} and scale {scale.layout!r}; they must have one dtype")


def check_statistics(op: AnyOp, name: str, operand: Operand | None, shape: tuple[int, ...], dtype: DType) -> None:
    """Means or inverse deviations: of this shape, in the dtype of the sums over such arrays."""
    wide = accumulator(dtype)
    if operand is not None and (operand.dtype is not wide or operand.shape != shape):
        raise refuse(op, f"{name} is {operand.layout!r}; it must be {wide} and have shape {shape}")


def axis_of(op: AnyOp, name: str, operand: Operand, axis: int) -> int:
    """An axis of an operand, counted from the first."""
    if not -operand.ndim <= axis < operand.ndim:
        raise refuse(op, f"axis is {axis}; {name} is {operand.layout!r}, with {operand.ndim} axes")
    return axis % operand.ndim


def check_number(op: AnyOp, name: str, value: float, low: float, high: float = float("inf")) -> None:
    """A setting between two numbers, both included."""
    if not low <= value <= high:
        upto = "" if high == float("inf") else f" and <= {high:g}"
        raise refuse(op, f"{name} is {value!r}; it must be >= {low:g}{upto}")
