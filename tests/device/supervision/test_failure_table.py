"""The table of ``docs/guides/supervision.md``: each row is provoked, and what happens is compared with what it says."""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import numpy as np
import pytest
from tests.device.supervision.test_supervisor_hook import Starter
from tests.faults.load import BOUND

import callboard as cb
import callboard.system
from callboard.core import registry
from callboard.device.supervision.decisions import PIECES, checked_decision
from callboard.device.supervision.supervisor import asked
from callboard.testing.faulty import FaultyBackend

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "supervision.md").read_text("utf-8")
Cells = tuple[str, ...]


def rows(heading: str) -> list[Cells]:
    """The body of the first table below a heading."""
    text = GUIDE.partition(f"## {heading}\n")[2]
    lines = re.search(r"^\|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert lines is not None
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines[1].splitlines()]


TABLE = {happens: cells for happens, *cells in rows("What happens by default")}


class Noting(cb.DeviceSupervisor):
    """The default, which notes what it was asked and what it decided."""

    def __init__(self, **budget: Any) -> None:
        super().__init__(**budget)
        self.last: tuple[str, str] = ("", "")


def _noting(piece: str) -> Callable[..., Any]:
    def decide(self: Noting, error: Any, now: float) -> Any:
        given = getattr(cb.DeviceSupervisor, piece)(self, error, now)
        decision = checked_decision(piece, given)
        more = " with `trim`" if decision.trim else " with `pause`" if decision.pause else ""
        self.last = f"`{piece}`", f"`{decision.directive.name}`{more}"
        return given

    return decide


for name in PIECES:
    setattr(Noting, name, _noting(name))


class Plain(cb.DeviceSupervisor):
    """The default itself, whose decisions about memory and libraries are made in the host."""

    last = None


class Model(cb.ResidentActor):
    supervision = cb.OneForOne({RuntimeError: cb.Directive.STOP, ValueError: cb.Directive.RESUME})

    def fail(self, fatal: bool) -> None:
        raise RuntimeError("by the test") if fatal else ValueError("by the test")


async def product(dev: cb.Device) -> None:
    a = dev.put(np.eye(2))
    await a
    await dev.blas.gemm(a, a)


async def singular(dev: cb.Device) -> None:
    await dev.solver.cholesky(dev.put(-np.eye(2)))


async def raising(dev: cb.Device) -> None:
    await dev.actor_of(cb.Props(Model)).call(Model.fail, False)


async def stopping(dev: cb.Device) -> None:
    actor = dev.actor_of(cb.Props(Model))
    with pytest.raises(RuntimeError):
        await actor.call(Model.fail, True)
    await actor.call(Model.fail, False)


BEING_SET_UP = "a context is lost while resident actors are set up"
LOST = {"kill_at": 2}
HALF = {"max_restarts": 0, "on_exhausted": "half_open", "within": 0.01}
ROWS: dict[
    str, tuple[dict[str, Any], Literal["process", "thread"], dict[str, Any], Callable[[cb.Device], Awaitable[None]]]
] = {
    "a context is lost": (LOST, "process", {}, product),
    "more contexts are lost than `max_restarts` within `within`": (LOST, "process", {"max_restarts": 0}, product),
    'the same with `on_exhausted="half_open"`': (LOST, "process", HALF, product),
    "a context in a thread of the application is lost": ({"poison_at": 2}, "thread", {}, product),
    "the device reports `Unrecoverable`": ({"refuse_at": 2, "refuse_with": "Unrecoverable"}, "process", {}, product),
    "no memory, but enough after a trim": ({"oom_at": 2, "oom": 2}, "thread", {}, product),
    "no memory after a trim": ({"oom_at": 2, "oom": 4}, "thread", {}, product),
    "a library has no memory for an operation that has begun": ({"refuse_at": 2}, "thread", {}, product),
    "a library returns an error status": ({"fail_at": 2}, "thread", {}, product),
    "a library raises an exception of its own": ({"crash_at": 2}, "thread", {}, product),
    "an operation is refused, or its numbers have no result": ({}, "thread", {}, singular),
    "a method of a resident actor raises": ({}, "thread", {}, raising),
    "a resident actor stops after a failure": ({}, "thread", {}, stopping),
}


