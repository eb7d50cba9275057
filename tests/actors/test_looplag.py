"""Loop lag: long iterations of a loop beside pinned threads are counted and logged."""

import asyncio
import logging
import time
from collections.abc import Callable

import pytest
from actor_lab import Do, Lab, until

from callboard.actors import ActorSystem, LoopLag, Pinned, Props
from callboard.actors.loops import looplag
from callboard.actors.loops.looplag import LagGauge


class Handle:
    def cancel(self) -> None: ...


class Steps:
    """A loop whose callbacks are called one by one, and its clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[Callable[[], None]] = []

    def call_later(self, delay: float, call: Callable[[], None]) -> Handle:
        assert delay == looplag.PERIOD
        return self.call_soon(call)

    def call_soon(self, call: Callable[[], None]) -> Handle:
        self._due.append(call)
        return Handle()

    def iteration(self, seconds: float) -> None:
        """A look at an iteration that takes so long."""
        self._due.pop()()
        self.now += seconds
        self._due.pop()()


def test_iterations_are_counted_and_long_ones_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    loop = Steps()
    gauge = LagGauge(loop, "demo", lambda: loop.now)  # type: ignore[arg-type]
    gauge.start()
    loop.iteration(0.0005)
    assert gauge.value == LoopLag(last=0.0005, longest=0.0005, samples=1, long=0)
    assert not caplog.records
    for _ in range(3):
        loop.iteration(0.004)
    loop.iteration(0.0001)
    assert (gauge.value.last, gauge.value.longest) == pytest.approx((0.0001, 0.004))
    assert (gauge.value.samples, gauge.value.long) == (5, 3)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "loop of demo took 4.0 ms" in record.getMessage()
    loop.now += looplag.QUIET
    loop.iteration(0.002)
    assert len(caplog.records) == 2


async def test_a_system_looks_from_its_first_pinned_thread_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looplag, "PERIOD", 0.001)
    async with ActorSystem("lagging") as system:
        await system.actor_of(Props(Lab)).ask(Do(call=lambda _: 1))
        assert system.loop_lag is None
        pinned = system.actor_of(Props(Lab).with_dispatcher(Pinned("beside", switch_interval=None)))
        await pinned.ask(Do(call=lambda _: 1))

        def long() -> None:  # in every iteration, so whichever is looked at is a long one
            began = time.perf_counter()
            while time.perf_counter() < began + 0.005:
                pass
            if system.loop_lag is not None and not system.loop_lag.long:
                asyncio.get_running_loop().call_soon(long)

        long()
        await until(lambda: system.loop_lag is not None and system.loop_lag.long > 0)
        assert system.loop_lag is not None
        assert system.loop_lag.longest >= 0.005
    assert "an iteration of the loop of lagging took" in caplog.text
