"""``ExecutionContext``: executes a plan on refs."""

import asyncio
import functools
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from callboard.core.errors import GpuRefStale
from callboard.core.layout import Layout
from callboard.core.op import Repeated, info_of
from callboard.core.operand import Operand
from callboard.kernel.api import Submit
from callboard.kernel.engine.inputs.budget import Budget, Walk, finished
from callboard.kernel.engine.inputs.direct import LEAST_BUDGET, Direct
from callboard.kernel.engine.inputs.following import Found, follow
from callboard.kernel.engine.inputs.given import arrays_of, by_name, in_order
from callboard.kernel.engine.mapped.graph import stays_on_host
from callboard.kernel.engine.mapped.recorded import Recorded
from callboard.kernel.engine.messages import EngineSpec, Execute
from callboard.kernel.engine.plan import EnginePlan, Resident, settled
from callboard.kernel.memory import Copy

__all__ = ["ExecutionContext"]

MOST_SHAPES = 256
"""Sets of input shapes whose checks are remembered."""


class _Known(NamedTuple):
    """What follows from the layouts of the inputs, for an engine that executes a model as one op.

    Attributes:
        spec: What is executed.
        signature: Of the op.
    """

    spec: EngineSpec
    signature: bytes


class ExecutionContext:
    """Executes a plan: ``y = context(x=ref)`` returns refs at once, like an op.

    Contexts of one plan share its model and weights; calls of any of them run in program order.

    Args:
        plan: The plan.
        submit: Submits a message to the plan's device.
        record: ``dev.record``, if executions by callboard's own engine are recorded.
        budget: Seconds of an execution.
        clock: Gives seconds.
    """

    def __init__(
        self,
        plan: EnginePlan,
        submit: Submit,
        record: Callable[..., Any] | None = None,
        budget: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.plan = plan
        self._submit: Callable[..., Any] = submit
        self._budget, self._clock = budget, clock
        self._runner = plan.runner
        self._recorded: Recorded | None = None
        if record is not None and plan.runner is not None:
            self._runner = self._recorded = Recorded(plan.runner, record)
        self._names = [port.name for port in plan.inputs]
        self._known: dict[tuple[Any, ...], _Known] = {}
        follows = self._runner is None and follow(plan.model, plan.resident.weights)
        self._found = None if plan.waits is None else Found(follows)
        self._steady = follows
        direct = self._steady and budget >= LEAST_BUDGET
        self._direct = Direct(plan, lambda layouts: self._checked(layouts, plan.resident)) if direct else None

    def __call__(self, inputs: Mapping[str, Any] | None = None, /, **more: Any) -> Any:
        """Execute it once.

        Args:
            inputs: Refs, NumPy arrays, numbers or lists of numbers by the names of the inputs.
            more: The same, for names that are Python identifiers.

        Returns:
            The ref of the output; a tuple of refs, in the order of ``plan.outputs``, if there are several.

        Raises:
            ShapeError: An input is missing, unknown, or does not fit the model or its profile; names input, axis, value
                and range. Nothing has been sent.
            BudgetSpent: It takes longer than the budget: raised here by callboard's own engine, which executes the
                graph on this thread, and by the refs for ONNX Runtime. Other executions and the device are not touched.
            GpuRefStale, DeviceMismatch, MailboxFull, DeviceStopped: As for any op.
        """
        named = more if inputs is None else by_name(self.plan.title, self.plan.inputs, inputs, more)
        found = self._at_once(named)
        return finished(self.slices(named)) if found is None else found

    async def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        /,
        *,
        room: Callable[[], Awaitable[object]] | None = None,
        unchanged: bool = False,
    ) -> Any:
        """As a call, but the event loop goes on: every 5 ms, callboard's own engine lets other tasks run.

        Args:
            inputs: As for a call.
            room: Waits until the device takes more ops, such as ``lambda: dev.room(1000)``; called as often.
            unchanged: Arrays of the inputs stay as they are until the outputs are computed: large ones are copied to
                the device off this thread.

        Raises:
            ShapeError, BudgetSpent, GpuRefStale, DeviceMismatch, MailboxFull, DeviceStopped: As for a call.
        """
        named = by_name(self.plan.title, self.plan.inputs, inputs, {})
        found = self._at_once(named, unchanged)
        if found is not None:
            return found
        walk = self.slices(named, unchanged)
        try:
            while True:
                try:
                    next(walk)
                except StopIteration as e:
                    return e.value
                await asyncio.sleep(0)
                if room is not None:
                    await room()
        finally:
            walk.close()

    def _at_once(self, named: Mapping[str, Any], unchanged: bool = False) -> Any:
        """What a call returns, if nothing has to be converted, recorded or renewed; None: it is walked through."""
        if self._direct is not None and (found := self._direct(named)) is not None:
            return found
        if (self._runner is not None and self._recorded is None) or unchanged:
            return None
        resident = self.plan.resident
        try:
            outs = None if self._recorded is None else self._recorded.repeated(named, resident)
            if outs is None:
                given = in_order(self._names, named)
                if given is None:
                    return None
                if self._recorded is None:
                    return self._as_op(given, resident)
                outs = self._recorded.again(self.plan, named, given, resident)
        except GpuRefStale:
            return None
        if outs is None:
            return None
        return outs[0] if len(outs) == 1 else tuple(outs)

    def slices(self, named: Mapping[str, Any], unchanged: bool = False) -> Walk[Any]:
        """An execution that pauses every 5 ms, and returns what a call does; ``unchanged`` as for :meth:`run`."""
        plan = self.plan
        given = arrays_of(plan.title, plan.inputs, plan.model.graph.initializers, named)
        resident = self.plan.resident
        budget = Budget(self._budget, self._clock)
        copied = self._copied if unchanged else list
        try:
            return (yield from budget.slices(self._execute(copied(given), resident)))
        except GpuRefStale:
            if any(isinstance(each, Operand) and _stale(each) for each in given):
                raise
            again = resident.again()  # the plan's own arrays were lost with their context
            if self.plan.resident is resident:
                self.plan.resident = again
            return (yield from budget.slices(self._execute(copied(given), again)))

    def _execute(self, given: Sequence[Any], resident: Resident) -> Walk[Any]:
        plan = self.plan
        if self._runner is not None:
            outs = yield from self._runner.run(self._submit, plan, given, resident)
            return outs[0] if len(outs) == 1 else tuple(outs)
        return self._as_op(given, resident)

    def _as_op(self, given: Sequence[Any], resident: Resident) -> Any:
        """An execution by an engine that executes a model as one op."""
        plan = self.plan
        arrays = [
            each if isinstance(each, Operand) else plan.put(self._hosted(each, at)) for at, each in enumerate(given)
        ]
        layouts = tuple([each.layout.wire for each in arrays])
        slow = plan.waits is not None and (plan.waits or resident.first(layouts))
        shapes = None if slow or self._found is None else self._found.shapes(layouts)
        key = layouts, slow, shapes
        known = self._known.get(key)
        if known is None:
            spec = self._checked([each.layout for each in arrays], resident, slow, shapes)
        else:
            spec = known.spec
        operands = [each if each.layout.contiguous else self._submit(Copy(src=each)) for each in arrays]
        for name, array in resident.weights.items():
            operands.append(resident.ref(name, lambda array=array: array))  # type: ignore[misc]
        model = resident.ref("", lambda: np.frombuffer(plan.executed, np.uint8))
        if known is None:
            if model._port.holding is not None:
                spec = msgspec.structs.replace(spec, token=plan.token)
            op = Execute(model=model, spec=spec, ins=tuple(operands))
            if len(self._known) >= MOST_SHAPES:
                self._known.clear()
            self._known[key] = _Known(spec, info_of(Execute).split(op).signature)
            outs = self._submit(op)
        else:
            made = functools.partial(Execute, model=model, spec=spec, ins=tuple(operands))
            outs = self._submit(Repeated(known.signature, [model, *operands], [], made))
        if self._found is not None and shapes is None:
            self._found.keep(layouts, outs)
        return outs[0] if len(outs) == 1 else outs

    def _copied(self, given: Sequence[Any]) -> list[Any]:
        """The inputs; arrays that no node needs on the host are on the device, the large ones soon."""
        plan, own = self.plan, self._runner is not None
        return [
            each
            if isinstance(each, Operand) or (own and stays_on_host(each))
            else settled(plan.put, self._hosted(each, at))
            for at, each in enumerate(given)
        ]

    def _hosted(self, array: "np.ndarray[Any, Any]", at: int) -> "np.ndarray[Any, Any]":
        """A host array for an input; it is checked like a ref, before it is copied."""
        self.plan.check_host(at, array)
        return array

    def _checked(
        self,
        layouts: Sequence[Layout],
        resident: Resident,
        slow: bool = False,
        shapes: "tuple[tuple[int, ...], ...] | None" = None,
    ) -> EngineSpec:
        """The spec of an execution with inputs of these layouts; ``shapes`` of the outputs, if they are known."""
        plan = self.plan
        symbols: dict[str, int | None] = {}
        for at, layout in enumerate(layouts):
            plan.check(at, layout)
            for extent, declared in zip(layout.shape, plan.inputs[at].shape or (), strict=False):
                if isinstance(declared, str):
                    symbols[declared] = extent if symbols.get(declared, extent) == extent else None
        found = []
        for port in plan.outputs:
            shape = [symbols.get(n) if isinstance(n, str) else n for n in port.shape or ()]
            found.append((port.dtype, tuple(-1 if n is None else n for n in shape)))
        if shapes is not None:
            found = [(dtype, shape) for (dtype, _), shape in zip(found, shapes, strict=True)]
        return msgspec.structs.replace(
            plan.spec,
            inputs=(*(port.name for port in plan.inputs), *resident.weights),
            outputs=tuple(port.name for port in plan.outputs),
            layouts=tuple(found),
            budget=self._budget,
            steady=self._steady,
            waits=slow,
        )

    def __repr__(self) -> str:
        return f"<context of {self.plan.title} by {self.plan.engine}>"


def _stale(ref: Any) -> bool:
    return bool(ref.is_stale)
