"""The nodes of a graph that one op may compute."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from callboard.kernel.engine.fusing.attention import attention
from callboard.kernel.engine.fusing.linear import linear, linear_by_side
from callboard.kernel.engine.fusing.view import View, joined
from callboard.kernel.engine.mapped.steps import Step

__all__ = ["attentions", "products", "side_by_side"]

LINEAR, ATTENTION, BESIDE = "linear", "attention", "linear, side by side"
MOST_ADDENDS = 2
F32 = 1
"""ONNX's code."""


# -- products ----------------------------------------------------------------------------------------------------------


def products(view: View) -> list[Step]:
    """Products with a weight, with the sums and the activation that follow."""
    found: dict[str, Step] = {}
    for step in view.steps:
        made = _product(view, step) or _continued(view, step, found)
        if made is not None:
            found[step.outputs[0]] = made
    last: dict[int, Step] = {}
    for made in found.values():  # longer ones come later
        for part in made.parts:
            last.pop(id(part), None)
        if made.parts and (len(made.parts) > 1 or len(made.inputs) > 2):
            last[id(next(reversed(made.parts)))] = made
    return view.with_joined(last)


def _product(view: View, step: Step) -> Step | None:
    if len(step.inputs) < 2 or step.inputs[1] not in view.matrices:
        return None
    if step.op == "MatMul":
        return joined(LINEAR, linear, [step], step.inputs)
    given = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0} | step.attributes
    if step.op != "Gemm" or (given["alpha"], given["beta"], given["transA"]) != (1.0, 1.0, 0):
        return None
    inputs = [name for name in step.inputs if name]
    return joined(LINEAR, linear, [step], inputs, transposed=bool(given["transB"]))


def _continued(view: View, step: Step, found: dict[str, Step]) -> Step | None:
    """A product with one more node."""
    for at, name in enumerate(step.inputs[:2]):
        before = found.get(name)
        if before is None or view.uses[name] != 1 or "activation" in before.attributes:
            continue
        parts, attributes = (*before.parts, step), before.attributes
        if step.op == "Cast" and step.attributes.get("to") == F32 and len(parts) == 2 and len(before.inputs) == 2:
            return joined(LINEAR, linear, parts, before.inputs, **attributes, wide=True)
        if step.op == "Add" and len(before.inputs) < 2 + MOST_ADDENDS:
            return joined(LINEAR, linear, parts, [*before.inputs, step.inputs[1 - at]], **attributes)
        if step.op == "Relu":
            return joined(LINEAR, linear, parts, before.inputs, **attributes, activation="relu")
        if step.op == "Gelu" and step.attributes.get("approximate") == b"tanh":
            return joined(LINEAR, linear, parts, before.inputs, **attributes, activation="gelu")
    return None


def side_by_side(view: View) -> list[Step]:
    """Products of one value with several constant matrices, as one product with all of them."""
    groups: dict[Any, list[Step]] = defaultdict(list)
    for step in view.steps:
        if _beside(view, step):
            w = view.constants[step.inputs[1]]
            groups[step.inputs[0], w.shape[0], w.dtype, len(step.inputs), "wide" in step.attributes].append(step)
    made: dict[int, Step] = {}
    for (x, *_), steps in groups.items():
        if len(steps) < 2:
            continue
        inputs, widths = [x], [view.constants[step.inputs[1]].shape[1] for step in steps]
        for at, kind in enumerate(("weights", "biases")[: len(steps[0].inputs) - 1], 1):
            name = f"{kind} of {', '.join(step.outputs[0] for step in steps)}"
            view.constants[name] = np.concatenate([view.constants[step.inputs[at]] for step in steps], axis=-1)
            inputs.append(name)
        outputs = [step.outputs[0] for step in steps]
        settings = steps[0].attributes if steps[0].op == LINEAR else {}
        whole = joined(BESIDE, linear_by_side, steps, inputs, outputs, widths=widths, **settings)
        whole.title = steps[0].title
        made[id(steps[0])] = whole
    return view.with_joined(made)


