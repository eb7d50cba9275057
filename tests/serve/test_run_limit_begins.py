"""When the run limit of a model begins: with the call, as its host tells, and not while another holds that host."""

import asyncio
import ctypes
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serve_lab import TIMEOUT, until
from tests.device.residents.lab import Gate, wait_at

import callboard as cb
from callboard.actors import ManualClock
from callboard.device.client.residents.reply import calls_made
from callboard.patterns.requests import runs
from callboard.patterns.requests.runs import Run, RunLimit
from callboard.serve import EdgeLimits

processes = pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only")


class Scripted(Run):
    """A run that says what the test wants."""

    def __init__(self, *told: float | None) -> None:
        super().__init__([])
        self.waiting = self.only = False
        self.told = list(told)
        self.ended = 0

    def waits(self) -> bool:
        return self.waiting

    async def ran(self, timeout: float) -> float | None:
        return self.told.pop(0)

    def alone(self) -> bool:
        return self.only

    def overrun(self, grace: float, why: str) -> bool:
        self.ended += 1
        return False


class Limited:
    """A run under a limit of one second, which the test moves."""

    def __init__(self, run: Run, value: Any) -> None:
        self.clock = ManualClock()
        self.task = asyncio.ensure_future(RunLimit(1.0, "m", self.clock).over(run, value))

    async def advance(self, seconds: float) -> None:
        await until(lambda: self.clock.pending == 1)
        self.clock.advance(seconds)


async def spent_at(run: Scripted, *moments: tuple[float, Callable[[], None] | None]) -> float:
    """Moves the clock; the time at which the run was ended."""
    limited = Limited(run, asyncio.get_running_loop().create_future())
    async with asyncio.timeout(TIMEOUT):
        for seconds, then in moments:
            assert run.ended == 0
            await limited.advance(seconds)
            await until(lambda: limited.clock.pending or run.ended)
            if then is not None:
                then()
        with pytest.raises(cb.BudgetSpent, match=r"model 'm': .* limit of 1 s"):
            await limited.task
    assert (run.ended, limited.clock.pending, run.told) == (1, 0, [])
    return limited.clock.time()


async def test_a_call_that_began_with_the_run() -> None:
    assert await spent_at(Scripted(1.0), (1.0, None)) == 1.0


async def test_a_call_that_waited_has_its_whole_limit() -> None:
    assert await spent_at(Scripted(0.25, 1.0), (1.0, None), (0.75, None)) == 1.75


async def test_a_call_that_the_host_has_not_begun_waits() -> None:
    assert await spent_at(Scripted(0.0, 0.5, 1.0), (1.0, None), (1.0, None), (0.5, None)) == 2.5


async def test_a_call_that_waits_as_far_as_is_known_here_is_not_asked_about() -> None:
    run = Scripted(1.0)
    run.waiting = True
    assert await spent_at(run, (1.0, lambda: setattr(run, "waiting", False)), (1.0, None)) == 2.0


async def test_a_turn_that_came_before_the_limit_is_remembered() -> None:
    run = Scripted(1.0)
    limited = Limited(run, asyncio.get_running_loop().create_future())
    async with asyncio.timeout(TIMEOUT):
        await until(lambda: limited.clock.pending)
        run.begins(0.5)
        await limited.advance(1.0)
        await limited.advance(0.25)
        assert not run.ended
        await limited.advance(0.25)
        with pytest.raises(cb.BudgetSpent):
            await limited.task


async def test_a_host_that_another_held_begins_the_limit_anew() -> None:
    assert await spent_at(Scripted(None, None, 1.0, 1.0), (1.0, None), (1.0, None)) == 2.0


async def test_a_host_that_only_the_run_can_hold() -> None:
    run = Scripted(None)
    run.only = True
    assert await spent_at(run, (1.0, None)) == 1.0


async def test_nothing_is_left_of_a_run_that_ends_in_time() -> None:
    value: Any = asyncio.get_running_loop().create_future()
    limited = Limited(Scripted(0.5), value)
    async with asyncio.timeout(TIMEOUT):
        await limited.advance(1.0)
        await until(lambda: limited.clock.pending)
        value.set_result(5)
        assert await limited.task == 5
        await until(lambda: limited.clock.pending == 0)


