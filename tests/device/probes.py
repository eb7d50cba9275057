"""A library of ops for tests: they hold a stream, fail, answer late. Thread isolation only: tests hold the events."""

from typing import Any

import numpy as np
from tests.device.events import Events

from callboard.backends.cpu.device import CpuBackend
from callboard.backends.cpu.views import array_at
from callboard.core.errors import LibraryError
from callboard.core.layout import layout_of
from callboard.core.library import Library, launches, prepares
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, InOut, Out
from callboard.core.ref import GpuRef

PATIENCE = 20.0

EVENTS = Events()
"""Tests set them; ops and prepares wait for them (for ``PATIENCE`` at most)."""


FAILURES = {"crash": RuntimeError("the prepare failed"), "refuse": LibraryError("no plan", "other", 3)}
"""What a prepare raises when its op says so."""


class ProbeActor:
    """Serves the ops of this file."""


class Add(Op[ProbeActor, GpuRef], tag="probe.add"):
    """``out = x + n``, when the event ``after`` is set; fails when ``error`` says how."""

    x: In
    n: int = 1
    out: Out | None = None
    after: str = ""
    error: str = ""

    def infer(self) -> Outputs:
        return {"out": layout_of(self.x.dtype, self.x.shape)}


class Bump(Op[ProbeActor, GpuRef], tag="probe.bump"):
    """``x += n`` in place."""

    returns = ("x",)
    x: InOut
    n: int = 1
    after: str = ""

    def infer(self) -> Outputs:
        return {}


class Slow(Op["OtherActor", GpuRef], tag="other.slow"):
    """``out = x + 1`` by another library, so on another stream; its prepare waits for the event ``plan``."""

    x: In
    out: Out | None = None
    plan: str = ""
    after: str = ""

    def infer(self) -> Outputs:
        return {"out": layout_of(self.x.dtype, self.x.shape)}


class OtherActor:
    """Serves :class:`Slow`."""


def _wait(key: str) -> None:
    if key and not EVENTS[key].wait(PATIENCE):
        raise TimeoutError(f"nobody set {key}")


class ProbeLibrary(Library):
    name = "probe"

    @launches(Add)
    def add(self, stream: Any, plan: Add, x: int, out: int) -> Any:
        if plan.error == "launch":
            raise RuntimeError("the launch failed")

        def work() -> None:
            _wait(plan.after)
            if plan.error == "library":
                raise LibraryError("the library said no", "probe", 7)
            np.add(array_at(x, plan.x.layout), plan.n, out=array_at(out, layout_of(plan.x.dtype, plan.x.shape)))

        return stream.run("probe", work)

    @launches(Bump)
    def bump(self, stream: Any, plan: Bump, x: int) -> Any:
        def work() -> None:
            _wait(plan.after)
            array = array_at(x, plan.x.layout)
            array += plan.n

        return stream.run("probe", work)


class OtherLibrary(Library):
    name = "other"

    @prepares(Slow)
    def prepare(self, op: Slow) -> Slow:
        if op.plan in FAILURES:
            raise FAILURES[op.plan]
        _wait(op.plan)
        return op

    @launches(Slow)
    def slow(self, stream: Any, plan: Slow, x: int, out: int) -> Any:
        def work() -> None:
            _wait(plan.after)
            np.add(array_at(x, plan.x.layout), 1, out=array_at(out, layout_of(plan.x.dtype, plan.x.shape)))

        return stream.run("other", work)


class ProbeBackend(CpuBackend):
    """The CPU with the libraries of this file."""

    name = "probe"

    def libraries(self) -> dict[str, type[Library]]:
        return {**super().libraries(), "probe": ProbeLibrary, "other": OtherLibrary}
