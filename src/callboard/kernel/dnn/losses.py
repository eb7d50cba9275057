"""Losses: cross-entropy and mean squared error, and their gradients.

Sums are accumulated in f32, in f64 for f64, in an order that follows from the shapes alone: equal calls give equal
bits.
"""

from typing import Any, ClassVar, Generic, Literal, NamedTuple

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.mode import Mode
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Operand, Out
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.dnn.actor import CudnnActor
from callboard.kernel.dnn.operands import (
    FLOATS,
    INDICES,
    accumulator,
    axis_of,
    check_floats,
    check_like,
    check_number,
    check_parameter,
    check_statistics,
)

__all__ = ["CrossEntropy", "CrossEntropyBackward", "CrossEntropyLoss", "Mse", "MseBackward", "Reduction", "wrong_class"]

Reduction = Literal["mean", "sum", "none"]


class CrossEntropyLoss(NamedTuple, Generic[Mode]):
    """A loss, and the data for its gradient.

    Attributes:
        loss: 0-d, or one for each item with reduction ``"none"``; dtype of the logits.
        log_sum: ``log(sum(exp(x)))`` of each item, f32 (f64 for f64).
    """

    loss: GpuRef[Mode]
    log_sum: GpuRef[Mode]


def items_of(op: Any) -> tuple[int, tuple[int, ...]]:
    """The axis of the classes, and the shape of the items."""
    axis = axis_of(op, "x", op.x, op.axis)
    return axis, (*op.x.shape[:axis], *op.x.shape[axis + 1 :])


def check_target(op: Any) -> bool:
    """Checks logits, target and weight; whether the target has probabilities."""
    dtype = check_floats(op, "x", op.x)
    axis, items = items_of(op)
    classes = op.x.shape[axis]
    target: Operand = op.target
    soft = target.dtype not in INDICES
    if soft:
        if target.dtype is not dtype or target.shape != op.x.shape:
            raise refuse(
                op,
                f"target is {target.layout!r}; it must hold classes, i32 or i64 of shape {items}, or probabilities, "
                f"{op.x.layout!r} as x",
            )
    elif target.shape != items:
        raise refuse(op, f"target is {target.layout!r}; classes must have the shape of the items, {items}")
    if not classes and op.x.ndim and len(items) and 0 not in items:
        raise refuse(op, f"x is {op.x.layout!r}: there is no class along axis {axis}")
    check_parameter(op, "weight", op.weight, (classes,), dtype)
    check_number(op, "label_smoothing", op.label_smoothing, 0, 1)
    return soft


class CrossEntropy(Op[CudnnActor, CrossEntropyLoss], tag="dnn.cross_entropy"):
    """``-log(softmax(x)[target])`` of each item, with weights and smoothed labels, reduced.

    With label smoothing ε an item's loss is ``(1 - ε)`` times that of its target, plus ε times the mean over all
    classes (each with its weight). The mean of classes divides by the sum of the weights of the items' classes, that of
    probabilities by the number of items; of no item, or if all are ignored, it is NaN.

    Args:
        x: Logits, f16, bf16, f32 or f64, any strides; the classes are along ``axis``.
        target: Classes of the items, i32 or i64, shape of ``x`` without ``axis``; or probabilities, as ``x``. A class
            out of range fails the op with ``ShapeError`` when it is executed.
        weight: ``[classes]``, dtype of ``x`` or f32; 1 when None.
        axis: The class axis; 0 for a single item.
        reduction: ``"mean"``, ``"sum"``, or ``"none"``: a loss for each item.
        ignore_index: Items of this class count for nothing; of no meaning for probabilities.
        label_smoothing: ε, from 0 to 1.
        loss: A new array when None.
        log_sum: Log-sum-exps that the gradient needs, f32 (f64 for f64), shape of the items; a new array when None.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("loss", "log_sum")
    results: ClassVar[type[CrossEntropyLoss]] = CrossEntropyLoss

    x: In
    target: In
    weight: In | None = None
    axis: int = 1
    reduction: Reduction = "mean"
    ignore_index: int = -100
    label_smoothing: float = 0.0
    loss: Out | None = None
    log_sum: Out | None = None

    def infer(self) -> Outputs:
        check_target(self)
        _, items = items_of(self)
        return {
            "loss": layout_of(self.x.dtype, items if self.reduction == "none" else ()),
            "log_sum": layout_of(accumulator(self.x.dtype), items),
        }


class CrossEntropyBackward(Op[CudnnActor, GpuRef], tag="dnn.cross_entropy_backward"):
    """The gradient of :class:`CrossEntropy` by the logits.

    Args:
        dloss: The gradient by the loss: 0-d, or of the items' shape with reduction ``"none"``; dtype of ``x``.
        x, target, weight: The same as forward.
        log_sum: ``log_sum`` of :class:`CrossEntropy`.
        axis, reduction, ignore_index, label_smoothing: The same as forward.
        dx: Shape and dtype of ``x``; a new row-major array when None. May be ``x``.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("dx",)
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("dx", "x")})

    dloss: In
    x: In
    target: In
    log_sum: In
    weight: In | None = None
    axis: int = 1
    reduction: Reduction = "mean"
    ignore_index: int = -100
    label_smoothing: float = 0.0
    dx: Out | None = None

    def infer(self) -> Outputs:
        check_target(self)
        _, items = items_of(self)
        check_loss(self, self.x.dtype, items)
        check_statistics(self, "log_sum", self.log_sum, items, self.x.dtype)
        return {"dx": layout_of(self.x.dtype, self.x.shape)}