# -- on a host ---------------------------------------------------------------------------------------------------------


class Worker(cb.ResidentActor):
    """Waits at gates."""

    def wait(self, gate: str) -> str:
        wait_at(gate)
        return gate

    def hold(self, gate: str) -> str:
        """Keep the interpreter of the process until the gate opens, in one call of C."""
        ctypes.PyDLL(None).system(f"cat {shlex.quote(gate)}".encode())
        return gate

    def triple(self, x: np.ndarray) -> np.ndarray:
        return 3 * x


@pytest.fixture
def gates(tmp_path: Path) -> Iterator[list[Gate]]:
    made = [Gate(tmp_path / str(i)) for i in range(2)]
    yield made
    for each in made:
        each.open_for_good()


def limited_call(call: Callable[[], Any]) -> tuple[Run, Limited]:
    """A run of a function that makes a call."""
    run = Run([])
    before = calls_made.set(run)
    value = call()
    calls_made.reset(before)
    return run, Limited(run, value)


@processes
@pytest.mark.parametrize("isolation", ["thread", "process"])
async def test_time_behind_another_call_does_not_count(gates: list[Gate], isolation: Any) -> None:
    async with asyncio.timeout(TIMEOUT), cb.device("cpu", isolation=isolation, standby=None) as device:
        actor = device.actor_of(cb.Props(Worker))
        await actor.ready(timeout=TIMEOUT)
        first: Any = actor.call(Worker.wait, gates[0].path)
        await gates[0].reached()
        run, limited = limited_call(lambda: actor.call(Worker.wait, gates[1].path))
        began = await first.ran(TIMEOUT)
        assert began is not None
        assert began > 0
        assert await run.ran(TIMEOUT) == 0
        await limited.advance(0.9)
        await gates[0].let_through()
        assert await first == gates[0].path
        assert await first.ran(TIMEOUT) == 0
        await gates[1].reached()
        assert run.since > limited.clock.time()  # in real seconds, when the first one ended
        run.since = 0.0
        await limited.advance(0.2)
        await until(lambda: limited.clock.pending)
        assert run.since > 0.9
        assert not limited.task.done()
        await gates[1].let_through()
        assert await limited.task == gates[1].path


@processes
@pytest.mark.fault
async def test_who_holds_the_interpreter_and_who_does_not(gates: list[Gate], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "ANSWER", 0.05)
    monkeypatch.setattr(runs, "GRACE", 0.05)
    async with asyncio.timeout(TIMEOUT), cb.device("cpu", isolation="process", standby=None) as device:
        holder, other = device.actor_of(cb.Props(Worker)), device.actor_of(cb.Props(Worker))
        for each in (holder, other):
            await each.ready(timeout=TIMEOUT)
        _, held = limited_call(lambda: holder.call(Worker.hold, gates[0].path))
        await gates[0].reached()
        run, limited = limited_call(lambda: other.call(Worker.triple, np.ones(1)))
        asked: list[bool] = []
        found = run.alone
        monkeypatch.setattr(Run, "alone", lambda _: asked.append(found()) or asked[-1])
        await limited.advance(1.0)
        await until(lambda: len(asked) >= 2)
        assert not any(asked)
        await gates[0].let_through()
        assert (await limited.task).tolist() == [3.0]
        assert await held.task == gates[0].path
        assert device.health().restarts == 0
        monkeypatch.undo()
        monkeypatch.setattr(runs, "ANSWER", 0.05)
        monkeypatch.setattr(runs, "GRACE", 0.05)
        _, held = limited_call(lambda: holder.call(Worker.hold, gates[0].path))
        await gates[0].reached()
        await held.advance(1.0)
        with pytest.raises(cb.BudgetSpent, match="model 'm'"):
            await held.task
        assert (await other.call(Worker.triple, np.ones(1))).tolist() == [3.0]
        assert device.health().restarts == 1


@pytest.mark.parametrize("value", ["2", 2j, [1], True, 10**400], ids=["text", "complex", "list", "truth", "huge"])
def test_limits_of_an_app_are_numbers(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="request_timeout must be positive, but is"):
        EdgeLimits(request_timeout=value)
