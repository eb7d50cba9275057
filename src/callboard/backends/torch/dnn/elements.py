"""Plans of activations, softmax, dropout, losses, and of what looks rows up."""

import math
from typing import Any

from callboard.backends.torch.blas.forms import wide
from callboard.backends.torch.dnn.support import accumulating, checked
from callboard.backends.torch.elementwise.machine import Machine
from callboard.backends.torch.library import Plan, TorchLibrary
from callboard.backends.torch.rng.words import words
from callboard.backends.torch.vendor import Tensor, torch
from callboard.core.library import plans
from callboard.kernel import dnn
from callboard.kernel.dnn.activations import numbers_of, program_of
from callboard.kernel.dnn.dropout import threshold_of
from callboard.kernel.dnn.embedding import wrong_rows
from callboard.kernel.dnn.losses import wrong_class
from callboard.kernel.dnn.operands import INDICES
from callboard.kernel.dnn.rope import check_rope

__all__ = [
    "activation",
    "cross_entropy",
    "cross_entropy_backward",
    "dropped",
    "embedded",
    "mse",
    "softmax",
    "top",
    "turn",
]


@plans(dnn.Activation, dnn.ActivationBackward)
def activation(library: TorchLibrary, op: Any) -> Plan:
    """Return an activation, or its gradient, by its expression."""
    program = program_of(op.kind, op.x.dtype, backward=isinstance(op, dnn.ActivationBackward))
    machine, numbers = Machine(program, library.where), numbers_of(op.kind, op.parameter) or ()
    return library.planned(op, accumulating(op, lambda *given: machine.stored(given, numbers)[0]))


@plans(dnn.LogSoftmax, dnn.LogSoftmaxBackward, dnn.Softmax, dnn.SoftmaxBackward)
def softmax(library: TorchLibrary, op: Any) -> Plan:
    """Return softmax or its logarithm, or a gradient of one."""
    axis, log = op.axis, isinstance(op, dnn.LogSoftmax | dnn.LogSoftmaxBackward)

    def work(*given: Tensor) -> Tensor:
        if len(given) == 1:
            return (torch.log_softmax if log else torch.softmax)(wide(given[0]), axis)
        dy, y = map(wide, given)
        if log:
            return dy - torch.exp(y) * dy.sum(axis, keepdim=True)
        return y * (dy - (dy * y).sum(axis, keepdim=True))

    return library.planned(op, accumulating(op, work))


@plans(dnn.Dropout, dnn.DropoutBackward, dnn.DropoutMask)
def dropped(library: TorchLibrary, op: Any) -> Plan:
    """Return an array without some of its elements, or which of them stay."""

    def work(*given: Any) -> Tensor:
        *arrays, probability, seed, offset = given
        shape = arrays[0].shape if arrays else op.shape
        drawn = words("philox", seed % 2**64, offset % 2**64, math.prod(shape), library.where)
        stays = (drawn >= threshold_of(probability)).reshape(shape)
        if not arrays:
            return stays
        return torch.where(stays, wide(arrays[0]) * (0 if probability >= 1 else 1 / (1 - probability)), 0)

    return library.planned(op, work)


@plans(dnn.Embedding, dnn.EmbeddingBackward)
def embedded(library: TorchLibrary, op: Any) -> Plan:
    """Return rows of a table, or its gradient."""

    def rows_of(indices: Tensor, rows: int, tag: str) -> Tensor:
        return checked(indices, rows, lambda value, wrong, count: wrong_rows(tag, "indices", value, wrong, count, rows))

    def work(table: Tensor, indices: Tensor) -> Tensor:
        return table[rows_of(indices, op.table.shape[0], "dnn.embedding")]

    def backward(dy: Tensor, indices: Tensor) -> Tensor:
        at = rows_of(indices, op.rows, "dnn.embedding_backward").reshape(-1)
        given = wide(dy).reshape(at.shape[0], dy.shape[-1])
        found = given.new_zeros(op.rows, dy.shape[-1]).index_add_(0, at, given)
        if op.by_frequency:
            found = found / torch.bincount(at, minlength=op.rows).clamp(min=1)[:, None]
        if op.padding is not None:
            found[op.padding] = 0
        return found

    return library.planned(op, work if isinstance(op, dnn.Embedding) else backward)


@plans(dnn.TopK, dnn.TopKBackward)
def top(library: TorchLibrary, op: Any) -> Plan:
    """Return the largest elements along an axis, or their gradient."""

    def work(x: Tensor) -> tuple[Tensor, Tensor]:
        order = torch.argsort(wide(x), dim=op.axis, descending=op.largest, stable=True).narrow(op.axis, 0, op.k)
        return torch.take_along_dim(x, order, op.axis), order

    def backward(dvalues: Tensor, indices: Tensor) -> Tensor:
        at = checked(indices, op.extent, lambda value, wrong, count: wrong_rows(
            "dnn.top_k_backward", "indices", value, wrong, count, op.extent
        ))  # fmt: skip
        return dvalues.new_zeros(op.infer()["dx"].shape).scatter_(op.axis, at, dvalues)

    return library.planned(op, work if isinstance(op, dnn.TopK) else backward)


