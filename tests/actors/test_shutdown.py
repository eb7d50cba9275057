"""Coordinated shutdown."""

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from actor_lab import turns, until

from callboard.actors import ActorSystem, CoordinatedShutdown, ManualClock, Phase, ShutdownError
from callboard.actors.shutdown import order_of

CHAIN = {"a": Phase(), "b": Phase(after=("a",)), "c": Phase(after=("b",))}


def recorder(seen: list[str]) -> Callable[[str], Callable[[], Awaitable[None]]]:
    def make(name: str) -> Callable[[], Awaitable[None]]:
        async def task() -> None:
            seen.append(f"{name} begins")
            await asyncio.sleep(0)
            seen.append(f"{name} ends")

        return task

    return make


@pytest.mark.parametrize(
    "edges",
    [
        {},
        {"a": ()},
        {"b": ("a",)},
        {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")},
        {"d": ("c",), "c": ("b",), "b": ("a",), "x": ("a",), "y": ()},
    ],
)
def test_phases_are_sorted_by_dependency(edges: dict[str, tuple[str, ...]]) -> None:
    """CoordinatedShutdownSpec: sort phases in topological order."""
    for order in itertools.permutations(edges.items()):
        result = order_of({name: Phase(after=after) for name, after in order})
        assert len(result) == len(set(result))
        for name, after in edges.items():
            assert all(result.index(other) < result.index(name) for other in after)


@pytest.mark.parametrize("edges", [{"a": ("a",)}, {"a": ("b",), "b": ("a",)}, {"a": ("c",), "b": ("a",), "c": ("b",)}])
def test_cycles_are_refused(edges: dict[str, tuple[str, ...]], clock: ManualClock) -> None:
    """CoordinatedShutdownSpec: detect cycles in phases (non-DAG)."""
    phases = {name: Phase(after=after) for name, after in edges.items()}
    with pytest.raises(ValueError, match="cycle"):
        CoordinatedShutdown(clock, phases)


async def test_ordered_phases_and_parallel_tasks(clock: ManualClock) -> None:
    """CoordinatedShutdownSpec: run ordered phases; tasks of a phase run side by side."""
    seen: list[str] = []
    make = recorder(seen)
    shutdown = CoordinatedShutdown(clock, CHAIN)
    for phase, name in (("c", "c1"), ("b", "b1"), ("b", "b2"), ("a", "a1")):
        shutdown.add_task(phase, name, make(name))
    await shutdown.run()
    assert seen[:2] == ["a1 begins", "a1 ends"]
    assert seen[2:4] == ["b1 begins", "b2 begins"]
    assert set(seen[4:6]) == {"b1 ends", "b2 ends"}
    assert seen[6:] == ["c1 begins", "c1 ends"]


async def test_run_from_a_phase(clock: ManualClock) -> None:
    """CoordinatedShutdownSpec: run from a given phase."""
    seen: list[str] = []
    make = recorder(seen)
    shutdown = CoordinatedShutdown(clock, CHAIN)
    for phase in "abc":
        shutdown.add_task(phase, phase, make(phase))
    await shutdown.run(from_phase="b", reason="test")
    assert [s for s in seen if "begins" in s] == ["b begins", "c begins"]
    assert shutdown.reason == "test"


async def test_only_once(clock: ManualClock) -> None:
    """CoordinatedShutdownSpec: only run once; the second caller waits for the first run."""
    seen: list[str] = []
    shutdown = CoordinatedShutdown(clock, CHAIN)
    shutdown.add_task("a", "a", recorder(seen)("a"))
    await asyncio.gather(shutdown.run(reason="first"), shutdown.run(reason="second"))
    await shutdown.run()
    assert seen == ["a begins", "a ends"]
    assert shutdown.reason == "first"


async def test_goes_on_after_a_timeout(clock: ManualClock) -> None:
    """CoordinatedShutdownSpec: continue after timeout or failure; the task is cancelled."""
    seen: list[str] = []
    shutdown = CoordinatedShutdown(clock, CHAIN)

    async def hangs() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            seen.append("cancelled")

    shutdown.add_task("a", "hangs", hangs, timeout=3.0)
    shutdown.add_task("b", "after", recorder(seen)("after"))
    run = asyncio.create_task(shutdown.run())
    await turns()
    clock.advance(2.9)
    await turns()
    assert seen == []
    clock.advance(0.2)
    await run
    assert seen == ["cancelled", "after begins", "after ends"]


async def test_a_loop_that_ends_in_the_middle_is_no_failure(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """``asyncio.run`` cancels all tasks, and reports each that ends in another way."""
    shutdown = CoordinatedShutdown(clock, CHAIN)
    begun = asyncio.Event()

    async def stuck() -> None:
        begun.set()
        await asyncio.Event().wait()

    shutdown.add_task("a", "stuck", stuck)
    before = asyncio.all_tasks()
    run = asyncio.create_task(shutdown.run())
    await begun.wait()
    tasks = asyncio.all_tasks() - before
    assert len(tasks) == 4  # the caller's, the phases', the task's and its work
    for task in tasks:
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert run in tasks
    assert {type(end) for end in ends} == {asyncio.CancelledError}
    assert not caplog.records


async def test_goes_on_after_a_failure(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []
    shutdown = CoordinatedShutdown(clock, CHAIN)

    def fails() -> None:
        raise OSError("in a task")

    shutdown.add_task("a", "fails", fails)
    shutdown.add_task("b", "after", recorder(seen)("after"))
    await shutdown.run()
    assert seen == ["after begins", "after ends"]
    assert len(caplog.records) == 1


async def test_stops_when_a_phase_may_not_fail(clock: ManualClock) -> None:
    """CoordinatedShutdownSpec: abort if recover = off."""
    seen: list[str] = []
    shutdown = CoordinatedShutdown(clock, CHAIN | {"a": Phase(recover=False)})

    def fails() -> None:
        raise OSError("in a task")

    shutdown.add_task("a", "fails", fails)
    shutdown.add_task("b", "after", recorder(seen)("after"))
    with pytest.raises(ShutdownError, match="phase a failed: in a task") as caught:
        await shutdown.run()
    assert isinstance(caught.value.__cause__, OSError)
    assert seen == []


async def test_disabled_phases_are_skipped(clock: ManualClock) -> None:
    """CoordinatedShutdownSpec: skip tasks in disabled phase; the order of the others holds."""
    seen: list[str] = []
    make = recorder(seen)
    shutdown = CoordinatedShutdown(clock, CHAIN | {"b": Phase(after=("a",), enabled=False)})
    for phase in "abc":
        shutdown.add_task(phase, phase, make(phase))
    await shutdown.run()
    assert [s for s in seen if "begins" in s] == ["a begins", "c begins"]


async def test_task_added_to_a_later_phase_by_a_running_one(clock: ManualClock) -> None:
    """CoordinatedShutdownSpec: be possible to add tasks in later phase from task in earlier phase."""
    seen: list[str] = []
    make = recorder(seen)
    shutdown = CoordinatedShutdown(clock, CHAIN)

    def add() -> None:
        shutdown.add_task("c", "added", make("added"))

    shutdown.add_task("a", "adds", add)
    await shutdown.run()
    assert seen == ["added begins", "added ends"]


async def test_task_can_be_taken_back(clock: ManualClock) -> None:
    """CoordinatedShutdownSpec: be cancellable."""
    seen: list[str] = []
    shutdown = CoordinatedShutdown(clock, CHAIN)
    make = recorder(seen)
    take_back = shutdown.add_task("a", "same name", make("first"))
    shutdown.add_task("a", "same name", make("second"))
    take_back()
    take_back()
    await shutdown.run()
    assert seen == ["second begins", "second ends"]


async def test_unknown_phase(clock: ManualClock) -> None:
    """CoordinatedShutdownSpec: throw error when adding a task for an unknown phase."""
    shutdown = CoordinatedShutdown(clock, CHAIN)
    with pytest.raises(ValueError, match="no shutdown phase 'z'"):
        shutdown.add_task("z", "t", lambda: None)
    with pytest.raises(ValueError, match="no shutdown phase 'z'"):
        await shutdown.run(from_phase="z")


async def test_leaving_the_system_runs_the_phases(caplog: pytest.LogCaptureFixture) -> None:
    """CoordinatedShutdownSpec: terminate the ActorSystem; tasks before and after the actors stop."""
    seen: list[Any] = []
    async with ActorSystem("test") as system:
        for phase in ("devices", "drain", "stop-accepting"):
            system.shutdown.add_task(phase, phase, lambda p=phase: seen.append((p, system.is_stopping)))
    assert seen == [("stop-accepting", False), ("drain", False), ("devices", True)]
    assert system.shutdown.order == ["stop-accepting", "drain", "cluster-leave", "actors", "devices"]


@pytest.mark.skipif(sys.platform == "win32", reason="no signals to send to oneself")
async def test_a_signal_ends_the_system_in_order(caplog: pytest.LogCaptureFixture) -> None:
    """The phases run, the body is ended, the status is the signal's; a second signal changes nothing."""
    seen: list[str] = []
    before = signal.getsignal(signal.SIGTERM)

    async def draining() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: "SIGTERM again" in caplog.text)
        seen.append("drained")

    async def body() -> None:
        async with ActorSystem("test", stop_signals=(signal.SIGTERM,)) as system:
            system.shutdown.add_task("drain", "drain", draining)
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.get_running_loop().create_future()

    with pytest.raises(SystemExit) as ended:
        await body()
    assert ended.value.code == 128 + signal.SIGTERM
    assert seen == ["drained"]
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
    assert signal.getsignal(signal.SIGTERM) is before


async def test_signals_need_the_main_thread() -> None:
    """Refused at the start, before anything runs."""

    async def body() -> None:
        async with ActorSystem("test", stop_signals=(signal.SIGTERM,)):
            pass

    with pytest.raises(RuntimeError, match=r"SIGTERM cannot end the system: .* on the main thread"):
        await asyncio.to_thread(asyncio.run, body())
