"""Two libraries, so two streams, whose ops wait for events of the test and tell when they ran; in threads only."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from tests.device.events import Events

from callboard.backends.cpu.device import CpuBackend, CpuDevice
from callboard.backends.cpu.views import array_at
from callboard.core.backend import DeviceInfo, Memory
from callboard.core.errors import LibraryError
from callboard.core.layout import layout_of
from callboard.core.library import Library, launches
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, InOut, Out
from callboard.core.ref import GpuRef

PATIENCE = 20.0

events = Events()


class LeftActor:
    """Serves ``left.*``."""


class RightActor:
    """Serves ``right.*``."""


class Left(Op[LeftActor, GpuRef], tag="left.add"):
    """``out = x + n`` on the left stream, when the event ``after`` is set; sets ``sets`` then. Fails if ``fails``."""

    x: In
    n: int = 1
    out: Out | None = None
    after: str = ""
    sets: str = ""
    fails: bool = False

    def infer(self) -> Outputs:
        return {"out": layout_of(self.x.dtype, self.x.shape)}


class Right(Op[RightActor, GpuRef], tag="right.add"):
    """As :class:`Left`, on the right stream."""

    x: In
    n: int = 1
    out: Out | None = None
    after: str = ""
    sets: str = ""
    fails: bool = False

    def infer(self) -> Outputs:
        return {"out": layout_of(self.x.dtype, self.x.shape)}


class Bump(Op[LeftActor, GpuRef], tag="left.bump"):
    """``x += n`` in place, on the left stream."""

    returns = ("x",)
    x: InOut
    n: int = 1
    after: str = ""
    sets: str = ""
    fails: bool = False

    def infer(self) -> Outputs:
        return {}


def work(plan: Any, function: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        if plan.after and not events[plan.after].wait(PATIENCE):
            raise TimeoutError(f"nobody set {plan.after}")
        if plan.fails:
            raise LibraryError("it was told to fail", "steps", 3)
        function()
        if plan.sets:
            events[plan.sets].set()

    return run


def added(plan: Any, x: int, out: int) -> Callable[[], None]:
    target = array_at(out, layout_of(plan.x.dtype, plan.x.shape))
    return work(plan, lambda: np.add(array_at(x, plan.x.layout), plan.n, out=target))


class LeftLibrary(Library):
    name = "left"

    @launches(Left)
    def add(self, stream: Any, plan: Left, x: int, out: int) -> Any:
        return stream.run("left", added(plan, x, out))

    @launches(Bump)
    def bump(self, stream: Any, plan: Bump, x: int) -> Any:
        array = array_at(x, plan.x.layout)
        return stream.run("left", work(plan, lambda: np.add(array, plan.n, out=array)))


class RightLibrary(Library):
    name = "right"

    @launches(Right)
    def add(self, stream: Any, plan: Right, x: int, out: int) -> Any:
        return stream.run("right", added(plan, x, out))


class Spoiling(CpuDevice):
    """Memory that is given back to the driver is overwritten at once.

    It stays mapped and is not used again: an op that still reads it, which is an error, reads those bytes.
    """

    def __init__(self, info: DeviceInfo) -> None:
        super().__init__(info)
        self._released: list[object] = []

    def release(self, memory: Memory) -> None:
        ctypes.memset(memory.address, 0xEE, memory.nbytes)
        self._released.append(memory.owner)
        super().release(memory)


class StepsBackend(CpuBackend):
    """The CPU, with the libraries of this file."""

    name = "steps"

    def libraries(self) -> dict[str, type[Library]]:
        return {**super().libraries(), "left": LeftLibrary, "right": RightLibrary}

    def open(self, info: DeviceInfo) -> Spoiling:
        return Spoiling(info)