@plans(dnn.Rope, dnn.RopeBackward)
def turn(library: TorchLibrary, op: Any) -> Plan:
    """Return pairs that are turned, or turned back."""
    back = isinstance(op, dnn.RopeBackward)
    source = op.dy if back else op.x
    axis, tag = check_rope(op, "dy" if back else "x", source), str(type(op).__struct_config__.tag)
    rows, pairs = op.cos.shape
    firsts = slice(0, 2 * pairs, 2) if op.interleaved else slice(0, pairs)
    seconds = slice(1, 2 * pairs, 2) if op.interleaved else slice(pairs, 2 * pairs)

    def work(x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor | None) -> Tensor:
        at: Any = slice(0, x.shape[axis])
        shape = [1] * (x.ndim - 1) + [pairs]
        shape[axis] = x.shape[axis]
        if positions is not None:
            at = checked(positions, rows, lambda v, wrong, count: wrong_rows(tag, "positions", v, wrong, count, rows))
            shape[0] = x.shape[0] if at.ndim == 2 else shape[0]
        c, s = (wide(table)[at].reshape(shape) for table in (cos, sin))
        s = -s if back else s
        a, b = wide(x[..., firsts]), wide(x[..., seconds])
        turned = x.clone()
        turned[..., firsts], turned[..., seconds] = (a * c - b * s).to(x.dtype), (a * s + b * c).to(x.dtype)
        return turned

    return library.planned(op, work)


# -- losses ------------------------------------------------------------------------------------------------------------


class Goal:
    """The target of a cross-entropy: the share of each class in each item, and the weights of the classes."""

    def __init__(self, op: Any, x: Tensor, target: Tensor, weight: Tensor | None) -> None:
        classes = x.shape[-1]
        self.factors = torch.ones(classes, dtype=x.dtype, device=x.device) if weight is None else weight.to(x.dtype)
        smoothing = op.label_smoothing
        if op.target.dtype not in INDICES:
            self.counts, self.own = None, self.factors
            self.shares = (wide(target.movedim(op.axis, -1)) * (1 - smoothing) + smoothing / classes) * self.factors
            return
        self.counts = target != op.ignore_index
        tag = str(type(op).__struct_config__.tag)
        at = checked(torch.where(self.counts, target, 0), classes, lambda value, wrong, count: wrong_class(
            tag, value, wrong, count, classes
        ))  # fmt: skip
        hot = torch.nn.functional.one_hot(at, classes).to(x.dtype) if classes else torch.zeros_like(x)
        self.shares = (hot * (1 - smoothing) + smoothing / classes) * self.factors if classes else hot
        self.own = self.factors[at]

    def divisor(self, items: int) -> Any:
        """The divisor of a mean."""
        return items if self.counts is None else torch.where(self.counts, self.own, 0).sum()


@plans(dnn.CrossEntropy)
def cross_entropy(library: TorchLibrary, op: dnn.CrossEntropy) -> Plan:
    """Return the loss, and the logarithms of the sums of exponentials."""

    def work(x: Tensor, target: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        given = wide(x.movedim(op.axis, -1))
        goal, sums = Goal(op, given, target, weight), torch.logsumexp(given, -1)
        losses = -torch.where(goal.shares == 0, 0, goal.shares * (given - sums[..., None])).sum(-1)
        losses = losses if goal.counts is None else torch.where(goal.counts, losses, 0)
        if op.reduction == "none":
            return losses, sums
        return losses.sum() / (goal.divisor(losses.numel()) if op.reduction == "mean" else 1), sums

    return library.planned(op, work)


@plans(dnn.CrossEntropyBackward)
def cross_entropy_backward(library: TorchLibrary, op: dnn.CrossEntropyBackward) -> Plan:
    """Return the gradient by the logits."""

    def work(dloss: Tensor, x: Tensor, target: Tensor, log_sum: Tensor, weight: Tensor | None) -> Tensor:
        given = wide(x.movedim(op.axis, -1))
        goal = Goal(op, given, target, weight)
        grads = wide(dloss).expand(log_sum.shape)
        grads = grads / goal.divisor(log_sum.numel()) if op.reduction == "mean" else grads
        softmaxes = torch.exp(given - log_sum[..., None])
        found = grads[..., None] * (softmaxes * goal.shares.sum(-1, keepdim=True) - goal.shares)
        found = found if goal.counts is None else torch.where(goal.counts[..., None], found, 0)
        return found.movedim(-1, op.axis)

    return library.planned(op, work)


@plans(dnn.Mse, dnn.MseBackward)
def mse(library: TorchLibrary, op: Any) -> Plan:
    """Return the squares of differences, reduced, or their gradient."""

    def work(x: Tensor, target: Tensor) -> Tensor:
        squares = (wide(x) - wide(target)).square()
        return squares if op.reduction == "none" else squares.mean() if op.reduction == "mean" else squares.sum()

    def backward(dloss: Tensor, x: Tensor, target: Tensor) -> Tensor:
        share = 2 / max(op.x.size, 1) if op.reduction == "mean" else 2
        return share * (wide(x) - wide(target)) * wide(dloss)

    return library.planned(op, work if isinstance(op, dnn.Mse) else backward)