async def observed(row: str, tmp_path: Path, supervisor: Any, dispatcher: Literal["own", "caller"] = "own") -> Cells:
    """What the row's cells should say."""
    faults, isolation, _, work = ROWS[row]
    faulty = FaultyBackend("cpu", once=str(tmp_path / "struck"), **faults)
    undo = registry.register(faulty.spec, faulty)
    failed = ""
    try:
        async with asyncio.timeout(BOUND), cb.System("table") as system:
            dev = await system.device(
                faulty.spec, isolation=isolation, standby=None, supervisor=supervisor, dispatcher=dispatcher
            )
            try:
                await work(dev)
            except Exception as e:
                failed = f"`{type(e).__name__}`"
            stopped = dev.health().state == "stopped"
            if not stopped:
                await dev.ready()
                await product(dev)
            restarts = {} if stopped else (await dev.stats()).library_restarts
            lost = dev.health().restarts
    finally:
        undo()
    device = "stops" if stopped else "gets another context" if lost else "continues"
    if any(restarts.values()):
        device += ", the library with another handle"
    return (*(supervisor.last or TABLE[row][:2]), failed, device)


@pytest.mark.parametrize("row", ROWS)
async def test_what_the_guide_says_happens(row: str, tmp_path: Path) -> None:
    assert await observed(row, tmp_path, Noting(**ROWS[row][2])) == tuple(TABLE[row])


@pytest.mark.parametrize("dispatcher", ["own", "caller"])
@pytest.mark.parametrize("row", [row for row in ROWS if "memory" in row or "library" in row])
async def test_the_host_decides_by_itself_like_the_default(
    row: str, dispatcher: Literal["own", "caller"], tmp_path: Path
) -> None:
    supervisor = Plain()
    assert asked(supervisor) == []
    assert await observed(row, tmp_path, supervisor, dispatcher) == tuple(TABLE[row])


async def test_missing_packages() -> None:
    starter, supervisor = Starter(), Noting()
    with mock.patch.object(callboard.system, "starter_for", return_value=starter):
        async with asyncio.timeout(BOUND), cb.System("table") as system:
            dev = await system.device("cpu", isolation="process", standby=None, supervisor=supervisor, wait=False)
            ref = dev.put(np.ones(3))
            await asyncio.wait_for(starter.started.wait(), BOUND)
            starter.hosts[0].report(cb.BackendUnavailable("no such package"))
            with pytest.raises(cb.DeviceStopped) as caught:
                await ref
            cells = *supervisor.last, f"`{type(caught.value).__name__}`", "stops"
    assert cells == tuple(TABLE["the backend's packages are missing in the host"])


class Ending(cb.ResidentActor):
    """Ends the process the first time that it is set up."""

    def __init__(self, struck: str) -> None:
        self.struck = Path(struck)

    def setup(self, context: cb.HostContext) -> None:
        if not self.struck.exists():
            self.struck.touch()
            os._exit(1)

    def answer(self) -> int:
        return 42


async def test_a_setup_that_ends_the_process(tmp_path: Path) -> None:
    supervisor = Noting(max_restarts=0)  # so what is counted would stop the device
    async with asyncio.timeout(BOUND), cb.System("table") as system:
        dev = await system.device("cpu", isolation="process", standby=None, supervisor=supervisor)
        actor = dev.actor_of(cb.Props(Ending, str(tmp_path / "struck")))
        with pytest.raises(cb.ContextPoisoned) as caught:
            await actor.call(Ending.answer)
        assert await actor.call(Ending.answer) == 42
        asked_for, decided = supervisor.last
        cells = asked_for, f"{decided}, not counted", f"`{type(caught.value).__name__}`", "gets another context"
    assert cells == tuple(TABLE[BEING_SET_UP])


def test_the_table_has_no_other_row() -> None:
    assert {*ROWS, BEING_SET_UP, "the backend's packages are missing in the host"} == set(TABLE)


def test_the_methods_are_explained_with_all_that_they_may_return() -> None:
    told = {name: (directives, fields) for name, _, directives, fields in rows("Methods and decisions")}
    assert told == {
        f"`{name}`": (
            ", ".join(f"`{directive.name}`" for directive in piece.directives),
            ", ".join(f"`{field}`" for field in ("pause", "trim") if getattr(piece, field)),
        )
        for name, piece in PIECES.items()
    }