def check_loss(op: Any, dtype: DType, items: tuple[int, ...]) -> None:
    """The gradient by a loss has its shape."""
    wanted = layout_of(dtype, items if op.reduction == "none" else ())
    if op.dloss.dtype is not dtype or op.dloss.shape != wanted.shape:
        raise refuse(op, f"dloss is {op.dloss.layout!r}; with reduction {op.reduction!r} it must be {wanted!r}")


class Mse(Op[CudnnActor, GpuRef], tag="dnn.mse"):
    """``(x - target)²`` of each element, reduced; the mean of no elements is NaN.

    Args:
        x: f16, bf16, f32 or f64, any strides.
        target: Dtype and shape of ``x``, any strides.
        reduction: ``"mean"``, ``"sum"``, or ``"none"``: a loss for each element.
        loss: 0-d, or as ``x``; dtype of ``x``; a new array when None.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("loss",)

    x: In
    target: In
    reduction: Reduction = "mean"
    loss: Out | None = None

    def infer(self) -> Outputs:
        dtype = check_floats(self, "x", self.x)
        check_like(self, "target", self.target, "x", self.x)
        return {"loss": layout_of(dtype, self.x.shape if self.reduction == "none" else ())}


class MseBackward(Op[CudnnActor, GpuRef], tag="dnn.mse_backward"):
    """The gradient of :class:`Mse` by ``x``; that by the target is its negative.

    Args:
        dloss: The gradient by the loss: 0-d, or as ``x`` with reduction ``"none"``; dtype of ``x``.
        x, target, reduction: The same as forward.
        dx: Shape and dtype of ``x``; a new row-major array when None. May be ``x`` or ``target``.
    """

    dtypes: ClassVar[tuple[DType, ...] | None] = FLOATS
    returns: ClassVar[tuple[str, ...]] = ("dx",)
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("dx", "x"), ("dx", "target")})

    dloss: In
    x: In
    target: In
    reduction: Reduction = "mean"
    dx: Out | None = None

    def infer(self) -> Outputs:
        dtype = check_floats(self, "x", self.x)
        check_like(self, "target", self.target, "x", self.x)
        check_loss(self, dtype, self.x.shape)
        return {"dx": layout_of(dtype, self.x.shape)}


def wrong_class(tag: str, value: int, wrong: int, count: int, classes: int) -> str:
    """The error text for a target with classes out of range."""
    return (
        f"{tag}: target holds {value}; there are classes 0 to {classes - 1} ({wrong} of {count} are out of range; "
        f"ignore_index leaves items out)"
    )
