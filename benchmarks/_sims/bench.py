"""How subjects are measured: on the host, through callboard's loop, and on a GPU through CuPy or torch."""

import asyncio
import importlib
import inspect
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from _harness import Bar, Figures, ratios, spread

import callboard as cb

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}

Subject = Callable[[], float]
"""Measures once: seconds of a call."""


class Section(NamedTuple):
    """What is measured of a blueprint.

    Attributes:
        title: As it is printed.
        subjects: By name.
        ours: The one that others are compared with.
        bars: What must be reached, of the figures.
        facts: What else was found: sizes, errors, stretches.
    """

    title: str
    subjects: dict[str, Subject]
    ours: str
    bars: Callable[[Figures], list[Bar]]
    facts: dict[str, float]


class Bench:
    """Where a section runs.

    Attributes:
        gpu: The open device.
        runner: Of the loop that it belongs to.
        cuda: Whether it is a GPU.
        scale: Of all sizes.
        seconds: For which a subject is measured in a round; read when it is.
    """

    def __init__(self, gpu: cb.Device, runner: asyncio.Runner, clock: str, scale: float) -> None:
        self.gpu, self.runner, self.scale = gpu, runner, scale
        self.cuda = gpu.backend == "cuda"
        self.seconds = 0.4
        self._clock = CLOCKS[clock]

    def size(self, cpu: int, cuda: int) -> int:
        """A number of things, at this scale."""
        return max(1, int((cuda if self.cuda else cpu) * self.scale))

    def side(self, cpu: int, cuda: int, multiple: int = 8) -> int:
        """The extent of a square of things."""
        return max(2 * multiple, int((cuda if self.cuda else cpu) * math.sqrt(self.scale)) // multiple * multiple)

    def call(self, function: Callable[[], Any], per: float = 1) -> Subject:
        """A function that returns when its work is done: seconds divided by ``per``, the best of several calls."""
        timing = self._timing()

        def run() -> float:
            if timing.cold:
                function()
            while timing.goes_on():
                start = self._clock()
                function()
                timing.took(self._clock() - start)
            return timing.least() / per

        return run

    def wait(self, call: Callable[[], Awaitable[Any]], per: float = 1) -> Subject:
        """The same for a coroutine function of callboard's, inside the loop."""
        timing = self._timing()

        async def some() -> float:
            if timing.cold:
                await call()
            while timing.goes_on():
                start = self._clock()
                await call()
                timing.took(self._clock() - start)
            return timing.least() / per

        return lambda: self.runner.run(some())

    def enqueue(self, call: Callable[[], Any], per: int) -> Subject:
        """The same for a function that enqueues an op of callboard's: ``per`` of them, and then their end."""

        async def several() -> None:
            for _ in range(per - 1):
                call()
            await call()

        return self.wait(several, per)

    def recorded(self, call: Callable[[], Any], per: int) -> Subject:
        """The same for ops of callboard's that are recorded, ``per`` of them, and replayed in one message."""

        def record() -> Any:
            call()  # puts what a recording cannot
            with self.gpu.record() as made:
                return made, [call() for _ in range(per)]

        made, _kept = self.done(record)
        return self.wait(lambda: made.replay(1), per)

    def launch(self, library: Any, call: Callable[[], Any], per: int) -> Subject:
        """The same for a function that enqueues work of CuPy's or torch's on a GPU; on a CPU torch has done it."""
        if library.__name__ == "cupy":
            synchronize = library.cuda.runtime.deviceSynchronize
        else:
            synchronize = library.cuda.synchronize if self.cuda else lambda: None

        def several() -> None:
            for _ in range(per):
                call()
            synchronize()

        return self.call(several, per)

    def _timing(self) -> "_Timing":
        return _Timing(lambda: self.seconds)

    def done(self, call: Callable[[], Any]) -> Any:
        """What a function gives inside the loop, or what that gives when it is awaited."""

        async def run() -> Any:
            found = call()
            return await found if inspect.isawaitable(found) else found

        return self.runner.run(run())

    def copied(self, nbytes: int, per: int) -> Subject:
        """A copy on the device that reads and writes ``nbytes`` together."""
        a, b = (self.done(lambda: self.gpu.zeros(nbytes // 2, "u1")) for _ in "ab")
        return self.enqueue(lambda: self.gpu.copy(a, out=b), per)

    def peer(self, name: str) -> Any:
        """A module, or None where it is not installed or sees no GPU; on a CPU, CuPy is None."""
        if name == "cupy" and not self.cuda:
            return None
        try:
            found = importlib.import_module(name)
        except ImportError:
            return None
        if name == "torch":
            if self.cuda and not found.cuda.is_available():
                return None
            found.set_num_threads(1)
        return found

    @property
    def torch_device(self) -> str:
        return "cuda" if self.cuda else "cpu"

    @property
    def warp_device(self) -> str:
        return "cuda:0" if self.cuda else "cpu"


class _Timing:
    """Whether to measure again: three times at least, unless that takes too long, and as long as there is time.

    Attributes:
        cold: Nothing has been measured yet; the first call, which compiles and allocates, is not.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds, self._times = seconds, list[float]()
        self._began = 0.0
        self.cold = True

    def goes_on(self) -> bool:
        if not self._times:
            self._began, self.cold = time.perf_counter(), False
            return True
        passed = time.perf_counter() - self._began
        return passed < self._seconds() * (1 if len(self._times) >= 3 else 4)

    def took(self, seconds: float) -> None:
        self._times.append(seconds)

    def least(self) -> float:
        found = min(self._times)
        self._times.clear()
        return found


def faster(figures: Figures, peer: str, ours: str, limit: float) -> Bar:
    """So many times a peer's speed, by the median of the rounds."""
    ratio = ratios(figures, peer, ours)
    return Bar(f"{ours}: speed to {peer}", ratio and ratio["median"], limit, at_least=True)


def takes(figures: Figures, ours: str, limit: float) -> Bar:
    """At most so many seconds."""
    return Bar(f"{ours}: seconds", spread(figures[ours])["median"], limit, at_least=False)
