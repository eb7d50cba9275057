"""Layer normalisation that is written as means, differences and a square root, in one op of ``dev.dnn``."""

from typing import Any

from callboard.core.operand import Operand
from callboard.kernel.engine.fusing.linear import FLOATS
from callboard.kernel.engine.fusing.view import View, joined
from callboard.kernel.engine.mapped.steps import Step
from callboard.kernel.engine.mapped.tools import Tools, Value, name_of

__all__ = ["norms"]

NORM = "layer norm"


def norms(view: View) -> list[Step]:
    """``(x - mean(x)) / sqrt(mean((x - mean(x)) ** 2) + epsilon)`` over the last axis, times a weight, plus another."""
    made: dict[int, Step] = {}
    for step in view.steps:
        found = _norm(view, step) if step.op == "Div" else None
        if found is None:
            continue
        parts, x, epsilon = found
        scaled = _reader(view, parts[-1], "Mul")
        if scaled is None:
            continue
        scale, shift = _other(scaled, parts[-1]), ""
        parts.append(scaled)
        if added := _reader(view, scaled, "Add"):
            shift = _other(added, scaled)
            parts.append(added)
        inputs = [x, scale, *([shift] if shift else [])]
        made[id(parts[-1])] = joined(NORM, normalised, parts, inputs, epsilon=epsilon)
    return view.with_joined(made)


def _norm(view: View, last: Step) -> tuple[list[Step], str, float] | None:
    """The steps up to the quotient, what is normalised, and epsilon."""
    root = view.maker(last.inputs[1], "Sqrt")
    total = root and view.maker(root.inputs[0], "Add")
    if root is None or total is None:
        return None
    epsilon, variance = view.number(total.inputs[1]), view.maker(total.inputs[0], "ReduceMean")
    square = variance and view.maker(variance.inputs[0], "Pow", "Mul")
    if variance is None or square is None or epsilon is None:
        return None
    if square.op == "Pow" and view.number(square.inputs[1]) != 2.0:
        return None
    if square.op == "Mul" and square.inputs[0] != square.inputs[1]:
        return None
    centred = view.maker(last.inputs[0], "Sub", uses=2 if square.op == "Pow" else 3)
    if centred is None or square.inputs[0] != last.inputs[0]:
        return None
    mean = view.maker(centred.inputs[1], "ReduceMean")
    if mean is None or mean.inputs[0] != centred.inputs[0] or not (_last(view, mean) and _last(view, variance)):
        return None
    return [mean, centred, square, variance, total, root, last], centred.inputs[0], epsilon


def _last(view: View, step: Step) -> bool:
    """Whether a mean is over the last axis, which stays."""
    given = step.attributes.get("axes")
    if len(step.inputs) > 1:
        known = view.constants.get(step.inputs[1])
        given = None if known is None else known.ravel().tolist()
    return given == [-1] and bool(step.attributes.get("keepdims", 1))


def _reader(view: View, step: Step, op: str) -> Step | None:
    """The only step that reads a result, if it is of this operator."""
    return view.reader(step.outputs[0], op)


def _other(step: Step, than: Step) -> str:
    """The other operand of a step."""
    a, b = step.inputs
    return b if a == than.outputs[0] else a


def normalised(t: Tools, x: Value, scale: Value, shift: Value = None, *, epsilon: float) -> Value | None:
    """The layer normalisation, or None if these values are not for one op."""
    if not isinstance(x, Operand) or name_of(x) not in FLOATS or not x.ndim or 0 in x.shape:
        return None
    if any(w is not None and (tuple(w.shape) != x.shape[-1:] or name_of(w) != name_of(x)) for w in (scale, shift)):
        return None
    bias: Any = None if shift is None else t.ref(shift)
    return t.dnn.layer_norm(x, scale=t.ref(scale), bias=bias, axes=1, epsilon=epsilon)
