"""What each decision about memory, a library and a resident actor does, wherever the context lives."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any, Literal, cast
from unittest import mock

import numpy as np
import pytest
from tests.faults.load import BOUND

import callboard as cb
from callboard.core import registry
from callboard.testing import faulty
from callboard.testing.faulty import Failed, FaultyBackend

RESUME, RESTART, STOP, ESCALATE = (
    cb.Directive.RESUME,
    cb.Directive.RESTART,
    cb.Directive.STOP,
    cb.Directive.ESCALATE,
)
NO_MEMORY = {"oom_at": 2, "oom": 2}  # the allocation, and once more after the cache was released
CRASH = {"crash_at": 2}


class Mine(cb.DeviceSupervisor):
    """Its decisions are the test's; None is the default."""

    def __init__(self, **decisions: Any) -> None:
        super().__init__()
        self.decisions = decisions
        self.asked: list[tuple[str, cb.AccelError]] = []

    def _decide(self, piece: str, error: Any, default: Any) -> Any:
        self.asked.append((piece, error))
        return self.decisions.get(piece) if piece in self.decisions else default

    def on_context_lost(self, error: cb.ContextPoisoned, now: float) -> Any:
        return self._decide("lost", error, super().on_context_lost(error, now))

    def on_unrecoverable(self, error: cb.Unrecoverable, now: float) -> Any:
        return self._decide("unrecoverable", error, super().on_unrecoverable(error, now))

    def on_out_of_memory(self, error: cb.OutOfMemory, now: float) -> Any:
        return self._decide("memory", error, super().on_out_of_memory(error, now))

    def on_library_failure(self, error: cb.LibraryError, now: float) -> Any:
        return self._decide("library", error, super().on_library_failure(error, now))

    def on_actor_stopped(self, error: cb.ActorStopped, now: float) -> Any:
        return self._decide("actor", error, super().on_actor_stopped(error, now))


def at_end() -> Any:
    """Have ``fail_at`` fail with an exception of the library's own, which is found when the op is done."""
    return mock.patch.object(faulty, "Failed", return_value=Failed(cast(Any, RuntimeError("by the test"))))


class Ends(cb.ResidentActor):
    supervision = cb.OneForOne({Exception: cb.Directive.STOP})

    def end(self) -> None:
        raise RuntimeError("by the test")


async def run(mine: Mine, faults: dict[str, Any], folder: Path, **options: Any) -> tuple[str, str, dict[str, int]]:
    """The error of an op that fails, the device's state then, and the restarts of its libraries."""
    backend = FaultyBackend("cpu", once=str(folder / "struck"), **faults)
    undo = registry.register(backend.spec, backend)
    failed = ""
    try:
        async with asyncio.timeout(BOUND), cb.System("failures") as system:
            dev = await system.device(backend.spec, supervisor=mine, standby=None, **options)
            try:
                a = dev.put(np.eye(2))
                await a
                await dev.blas.gemm(a, a)
            except cb.AccelError as e:
                failed = type(e).__name__
            with contextlib.suppress(cb.AccelError):
                await dev.put(np.eye(2))  # launched after the decision, or lost by it
            restarts: dict[str, int] = {}
            with contextlib.suppress(cb.AccelError):
                await dev.ready()
                restarts = (await dev.stats()).library_restarts
            health = dev.health()
            return failed, health.error or health.state, restarts
    finally:
        undo()


@pytest.mark.parametrize("dispatcher", ["own", "caller"])
@pytest.mark.parametrize(
    "decision, restarts",
    [(RESUME, 0), (RESTART, 1), (cb.DeviceDecision(RESTART), 1)],
    ids=["resume", "restart", "decision"],
)
async def test_a_library_is_restarted_or_not(
    decision: Any, restarts: int, dispatcher: Literal["own", "caller"], tmp_path: Path
) -> None:
    mine = Mine(library=decision)
    failed, state, made_again = await run(mine, CRASH, tmp_path, isolation="thread", dispatcher=dispatcher)
    assert (failed, state, made_again["blas"]) == ("LibraryError", "ready", restarts)
    [(piece, error)] = mine.asked
    assert isinstance(error, cb.LibraryError)
    assert (piece, error.op, error.lib, error.unexpected) == ("library", "blas.gemm", "blas", True)


@pytest.mark.parametrize("dispatcher", ["own", "caller"])
@pytest.mark.parametrize(
    "decision, failed",
    [
        (RESUME, "OutOfMemory"),
        (cb.DeviceDecision(RESUME, trim=True), ""),
        (cb.DeviceDecision(ESCALATE, trim=True), ""),
        (cb.DeviceDecision(STOP, trim=True), ""),
    ],
    ids=["resume", "trim", "trim, escalate", "trim, stop"],
)
async def test_memory_is_trimmed_or_not(
    decision: Any, failed: str, dispatcher: Literal["own", "caller"], tmp_path: Path
) -> None:
    mine = Mine(memory=decision)
    found = await run(mine, NO_MEMORY, tmp_path, isolation="thread", dispatcher=dispatcher)
    assert found[:2] == (failed, "ready")
    assert [piece for piece, _ in mine.asked] == ["memory"]  # once, not again after the trim


