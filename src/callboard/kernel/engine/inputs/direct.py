"""``Direct``: executions by ONNX Runtime on the calling thread, of arrays on the host.

Such an execution reads no memory of the device, and writes none, so it need not be an op: the thread that calls it runs
the session of the host, if that is a thread of this process. To hand a message to the host and to be woken would take
several times as long as a small model.
"""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.core.layout import Layout, layout_of
from callboard.core.operand import Operand
from callboard.core.ref import held_by
from callboard.kernel.engine.inputs.given import arrays_of
from callboard.kernel.engine.inputs.opened import MOST_KNOWN, SHARED, Opened, Shapes
from callboard.kernel.engine.messages import EngineSpec

__all__ = ["Direct"]

LEAST_BUDGET = 1.0
"""Seconds: executions with a smaller budget are watched while they run, which costs as much as a small one."""


class _Known(NamedTuple):
    """What follows from the layouts of the inputs.

    Attributes:
        shapes: Of all inputs and weights.
        outputs: Layouts of the outputs; None before the first execution, if the model does not declare the extents.
    """

    shapes: Shapes
    outputs: list[Layout | None]


class Direct:
    """Executes a plan on the calling thread, where that is possible and short.

    The shapes in its model :func:`~callboard.kernel.engine.inputs.following.follow` those of the inputs.

    It does not for sets of shapes that no op was executed with before, while an execution with them takes longer than
    the device allows (:meth:`Holding.allows <callboard.core.ref.ports.Holding.allows>`), and after an error: all of
    these are executed as ops.

    Args:
        plan: An :class:`~callboard.kernel.engine.plan.EnginePlan`.
        spec_of: The spec of an execution with inputs of these layouts; checks them.
        clock: Gives seconds.
    """

    def __init__(
        self,
        plan: Any,
        spec_of: Callable[[list[Layout]], EngineSpec],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._plan = plan
        self._spec_of = spec_of
        self._clock = clock
        self._names = [port.name for port in plan.inputs]
        self._outputs = [port.name for port in plan.outputs]
        self._bounds = [(name, plan.bounds[name]) for name in self._names if name in plan.bounds]
        self._opened: Opened | None = None
        self._known: dict[Any, _Known | None] = {}

    def __call__(self, named: Mapping[str, Any]) -> Any:
        """The outputs, as of a call of the context; None: it is to be an op.

        Args:
            named: What was given for the inputs, by their names.

        Raises:
            InputRefused: A value is outside of a table that the model indexes with it.
        """
        plan = self._plan
        resident = plan.resident
        model = resident.there("")
        if model is None:
            return None
        port = model._port
        holding = port.holding
        if holding is None or model.generation != port.generation:
            return None
        feed = self._fed(port, named)
        if feed is None:
            return None
        opened = self._opened
        if opened is None or opened.session is None:
            opened = self._opened = SHARED.get(plan.token)
        session = None if opened is None else opened.session
        if opened is None or session is None:
            return None
        key = tuple([(array.dtype, array.shape) for array in feed.values()])
        try:
            known = self._known[key]
        except KeyError:
            known = self._learned(key, list(feed.values()))
        if known is None:
            return None
        recent = opened.recent.get(known.shapes, math.inf)
        if recent > (allowed := holding.allows()):
            return None
        for name, bounds in self._bounds:
            bounds.check(plan.title, name, feed[name])
        if resident.weights:
            feed.update(resident.weights)
        began = self._clock()
        try:
            found = session.run(self._outputs, feed)
        except Exception:  # whatever it is: the op raises it in words of its own
            return None
        seconds = self._clock() - began
        if not recent <= 4 * seconds <= allowed:  # else it changes nothing
            opened.took(known.shapes, seconds)
        layouts = []
        for at, value in enumerate(found):
            if type(value) is not np.ndarray:
                return None
            layout = known.outputs[at]
            if layout is None:
                layout = known.outputs[at] = layout_of(DTYPES[plan.outputs[at].dtype], value.shape)
            if value.shape != layout.shape or value.dtype != layout.dtype.np:
                return None
            layouts.append(layout)
        refs = holding.hold(found, layouts, seconds)
        return refs[0] if len(refs) == 1 else tuple(refs)

    def _fed(self, port: Any, named: Mapping[str, Any]) -> "dict[str, np.ndarray[Any, Any]] | None":
        """The inputs in their order, row-major and on the host; None if one is not, is missing, or is refused."""
        found = {}
        if len(named) != len(self._names):
            return None
        for name in self._names:
            value = named.get(name)
            if type(value) is not np.ndarray:
                held = held_by(port, value)
                if held is None:
                    return None if isinstance(value, Operand) else self._converted(named)
                value = held
            if not value.flags.c_contiguous:
                return None
            found[name] = value
        return found

    def _converted(self, named: Mapping[str, Any]) -> "dict[str, np.ndarray[Any, Any]] | None":
        """The same, if some are numbers of Python."""
        if not all(isinstance(value, bool | int | float | list | np.ndarray) for value in named.values()):
            return None
        plan = self._plan
        try:
            found = arrays_of(plan.title, plan.inputs, plan.model.graph.initializers, named)
        except ShapeError:
            return None
        if not all(type(array) is np.ndarray and array.flags.c_contiguous for array in found):
            return None
        return dict(zip(self._names, found, strict=True))

    def _learned(self, key: Any, arrays: "list[np.ndarray[Any, Any]]") -> _Known | None:
        """What follows from these layouts; None: executions with them are ops."""
        plan = self._plan
        known = None
        weights = plan.resident.weights.values()
        if all(array.size and array.dtype.isnative and array.dtype.kind in "biuf" for array in [*arrays, *weights]):
            try:
                for at, array in enumerate(arrays):
                    plan.check_host(at, array)
                spec = self._spec_of(
                    [
                        layout_of(DTYPES[port.dtype], array.shape)
                        for port, array in zip(plan.inputs, arrays, strict=True)
                    ]
                )
            except ShapeError:
                return None  # not kept: it may be of a value
            if all(DTYPES[name].np.kind in "biuf" and 0 not in shape for name, shape in spec.layouts):
                outputs = [
                    None if min(shape, default=1) < 0 else layout_of(DTYPES[name], shape)
                    for name, shape in spec.layouts
                ]
                known = _Known((*(array.shape for array in arrays), *(each.shape for each in weights)), outputs)
        if len(self._known) >= MOST_KNOWN:
            self._known = {}
        self._known[key] = known
        return known
