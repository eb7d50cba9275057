"""``Mapped``: a graph checked once, and executed by ops."""

import contextlib
import importlib
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from callboard.core.dtype import DTYPES
from callboard.core.errors import BudgetSpent, ShapeError, UnsupportedOp
from callboard.core.operand import Operand
from callboard.kernel.engine.files.protobuf import printed
from callboard.kernel.engine.fusing.passes import fused
from callboard.kernel.engine.inputs.budget import Budget, Walk, finished
from callboard.kernel.engine.inputs.refused import MOST_NAMES, InputRefused, cure
from callboard.kernel.engine.mapped.steps import Step, call, check_names, graphs_of, lasting, step_of
from callboard.kernel.engine.mapped.tools import LARGEST_HERE, HostOnly, NotHere, ResultTooLarge, Tools, operator_of
from callboard.kernel.engine.onnxfile import Graph, Model, Node

__all__ = ["Mapped", "stays_on_host"]

for _name in (
    *("arithmetic", "attending", "control", "losses", "networks", "quantised", "recurrent"),
    *("reductions", "resampling", "scattering", "shapes", "transforms"),
):
    importlib.import_module(f"callboard.kernel.engine.mapped.{_name}")  # registers its operators

NEWEST = 28
"""The newest opset of which the operators are known."""
MOST_TEXT = 2000
"""Characters of what is not mapped."""
MOST_NUMBERS = 16
"""Floats of an input of one axis that stay on the host: scales of a `Resize`, bounds of a `Range`."""
LARGEST_CONSTANT = 1 << 20
"""Elements of a result that is computed when the plan is built; a larger one costs more memory than it saves work."""

LARGEST_CONSTANTS = 1 << 24
"""Elements of all of them."""

MOST_WORK = 1 << 26
"""Elements that are read and written for them."""

MOST_UNFOLDED = 1 << 27
"""Elements of further constants, which each execution makes."""

SHAPES = {"Shape", "Size"}
"""Operators that do not read the elements of their input."""

GROWING = {"CenterCropPad", "ConstantOfShape", "Expand", "OneHot", "Pad", "Range", "Resize", "Tile", "Upsample"}
"""Operators whose results have as many elements as a constant says: these are counted before they are made."""

REHEARSAL = 1.0
"""Seconds of the execution when a plan is built."""


