"""What a user's supervisor returns or raises decides about a loss, or ends the device with that as the reason."""

import asyncio
import re
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
from tests.device.supervision.scripted import ScriptedStarter
from tests.faults.load import BOUND

import callboard as cb
import callboard.system
from callboard.device.supervision.supervisor import checked


class Scripted(cb.DeviceSupervisor):
    """Its decision is the test's."""

    def __init__(self, decide: Callable[[], Any]) -> None:
        super().__init__()
        self.decide = decide

    def on_context_lost(self, error: cb.AccelError, now: float) -> Any:
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
    cb.Directive.RESUME, cb.Directive.ESCALATE, cb.DeviceDecision(cb.Directive.STOP, pause=1.0), None, True, "restart",
    cb.DeviceDecision(cb.Directive.RESTART, trim=True), cb.DeviceDecision, cb.Directive, 1, [1, 2], np.ones(3),
]  # fmt: skip


@pytest.mark.parametrize("value", WRONG, ids=str)
async def test_a_wrong_value_stops_the_device_and_is_named(value: Any) -> None:
    for error in await lost(Scripted(lambda: value), cb.ContextPoisoned("poisoned by the test")):
        assert "Scripted.on_context_lost" in str(error)
        assert repr(value) in str(error)
        assert "cb.Directive.RESTART" in str(error)
        assert "poisoned by the test" in str(error)
        assert isinstance(error.__cause__, TypeError)


async def test_what_it_raises_stops_the_device_and_is_the_cause() -> None:
    mine = KeyError("mine")

    def decide() -> cb.Directive:
        raise mine

    for error in await lost(Scripted(decide), cb.ContextPoisoned("poisoned by the test")):
        assert "Scripted.on_context_lost failed: KeyError: 'mine'" in str(error)
        assert error.__cause__ is mine


@pytest.mark.parametrize("pause", ["soon", True, -1.0, float("nan"), float("inf")])
async def test_a_pause_must_be_a_number_of_seconds(pause: Any) -> None:
    for error in await lost(
        Scripted(lambda: cb.DeviceDecision(cb.Directive.RESTART, pause=pause)), cb.ContextPoisoned("x")
    ):
        assert f"pause is {pause!r}" in str(error)


async def test_a_reason_is_the_text_of_the_stop() -> None:
    decision = cb.DeviceDecision(cb.Directive.STOP, reason="the night shift is over")
    for error in await lost(Scripted(lambda: decision), cb.ContextPoisoned("poisoned by the test")):
        assert str(error).removesuffix("; open the device again").endswith(": the night shift is over")


async def test_giving_up_is_no_spent_budget() -> None:
    for error in await lost(Scripted(lambda: cb.Directive.STOP), cb.ContextPoisoned("poisoned by the test")):
        assert "Scripted.on_context_lost gave the device up: poisoned by the test" in str(error)
        assert "more than" not in str(error)


async def test_a_spent_budget_is_named() -> None:
    for error in await lost(cb.DeviceSupervisor(max_restarts=0), cb.ContextPoisoned("poisoned by the test")):
        assert "more than 0 contexts lost within 60.0 s; last: poisoned by the test" in str(error)


@pytest.mark.parametrize("supervisor", [cb.DeviceSupervisor, "restart", 0])
async def test_something_that_is_no_supervisor_is_refused(supervisor: Any) -> None:
    async with cb.System("test") as system:
        with pytest.raises(TypeError, match="pass an instance of"):
            await system.device("cpu", supervisor=supervisor)


def test_methods_that_would_never_be_called_are_refused_when_the_device_is_opened() -> None:
    class Old(cb.DeviceSupervisor):
        def on_loss(self, error: Any, now: float) -> None: ...

    class Misspelt(cb.DeviceSupervisor):
        def on_out_of_memry(self, error: Any, now: float) -> None: ...

    class Coroutine(cb.DeviceSupervisor):
        async def on_library_failure(self, error: Any, now: float) -> Any: ...  # type: ignore[override]

    class Short(cb.DeviceSupervisor):
        def on_context_lost(self, error: Any) -> Any: ...  # type: ignore[override]

    class Constant(cb.DeviceSupervisor):
        on_context_lost = cb.Directive.STOP  # type: ignore[assignment]

    class Bare(cb.DeviceSupervisor):
        def __init__(self) -> None: ...

    for wrong, text in [
        (Old, "Old.on_loss is never called; the methods that decide are on_context_lost"),
        (Misspelt, "Misspelt.on_out_of_memry is never called; is on_out_of_memory meant"),
        (Coroutine, "Coroutine.on_library_failure is a coroutine function"),
        (Short, "Short.on_context_lost(error: Any) -> Any is called as on_context_lost(error, now): too many"),
        (Constant, "Constant.on_context_lost is <Directive.STOP: 2>; make it a method, on_context_lost(error, now)"),
        (Bare, "Bare.__init__ does not call super"),
    ]:
        with pytest.raises(TypeError, match=re.escape(text.partition(" meant")[0])):
            checked(wrong())


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


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize("error", [Unprintable(), asyncio.CancelledError()])
async def test_a_supervisor_that_raises_the_unusual_ends_the_device_with_that(error: BaseException) -> None:
    def decide() -> Any:
        raise error

    for caught in await lost(Scripted(decide), cb.ContextPoisoned("gone")):
        assert f"Scripted.on_context_lost failed: {type(error).__name__}" in str(caught)
