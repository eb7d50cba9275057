"""A contest of engines: each executes a model a few times, and the fastest is taken."""

import math
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from callboard.core.backend.machine import cores
from callboard.core.dtype import DTYPES
from callboard.core.errors import AccelError
from callboard.kernel.engine.choice.kept import keep, kept, key_of
from callboard.kernel.engine.choice.steps import Steps
from callboard.kernel.engine.files.reading import OnThread
from callboard.kernel.engine.inputs.profiles import Port, Profile
from callboard.kernel.engine.plan import EnginePlan, settled

__all__ = ["Contest", "usual_shapes"]

SECONDS = 1.0
"""Of all executions together, and of each."""
SLOW = 0.25
"""Seconds of an execution by the first engine above which no other one is tried."""
ROUNDS = 5
BETTER = 0.9
"""Share of the first engine's time that another may take at most, to be chosen."""
MOST_BYTES = 64 << 20
"""Of a model that is measured: every engine reads it, and keeps its weights."""
MOST_ELEMENTS = 1 << 24
"""Of the inputs that are made up."""


def usual_shapes(ports: Sequence[Port], profiles: Mapping[str, Profile]) -> dict[str, tuple[int, ...]] | None:
    """The shapes that are measured: of the model, or of the profiles; None if one is not known."""
    found: dict[str, tuple[int, ...]] = {}
    for port in ports:
        shape = profiles[port.name].usual if port.name in profiles else port.shape
        if shape is None or not all(isinstance(n, int) for n in shape):
            return None
        found[port.name] = tuple(n for n in shape if isinstance(n, int))
    return found if sum(map(math.prod, found.values())) <= MOST_ELEMENTS else None


class Contest:
    """Chooses between engines for one model, by executions with zeros.

    Args:
        build: Gives the answer with the plan by the engine of a name.
        context: Makes a context of a plan, with a budget.
        release: Lets go of a plan.
        put: Copies a host array to the device.
        engines: Names; the first one is taken if there is no measurement.
        usual: Why it is taken then.
        clock: Gives seconds.
    """

    def __init__(
        self,
        build: Callable[[str], Any],
        context: Callable[..., Any],
        release: Callable[[EnginePlan], Any],
        put: Callable[..., Any],
        engines: Sequence[str],
        usual: str,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._build, self._context, self._release, self._put = build, context, release, put
        self._engines, self._usual, self._clock = list(engines), usual, clock

    def steps(self, data: bytes, versions: Mapping[str, Any]) -> Steps[EnginePlan]:
        """The plan of the fastest engine; its ``reason`` has the seconds of each.

        Args:
            data: The model.
            versions: What else its speed depends on, besides the machine.
        """
        first = yield self._build(self._engines[0])
        shapes = usual_shapes(first.inputs, first.profiles)
        if shapes is None or len(data) > MOST_BYTES:
            why = "a shape is open; give a profile" if shapes is None else f"it has {len(data)} bytes"
            return self._told(first, f"{self._usual}; not measured: {why}")
        key, seconds = yield OnThread(partial(_looked_up, data, {"shapes": shapes, "first": first.version, **versions}))
        told = "as kept in the cache"
        plans = {first.engine: first}
        if seconds is None or set(seconds) != set(self._engines):
            told = "now"
            try:
                seconds = yield from self._measured(plans, shapes)
            except (AccelError, NotImplementedError, ValueError) as e:
                return self._told(first, f"{self._usual}; not measured: {e!s:.300}")
            if len(seconds) < len(self._engines):
                slow = f"an execution takes {seconds[first.engine]:.3g} s"
                return self._told(first, f"{self._usual}; not measured: {slow}")
            yield OnThread(partial(keep, key, seconds))
        best = min(seconds, key=seconds.__getitem__)
        if seconds[best] > BETTER * seconds[first.engine]:
            best = first.engine
        times = ", ".join(f"{name} {1e3 * seconds[name]:.3g} ms" for name in self._engines)
        at = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        if best not in plans:
            plans[best] = yield self._build(best)
        for name, plan in plans.items():
            if name != best:
                self._release(plan)
        return self._told(plans[best], f"measured {told}: {times} for {at or 'no inputs'}")

    def _told(self, plan: EnginePlan, reason: str) -> EnginePlan:
        plan.reason = reason
        return plan

    def _measured(self, plans: dict[str, EnginePlan], shapes: Mapping[str, tuple[int, ...]]) -> Steps[dict[str, float]]:
        """The shortest time of each engine; of the first one alone, if that is long. Fills in ``plans``."""
        first = next(iter(plans.values()))
        dtypes = {port.name: DTYPES[port.dtype].np for port in first.inputs}
        inputs = {name: settled(self._put, np.zeros(shape, dtypes[name])) for name, shape in shapes.items()}
        seconds: dict[str, float] = {}
        contexts: dict[str, Any] = {}
        for name in self._engines:
            if name not in plans:
                plans[name] = yield self._build(name)
            contexts[name] = self._context(plans[name], budget=SECONDS)
            seconds[name] = yield from self._once(contexts[name], inputs)
            if seconds[self._engines[0]] > SLOW:
                return seconds
        end = self._clock() + SECONDS
        for turn in range(ROUNDS):
            for name in self._engines:
                taken = yield from self._once(contexts[name], inputs)
                seconds[name] = min(taken, seconds[name]) if turn else taken
            if self._clock() > end:
                break
        return seconds

    def _once(self, context: Any, inputs: Mapping[str, Any]) -> Steps[float]:
        begin = self._clock()
        outs = yield from context.slices(inputs)
        waited = list(outs) if isinstance(outs, tuple) else [outs]
        while waited:
            yield waited.pop()
        return self._clock() - begin


def _looked_up(data: bytes, rest: Mapping[str, Any]) -> tuple[str, dict[str, float] | None]:
    """The name of a choice, and what is kept of it; for a thread."""
    key = key_of(data, machine=_machine(), **rest)
    return key, kept(key)


def _machine() -> tuple[Any, ...]:
    return platform.machine(), platform.processor(), cores(), np.__version__