def _beside(view: View, step: Step) -> bool:
    """Whether it is a product with a constant matrix, and perhaps a constant bias, which nothing else reads."""
    if step.op not in (LINEAR, "MatMul") or step.attributes.keys() - {"wide"} or len(step.inputs) > 3:
        return False
    weights = view.known(step.inputs[1:])
    if weights is None or any(view.uses[name] != 1 for name in step.inputs[1:]):
        return False
    return weights[0].ndim == 2 and all(b.shape == weights[0].shape[1:] for b in weights[1:])


# -- attention ---------------------------------------------------------------------------------------------------------


def attentions(view: View) -> list[Step]:
    """Products of queries, keys and values with a softmax between them."""
    made = {}
    for step in view.steps:
        if step.op == "MatMul" and (whole := _attention(view, step)) is not None:
            made[id(step)] = whole
    return view.with_joined(made)


def _attention(view: View, last: Step) -> Step | None:
    parts = [last]

    def taken(step: Step | None) -> Step | None:
        if step is not None:
            parts.append(step)
        return step

    v = last.inputs[1]
    name = _guarded(view, last.inputs[0], parts)
    guarded = len(parts) > 1
    if cast := taken(view.maker(name, "Cast", uses=1 + guarded)):
        name = cast.inputs[0]
    softmax = taken(view.maker(name, "Softmax", uses=2 if guarded and parts[-1].op != "Cast" else 1))
    if softmax is None or softmax.attributes.get("axis", -1) not in (-1, 3):
        return None
    name = softmax.inputs[0]
    if cast := taken(view.maker(name, "Cast")):
        name = cast.inputs[0]
    mask = ""
    if total := taken(view.maker(name, "Add")):
        scored = [bool(view.maker(each, "MatMul", "Mul", "Div")) for each in total.inputs]
        at = scored.index(True) if any(scored) else 0
        name, mask = total.inputs[at], total.inputs[1 - at]
    name, factor = _unscaled(view, name, parts)
    product = taken(view.maker(name, "MatMul"))
    if product is None:
        return None
    q, by_q = _unscaled(view, product.inputs[0], parts)
    k, by_k = _unscaled(view, product.inputs[1], parts)
    k, *shapes = _untransposed(view, k, parts) or (k,)
    order = {id(step): at for at, step in enumerate(view.steps)}
    parts.sort(key=lambda step: order[id(step)])
    inputs = [q, k, v, mask, *shapes]
    while not inputs[-1]:
        inputs.pop()
    return joined(ATTENTION, attention, parts, inputs, scale=factor * by_q * by_k)


def _guarded(view: View, name: str, parts: list[Step]) -> str:
    """What ``where(isnan(p), 0, p)`` reads: exporters write it, for queries that see no key."""
    where = view.maker(name, "Where")
    if where is None or view.number(where.inputs[1]) != 0.0:
        return name
    inner = where.inputs[2]
    isnan = view.maker(where.inputs[0], "IsNaN")
    if isnan is None or isnan.inputs[0] != inner or view.uses[inner] != 2:
        return name
    parts += [where, isnan]
    return inner


def _unscaled(view: View, name: str, parts: list[Step]) -> tuple[str, float]:
    """What is multiplied with a constant number, and the number."""
    step = view.maker(name, "Mul", "Div")
    if step is None:
        return name, 1.0
    for at in (0, 1) if step.op == "Mul" else (1,):
        number = view.number(step.inputs[at])
        if number:
            parts.append(step)
            return step.inputs[1 - at], number if step.op == "Mul" else 1.0 / number
    return name, 1.0


def _untransposed(view: View, name: str, parts: list[Step]) -> Sequence[str] | None:
    """The keys, and the two shapes, where an exporter exchanges their last axes by way of three axes."""
    steps: list[Step] = []
    for op in ("Reshape", "Transpose", "Reshape"):
        step = view.maker(name, op)
        if step is None or (op == "Transpose" and step.attributes.get("perm") != [0, 2, 1]):
            return None
        steps.append(step)
        name = step.inputs[0]
    parts += steps
    return name, steps[2].inputs[1], steps[0].inputs[1]