class Mapped:
    """The graph of a model as steps.

    Args:
        model: The model.
        title: Its name in errors.
        weights: Initializers that each execution is given.

    Raises:
        OnnxError: A node reads a value that is made nowhere, or only later.
        UnsupportedOp: Operators, attributes or dtypes are not mapped; names all of them.
    """

    def __init__(self, model: Model, title: str, weights: frozenset[str]) -> None:
        graph = model.graph
        self._opset = model.opset
        self._title = title
        self._outputs = [port.name for port in graph.outputs]
        problems = sorted({problem for node in graph.nodes for problem in _problems(node, model)})
        if model.opset > NEWEST:
            problems.append(f"opset {model.opset} (the newest mapped is {NEWEST})")
        strange = [name for name, array in graph.initializers.items() if array.dtype == object]
        problems += [f"the dtype of the initializer {name}" for name in strange]
        if problems:
            lacking = printed(f"{'; '.join(problems):.{MOST_TEXT}}")
            raise UnsupportedOp(f'{title}: engine="callboard" lacks {lacking}; use engine="onnxruntime"')
        check_names(graph, title)
        self._constants: dict[str, Any] = {n: a for n, a in graph.initializers.items() if n not in weights}
        self.folded = 0
        self._room, self._work, self._unfolded = LARGEST_CONSTANTS, MOST_WORK, 0
        steps = []
        for at, node in enumerate(graph.nodes):
            step = step_of(node, at, title)
            if not self._fold(node.op, step):
                steps.append(step)
        matrices = frozenset(name for name, array in graph.initializers.items() if array.ndim == 2)
        joined = fused(self._needed(steps), self._outputs, self._constants, matrices)
        self._steps = self._needed(joined)
        _trace(self._steps, [port.name for port in graph.inputs])
        kept = [*self._constants.values(), *lasting(graph.nodes)]
        self._lasting = frozenset(map(id, kept))
        self._kept = kept
        """Arrays whose refs are kept from one execution to the next; by identity, so they have to stay."""

    def run(self, submit: Any, plan: Any, given: Sequence[Any], resident: Any, put: Any = None) -> Walk[list[Any]]:
        """Execute it, with a pause after each node, and after each turn of a loop.

        Args:
            submit: Submits a message.
            plan: The plan.
            given: Inputs in the plan's order.
            resident: The plan's arrays on the device.
            put: Copies host arrays to the device; ``plan.put`` when None.
        """
        put = put or plan.put
        values: dict[str, Any] = dict(self._constants)
        for at, (port, array) in enumerate(zip(plan.inputs, given, strict=True)):
            if isinstance(array, Operand):
                plan.check(at, array.layout)
            else:
                plan.check_host(at, array)
            known = isinstance(array, Operand) or stays_on_host(array)
            values[port.name] = array if known else put(array)
        for name, array in resident.weights.items():
            values[name] = resident.ref(name, lambda array=array: array)
        tools = Tools(submit, put, self._opset)
        tools.rounds = plan.precision == "tf32"
        tools.remembered(resident.computed, self._lasting)
        yield from self._execute(tools, values)
        inputs = [each for each in given if isinstance(each, Operand)]
        found = tools.apart([tools.ref(values[name]) for name in self._outputs], [*inputs, *resident.refs])
        for port, ref in zip(plan.outputs, found, strict=True):
            if ref.dtype is not DTYPES[port.dtype]:
                raise ShapeError(f"{self._title}: output {port.name!r} is {ref.layout!r}, declared as {port}")
        return found

    def _execute(self, tools: Tools, values: dict[str, Any]) -> Walk[None]:
        for step in self._steps:
            try:
                found = yield from call(tools, step, values)
                yield
            except (InputRefused, ResultTooLarge) as e:
                if not step.origins:
                    raise UnsupportedOp(f"{e}; no input changes that: change the model") from e
                raise type(e)(f"{e}; {cure(step.origins)}") from e
            except BudgetSpent as e:
                others = f", or {cure(step.origins)}" if step.origins else ""
                raise BudgetSpent(f"{tools.title}: {e}{others}") from e
            values.update(zip(step.outputs, found, strict=False))
            for name in step.drops:
                values.pop(name, None)

    def _fold(self, op: str, step: Step) -> bool:
        """Compute a node of constants on the host; False if it has other inputs, needs the device, or is much work.

        Raises:
            UnsupportedOp: The constants that were not computed would have too many elements.
        """
        if (
            step.captured
            or any(isinstance(each, Graph) for each in step.attributes.values())
            or any(name and name not in self._constants for name in step.inputs)
        ):
            return False
        given = sum(math.prod(self._constants[name].shape) for name in step.inputs if name)
        if op not in SHAPES and (given > LARGEST_CONSTANT or (self._work < given and op not in GROWING)):
            return False
        largest = min(LARGEST_CONSTANT, self._room, max(self._work, 0))
        try:
            found = finished(call(Tools(None, None, self._opset, largest), step, self._constants))
        except NotHere as e:
            self._unfolded += e.elements
            if self._unfolded > MOST_UNFOLDED:
                raise UnsupportedOp(
                    f"{step.title}: nodes of constants make {self._unfolded} elements in each execution, at most "
                    f"{MOST_UNFOLDED} are allowed; compute them when the model is written"
                ) from None
            return False
        except HostOnly:
            return False
        sizes = [math.prod(value.shape) for value in found]
        self._work -= given + sum(sizes)
        if max(sizes, default=0) > LARGEST_CONSTANT or sum(sizes) > self._room:
            return False
        self._room -= sum(sizes)
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
            step.drops = tuple({*step.inputs, *step.captured, *step.outputs} - used - {""})
            used.update(step.inputs, step.captured)
            kept.append(step)
        self._constants = {name: value for name, value in self._constants.items() if name in used}
        return kept[::-1]

    @property
    def joined(self) -> Counter[str]:
        """How many steps compute several nodes, by what they are."""
        return Counter(step.op for step in self._steps if step.parts)

    def rehearse(self, submit: Any, plan: Any) -> Walk[None]:
        """Execute it once with zeros, where the shapes are known, so that what cannot be mapped is refused now.

        It pauses every 5 ms, and ends after a second.

        Raises:
            UnsupportedOp: It cannot be executed; names the node.
        """
        zeros = []
        for port in plan.inputs:
            profile = plan.profiles.get(port.name)
            shape = profile.usual if profile else port.shape
            if shape is None or not all(isinstance(n, int) for n in shape):
                return
            if _on_host(shape, DTYPES[port.dtype].is_float) or math.prod(shape) > LARGEST_HERE:
                return  # it may be a shape; or too many zeros
            zeros.append((shape, DTYPES[port.dtype].np))
        given = [plan.put(np.zeros(*each)) for each in zeros]
        with contextlib.suppress(BudgetSpent):  # it takes long, as far as it was executed
            yield from Budget(REHEARSAL).slices(self.run(submit, plan, given, plan.resident))


def stays_on_host(array: "np.ndarray[Any, Any]") -> bool:
    """Whether a host array of an input stays there, because shapes may depend on it."""
    return _on_host(array.shape, array.dtype.kind not in "iub")


def _on_host(shape: Sequence[int], is_float: bool) -> bool:
    return len(shape) <= 1 and (not is_float or math.prod(shape) <= MOST_NUMBERS)


def _trace(steps: Sequence[Step], inputs: Sequence[str]) -> None:
    """Give each step the inputs of the model that it is computed of: so many as an error names."""
    origins: dict[str, tuple[int, ...]] = {name: (at,) for at, name in enumerate(inputs)}
    for step in steps:
        found = {at for name in (*step.inputs, *step.captured) for at in origins.get(name, ())}
        some = tuple(sorted(found)[: MOST_NAMES + 1])
        step.origins = tuple(inputs[at] for at in some)
        origins.update(dict.fromkeys(step.outputs, some))


def _problems(node: Node, model: Model) -> list[str]:
    """What is not mapped of a node."""
    known = operator_of(node.title)
    if known is None or node.op in model.functions:
        return [node.title]
    if model.opset < known.since:
        return [f"{node.op} of opset {model.opset} (mapped from {known.since})"]
    found = [f"{node.op}'s attribute {name}" for name in node.attributes if name not in known.attributes]
    found += [f"{node.op} without {name}" for name in known.required if name not in node.attributes]
    count = len(node.inputs)
    if count > known.most and not known.variadic:
        found += [f"{node.op} with {count} inputs"]
    if count < known.least:  # older versions have attributes in place of inputs
        found += [f"{node.op} with {count} inputs (opset {model.opset})"]
    inside = (inner for graph in graphs_of(node) for inner in graph.nodes)
    return [*found, *(problem for inner in inside for problem in _problems(inner, model))]