@pytest.mark.parametrize("dispatcher", ["own", "caller"])
@pytest.mark.parametrize(
    "decisions, faults, text",
    [
        ({"memory": STOP}, NO_MEMORY, "Mine.on_out_of_memory gave the device up: injected at allocation"),
        ({"memory": cb.DeviceDecision(STOP, trim=True, reason="full")}, {**NO_MEMORY, "oom": 9}, ": full"),
        ({"memory": RESTART}, NO_MEMORY, "Mine.on_out_of_memory failed: TypeError: it returned <Directive.RESTART"),
        ({"memory": None}, NO_MEMORY, "it returned None; return one of cb.Directive.RESUME, cb.Directive.ESCALATE"),
        ({"library": STOP}, CRASH, "Mine.on_library_failure gave the device up: blas.gemm: RuntimeError: injected"),
        ({"library": 7}, CRASH, "Mine.on_library_failure failed: TypeError: it returned 7; return one of cb.Dir"),
        ({"library": cb.DeviceDecision(RESUME, trim=True)}, CRASH, "trim=True"),
        ({"library": ESCALATE}, CRASH, "Mine.on_library_failure gave the context up"),
        ({"memory": ESCALATE}, NO_MEMORY, "Mine.on_out_of_memory gave the context up"),
    ],
    ids=str,
)
async def test_the_device_stops_with_the_reason(
    decisions: Any, faults: Any, text: str, dispatcher: Literal["own", "caller"], tmp_path: Path
) -> None:
    mine = Mine(**decisions)
    failed, state, _ = await run(mine, faults, tmp_path, isolation="thread", dispatcher=dispatcher)
    assert failed
    assert text in state  # a context in a thread cannot be replaced, which ends ESCALATE


@pytest.mark.parametrize("faults", [{**NO_MEMORY, "oom": 4}, CRASH], ids=["memory", "library"])
async def test_escalation_is_a_loss(faults: Any, tmp_path: Path) -> None:
    mine = Mine(memory=cb.DeviceDecision(ESCALATE, trim=True), library=ESCALATE)
    failed, state, _ = await run(mine, faults, tmp_path, isolation="process")
    assert (failed, state) == ("ContextPoisoned" if "oom" in faults else "LibraryError", "ready")
    assert [piece for piece, _ in mine.asked] == ["memory" if "oom" in faults else "library", "lost"]
    assert type(mine.asked[1][1].__cause__) is type(mine.asked[0][1])


async def test_an_unrecoverable_device_may_get_another_chance(tmp_path: Path) -> None:
    mine = Mine(unrecoverable=cb.DeviceDecision(RESTART, pause=0.01))
    faults = {"refuse_at": 2, "refuse_with": "Unrecoverable"}
    assert (await run(mine, faults, tmp_path, isolation="process"))[:2] == ("ContextPoisoned", "ready")
    assert [piece for piece, _ in mine.asked] == ["unrecoverable"]


async def test_an_exception_that_is_found_when_the_op_is_done_is_decided_like_one_at_its_launch(tmp_path: Path) -> None:
    with at_end():
        failed, state, restarts = await run(Mine(library=RESTART), {"fail_at": 2}, tmp_path, isolation="thread")
        assert (failed, state, restarts["blas"]) == ("LibraryError", "ready", 1)
    with at_end():
        async with asyncio.timeout(BOUND), cb.device("faulty+cpu?fail_at=2", isolation="thread") as dev:
            with pytest.raises(cb.LibraryError) as caught:
                await (dev.put(np.eye(2)) @ dev.put(np.eye(2)))
            assert caught.value.unexpected
            assert sum((await dev.stats()).library_restarts.values()) == 1


@pytest.mark.parametrize("own_process", [False, True])
async def test_an_actor_that_stops_may_stop_the_device(own_process: bool) -> None:
    mine = Mine(actor=cb.DeviceDecision(STOP, reason="without it there is nothing to do"))
    async with asyncio.timeout(BOUND), cb.System("failures") as system:
        dev = await system.device("cpu", isolation="thread", supervisor=mine)
        actor = dev.actor_of(cb.Props(Ends), own_process=own_process)
        with pytest.raises(RuntimeError):
            await actor.call(Ends.end)
        watch = dev.events()
        async for event in watch:
            if isinstance(event, cb.Stopped):
                assert "nothing to do" in str(event.error)
    [(piece, error)] = mine.asked
    assert piece == "actor"
    assert isinstance(error.__cause__, RuntimeError)


async def test_a_host_launches_nothing_before_the_decision(tmp_path: Path) -> None:
    """Ops that were called before it wait for it, and use the handle that was made again."""
    mine = Mine(library=RESTART)
    async with asyncio.timeout(BOUND), cb.System("failures") as system:
        dev = await system.device("faulty+cpu?crash_at=3", supervisor=mine, isolation="thread")
        a = dev.put(np.eye(2))
        replies = [dev.blas.gemm(a, a) for _ in range(50)]
        ends = await asyncio.gather(*(reply.get() for reply in replies), return_exceptions=True)
        assert [type(end) for end in ends if isinstance(end, Exception)] == [cb.LibraryError]
        assert (await dev.stats()).plans["blas"].misses == 2  # the plan was made again, once
