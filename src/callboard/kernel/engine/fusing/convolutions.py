"""Convolutions with the batch normalisation behind them, which becomes a part of their weights."""

from typing import Any

import numpy as np

from callboard.kernel.engine.fusing.view import View
from callboard.kernel.engine.mapped.networks import conv
from callboard.kernel.engine.mapped.steps import Step
from callboard.kernel.engine.mapped.tools import Operator, Tools, Value

__all__ = ["convolutions"]

FOLDED = "convolution with its normalisation"


def convolutions(view: View) -> list[Step]:
    """Convolutions in f32 or f64 with constant weights, and with constant normalisations."""
    made, gone = {}, set()
    for step in view.steps:
        if step.op != "BatchNormalization" or len(step.outputs) != 1 or step.attributes.get("training_mode"):
            continue
        before = view.maker(step.inputs[0], "Conv")
        folded = None if before is None else _folded(view, before, step)
        if before is not None and folded is not None:
            made[id(step)] = folded
            gone.add(id(before))
    return [made.get(id(step), step) for step in view.steps if id(step) not in gone]


def _folded(view: View, step: Step, norm: Step) -> Step | None:
    names = [*[name for name in step.inputs[1:] if name], *norm.inputs[1:]]
    arrays = view.known(names)
    if arrays is None or any(array.dtype not in (np.float32, np.float64) for array in arrays):
        return None
    w, *biases, scale, shift, mean, variance = arrays
    if view.uses[names[0]] != 1 or any(array.shape != w.shape[:1] for array in arrays[1:]):
        return None
    epsilon = norm.attributes.get("epsilon", 1e-5)
    factor = scale.astype("f8") / np.sqrt(variance.astype("f8") + epsilon)
    added = ((biases[0] if biases else 0.0) - mean.astype("f8")) * factor + shift
    around = (-1, *[1] * (w.ndim - 2))
    given = [f"{kind} of {norm.outputs[0]}" for kind in ("weights", "biases")]
    view.constants[given[0]] = (w * factor.reshape(-1, *[1] * (w.ndim - 1))).astype(w.dtype)
    view.constants[given[1]] = added.reshape(around).astype(w.dtype)
    return Step(step.title, Operator(convolved, 1), (step.inputs[0], *given), norm.outputs, step.attributes, op=FOLDED)


def convolved(t: Tools, x: Value, w: Value, b: Value, **attributes: Any) -> Value:
    """A convolution, with one number for each channel added, which becomes a part of the op that reads the result."""
    found = conv(t, x, w, **attributes)
    return t.xp(found).add(found, t.ref(b))
