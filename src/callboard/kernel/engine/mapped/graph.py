"""``Mapped``: a graph checked once, and executed by ops."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError, UnsupportedOp
from callboard.core.operand import Operand
from callboard.kernel.engine.mapped import arithmetic, networks, reductions, shapes
from callboard.kernel.engine.mapped.tools import OPERATORS, HostOnly, Operator, Tools
from callboard.kernel.engine.onnxfile import Model, Node

__all__ = ["Mapped"]

MODULES = (arithmetic, networks, reductions, shapes)
"""The modules whose operators are registered."""
OLDEST, NEWEST = 13, 28
LARGEST_CONSTANT = 1 << 20
"""Elements of a result that is computed when the plan is built; a larger one costs more memory than it saves work."""


@dataclass
class Step:
    """A node that is executed, and the values that are not needed after it."""

    title: str
    operator: Operator
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    drops: tuple[str, ...] = ()


class Mapped:
    """The graph of a model as steps.

    Args:
        model: The model.
        title: Its name in errors.
        weights: Initializers that each execution is given.

    Raises:
        UnsupportedOp: Operators, attributes or dtypes are not mapped; names all of them.
    """

    def __init__(self, model: Model, title: str, weights: frozenset[str]) -> None:
        graph = model.graph
        self._opset = model.opset
        self._title = title
        self._outputs = [port.name for port in graph.outputs]
        problems = sorted({problem for node in graph.nodes for problem in _problems(node, model)})
        if not OLDEST <= model.opset <= NEWEST and graph.nodes:
            problems.append(f"opset {model.opset} (mapped are {OLDEST} to {NEWEST})")
        strange = [name for name, array in graph.initializers.items() if array.dtype == object]
        problems += [f"the dtype of the initializer {name}" for name in strange]
        if problems:
            raise UnsupportedOp(f'{title}: engine="callboard" lacks {"; ".join(problems)}; use engine="onnxruntime"')
        self._constants: dict[str, Any] = {n: a for n, a in graph.initializers.items() if n not in weights}
        self.folded = 0
        steps = []
        for at, node in enumerate(graph.nodes):
            name = f"{title}: node {at} {node.op}{f' ({node.name})' if node.name else ''}"
            step = Step(name, OPERATORS[node.op], node.inputs, node.outputs, node.attributes)
            if not self._fold(step):
                steps.append(step)
        self._steps = self._needed(steps)

    def run(self, submit: Any, plan: Any, given: Sequence[Any], resident: Any) -> list[Any]:
        """Execute it; see :class:`~callboard.kernel.engine.context.ExecutionContext`."""
        from callboard.kernel.engine.context import layout_like

        values: dict[str, Any] = dict(self._constants)
        for at, (port, array) in enumerate(zip(plan.inputs, given, strict=True)):
            plan.check(at, array.layout if isinstance(array, Operand) else layout_like(array))
            small = array.ndim <= 1 and array.dtype.kind in "iub" if isinstance(array, np.ndarray) else True
            values[port.name] = array if small else plan.put(array)
        for name, array in resident.weights.items():
            values[name] = resident.ref(name, lambda array=array: array)
        tools = Tools(submit, plan.put, self._opset)
        tools.remembered(resident.computed)
        self._execute(tools, values)
        found = [tools.ref(values[name]) for name in self._outputs]
        for port, ref in zip(plan.outputs, found, strict=True):
            if ref.dtype is not DTYPES[port.dtype]:
                raise ShapeError(f"{self._title}: output {port.name!r} is {ref.layout!r}, declared as {port}")
        return found

    def _execute(self, tools: Tools, values: dict[str, Any]) -> None:
        for step in self._steps:
            values.update(zip(step.outputs, _call(tools, step, values), strict=False))
            for name in step.drops:
                values.pop(name, None)

    def _fold(self, step: Step) -> bool:
        """Compute a node of constants on the host; False if it has other inputs, or needs the device."""
        if any(name and name not in self._constants for name in step.inputs):
            return False
        try:
            with np.errstate(all="ignore"):
                found = _call(Tools(None, None, self._opset), step, self._constants)
        except HostOnly:
            return False
        if any(math.prod(value.shape) > LARGEST_CONSTANT for value in found):
            return False
        self._constants.update(zip(step.outputs, map(np.asarray, found), strict=False))
        self.folded += 1
        return True

    def _needed(self, steps: list[Step]) -> list[Step]:
        """The steps whose results are used, each with the values that it is the last to use."""
        used = set(self._outputs)
        kept = []
        for step in reversed(steps):
            if not used.intersection(step.outputs):
                continue
            step.drops = tuple({*step.inputs, *step.outputs} - used - {""})
            used.update(step.inputs)
            kept.append(step)
        self._constants = {name: value for name, value in self._constants.items() if name in used}
        return kept[::-1]

    def rehearse(self, submit: Any, plan: Any) -> None:
        """Execute it once with zeros, where the shapes are known, so that what cannot be mapped is refused now.

        Raises:
            UnsupportedOp: It cannot be executed; names the node.
        """
        zeros = []
        for port in plan.inputs:
            profile = plan.profiles.get(port.name)
            shape = profile.usual if profile else port.shape
            if shape is None or not all(isinstance(n, int) for n in shape):
                return
            if len(shape) <= 1 and not DTYPES[port.dtype].is_float:
                return  # it may be a shape
            zeros.append(np.zeros(shape, DTYPES[port.dtype].np))
        self.run(submit, plan, [plan.put(array) for array in zeros], plan.resident)


def _call(tools: Tools, step: Step, values: Mapping[str, Any]) -> Sequence[Any]:
    tools.title, tools.outputs = step.title, len(step.outputs)
    inputs = [values[name] if name else None for name in step.inputs]
    while inputs and inputs[-1] is None:
        inputs.pop()
    try:
        found = step.operator.function(tools, *inputs, **step.attributes)
    except (HostOnly, UnsupportedOp):
        raise
    except (TypeError, ValueError, IndexError, NotImplementedError) as e:
        raise UnsupportedOp(f"{step.title}: {e}") from e
    return found if isinstance(found, tuple | list) else (found,)


def _problems(node: Node, model: Model) -> list[str]:
    """What is not mapped of a node."""
    known = OPERATORS.get(node.op)
    if node.domain not in ("", "ai.onnx") or known is None or node.op in model.functions:
        return [node.title]
    found = [f"{node.op}'s attribute {name}" for name in node.attributes if name not in known.attributes]
    found += [f"{node.op} without {name}" for name in known.required if name not in node.attributes]
    count = len(node.inputs)
    if count > known.most and not known.variadic:
        found += [f"{node.op} with {count} inputs"]
    if count < known.least:  # older versions have attributes in place of inputs
        found += [f"{node.op} with {count} inputs (opset {model.opset})"]
    return found
