"""What a user's supervisor returns or raises decides about a loss, or ends the device with that as the reason."""

import asyncio
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
from tests.device.supervision.scripted import ScriptedStarter
from tests.faults.load import BOUND

import callboard as cb
import callboard.system
from callboard.device.supervision.lifecycle import Event


class Scripted(cb.DeviceSupervisor):
    """Its decision is the test's."""

    def __init__(self, decide: Callable[[], Any]) -> None:
        super().__init__()
        self.decide = decide

    def on_loss(self, error: cb.AccelError, now: float) -> Any:
        return self.decide()


class Starter(ScriptedStarter):
    def __init__(self) -> None:
        super().__init__()
        self.started = asyncio.Event()

    async def start(self, *arguments: Any) -> Any:
        host = await super().start(*arguments)
        self.started.set()
        return host


async def lost(supervisor: cb.DeviceSupervisor, error: cb.AccelError) -> tuple[BaseException, ...]:
    """The errors of an op in flight at the loss, of a wait for a context, and of an op that is called later."""
    starter = Starter()
    with mock.patch.object(callboard.system, "starter_for", return_value=starter):
        async with asyncio.timeout(BOUND), cb.System("test") as system:
            dev = await system.device("cpu", isolation="process", standby=None, supervisor=supervisor, wait=False)
            await starter.started.wait()
            starter.hosts[0].ready()
            await dev.ready()
            ref = dev.put(np.ones(3))
            starter.hosts[0].report(error)
            errors = []
            with pytest.raises(cb.DeviceStopped) as caught:
                await ref
            errors.append(caught.value)
            with pytest.raises(cb.DeviceStopped) as caught:
                await dev.ready()
            errors.append(caught.value)
            with pytest.raises(cb.DeviceStopped) as caught:
                dev.put(np.ones(3))
            errors.append(caught.value)
            with pytest.raises(cb.DeviceStopped) as caught:
                await dev.room(1)
            return (*errors, caught.value)


WRONG: list[Any] = [
    cb.Directive.RESTART, None, True, "restart", Event.CONTEXT_READY, Event.STOP, Event.RETRY_DUE, Event, [1, 2],
    np.ones(3),
]  # fmt: skip


@pytest.mark.parametrize("value", WRONG, ids=str)
async def test_a_wrong_value_stops_the_device_and_is_named(value: Any) -> None:
    for error in await lost(Scripted(lambda: value), cb.ContextPoisoned("poisoned by the test")):
        assert "Scripted.on_loss" in str(error)
        assert repr(value) in str(error)
        assert "Event.CONTEXT_LOST" in str(error)
        assert "poisoned by the test" in str(error)
        assert isinstance(error.__cause__, TypeError)


async def test_what_it_raises_stops_the_device_and_is_the_cause() -> None:
    mine = KeyError("mine")

    def decide() -> Event:
        raise mine

    for error in await lost(Scripted(decide), cb.ContextPoisoned("poisoned by the test")):
        assert "Scripted.on_loss failed: KeyError: 'mine'" in str(error)
        assert error.__cause__ is mine


async def test_a_pause_before_the_next_attempt_must_be_a_number_of_seconds() -> None:
    supervisor = Scripted(lambda: Event.BUDGET_SPENT)
    supervisor.within = "soon"  # type: ignore[assignment]
    for error in await lost(supervisor, cb.ContextPoisoned("poisoned by the test")):
        assert "within is 'soon'" in str(error)
        assert isinstance(error.__cause__, ValueError)


async def test_giving_up_is_no_spent_budget() -> None:
    for error in await lost(Scripted(lambda: Event.UNRECOVERABLE), cb.ContextPoisoned("poisoned by the test")):
        assert "Scripted.on_loss gave the device up: poisoned by the test" in str(error)
        assert "more than" not in str(error)


async def test_a_spent_budget_is_named() -> None:
    for error in await lost(cb.DeviceSupervisor(max_restarts=0), cb.ContextPoisoned("poisoned by the test")):
        assert "more than 0 contexts lost within 60.0 s; last: poisoned by the test" in str(error)


@pytest.mark.parametrize("supervisor", [cb.DeviceSupervisor, "restart", 0])
async def test_something_that_is_no_supervisor_is_refused(supervisor: Any) -> None:
    async with cb.System("test") as system:
        with pytest.raises(TypeError, match="pass an instance of"):
            await system.device("cpu", supervisor=supervisor)


async def test_another_supervisor_for_an_open_device_is_refused() -> None:
    async with cb.System("test") as system:
        mine = cb.DeviceSupervisor()
        dev = await system.device("cpu", supervisor=mine)
        assert await system.device("cpu", supervisor=mine) is dev
        with pytest.raises(ValueError, match="open with another supervisor"):
            await system.device("cpu", supervisor=cb.DeviceSupervisor())


@pytest.mark.parametrize(
    "arguments", [{"max_restarts": -1}, {"within": 0.0}, {"within": float("nan")}, {"on_exhausted": "retry"}]
)
def test_a_budget_that_cannot_be_is_refused(arguments: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        cb.DeviceSupervisor(**arguments)
