"""Exceptions of resident actors: answers, restarts, the end of one actor."""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.device.residents.lab import Brief, Gate, Lasting, Leaving, OwnError, Probe, Restarting, interrupt_once

import callboard as cb
from callboard.actors.errors import ActorStopped

pytestmark = pytest.mark.leaves_nothing

BOUND = 20.0


async def restarted(actor: "cb.ResidentRef[Probe]", times: int) -> None:
    """The application has heard of so many restarts."""
    async with asyncio.timeout(BOUND):
        while actor.restarts < times:
            await actor.call(Probe.state)


@pytest.mark.parametrize(
    "how, kind, args",
    [
        ("value", ValueError, ("no", 3)),
        ("own", OwnError, ("bad!",)),
        ("key", KeyError, ("name",)),
        ("unicode", UnicodeDecodeError, None),
    ],
)
async def test_an_exception_reaches_the_caller_in_its_class_and_is_an_answer(
    dev: cb.Device, how: str, kind: type[Exception], args: tuple[object, ...] | None
) -> None:
    probe = dev.actor_of(cb.Props(Probe, 5), name="probe")
    await probe.call(Probe.add, 1)
    with pytest.raises(kind) as caught:
        await probe.call(Probe.fail, how)
    assert type(caught.value) is kind
    assert args is None or caught.value.args == args
    notes = "\n".join(caught.value.__notes__)
    assert "in the context host:" in notes
    assert "in fail" in notes
    assert f"probe.fail, made at {__file__}:" in notes
    if isinstance(caught.value, OwnError):
        assert caught.value.number == 7
    assert await probe.call(Probe.state) == (6, 1, 1)  # the same instance
    assert probe.restarts == 0
    assert (await dev.stats()).restarts == 0


async def test_many_bad_requests_stop_nothing(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    await probe.call(Probe.add, 1)
    for how in ("value", "key", "own", "unicode") * 3:
        with pytest.raises((ValueError, KeyError, OwnError)):
            await probe.call(Probe.fail, how)
    assert await probe.call(Probe.state) == (1, 1, 1)
    assert (probe.restarts, probe.is_stopped) == (0, False)


async def test_a_class_may_ask_for_restarts(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Restarting, 5))
    await probe.call(Probe.add, 1)
    with pytest.raises(KeyError):
        await probe.call(Probe.fail, "key")
    assert await probe.call(Probe.state) == (6, 1, 1)  # its rules call that an answer
    with pytest.raises(ValueError, match="no"):
        await probe.call(Probe.fail, "value")
    assert await probe.call(Probe.state) == (5, 1, 1)  # a new instance, prepared and set up
    await restarted(probe, 1)


class Careless(cb.ResidentActor):
    """Its methods raise what is no ``Exception``."""

    def __init__(self) -> None:
        self.calls = 0

    def plain(self, kind: str) -> None:
        self.calls += 1
        raise KINDS[kind]("now")

    def items(self, kind: str) -> Iterator[int]:
        yield self.calls
        self.plain(kind)

    def count(self) -> int:
        return self.calls


class CarelessLater(Careless):
    """The same with an event loop."""

    async def later(self, kind: str) -> None:
        await asyncio.sleep(0)
        self.plain(kind)

    async def later_items(self, kind: str) -> AsyncIterator[int]:
        yield self.calls
        self.plain(kind)

    def leave(self) -> None:
        self.opened = asyncio.Event()
        asyncio.get_running_loop().call_soon(sys.exit, 3)
        self.task = asyncio.get_running_loop().create_task(self.later("KeyboardInterrupt"))
        self.task.add_done_callback(lambda task: task.exception())

    async def wait(self) -> str:
        await self.opened.wait()
        return "opened"

    def open(self) -> None:
        self.opened.set()


KINDS = {kind.__name__: kind for kind in (SystemExit, KeyboardInterrupt, GeneratorExit, BaseException)}


async def test_what_is_no_exception_is_an_answer_however_often_it_is_raised(dev: cb.Device) -> None:
    actor, later = dev.actor_of(cb.Props(Careless)), dev.actor_of(cb.Props(CarelessLater))
    for each in (actor, later):
        methods: list[Any] = [Careless.plain] if each is actor else [Careless.plain, CarelessLater.later]
        streams: list[Any] = [Careless.items] if each is actor else [Careless.items, CarelessLater.later_items]
        for kind in KINDS:
            for method in methods:
                with pytest.raises(cb.RemoteError, match=kind):
                    await asyncio.wait_for(each.call(method, kind), BOUND)
            for items in streams:
                async with asyncio.timeout(BOUND):
                    with pytest.raises(cb.RemoteError, match=kind):
                        _ = [item async for item in each.stream(items, kind)]
        assert await each.call(Careless.count) == len(KINDS) * len(methods + streams)
        assert (each.restarts, each.is_stopped) == (0, False)


@pytest.mark.parametrize("isolation", ["thread"], indirect=True)
async def test_an_exit_of_a_task_of_the_actors_own_interrupts_no_call(
    dev: cb.Device, caplog: pytest.LogCaptureFixture
) -> None:
    actor = dev.actor_of(cb.Props(CarelessLater), name="careless")
    for times in range(1, 5):  # more often than it may be restarted
        await actor.call(CarelessLater.leave)
        waiting = actor.call(CarelessLater.wait)
        async with asyncio.timeout(BOUND):
            while await actor.call(Careless.count) < times:
                pass
        await actor.call(CarelessLater.open)
        assert await asyncio.wait_for(waiting, BOUND) == "opened"
    assert (actor.restarts, actor.is_stopped) == (0, False)
    assert "resident actor careless goes on after a failure in a task of its own" in caplog.text


class Leaver(Probe):
    """Is restarted by an exit."""

    supervision = cb.OneForOne({SystemExit: cb.Directive.RESTART, Exception: cb.Directive.RESUME})


@pytest.mark.parametrize("isolation", ["thread"], indirect=True)
async def test_the_rule_for_exceptions_holds_for_an_exit_unless_one_names_it(dev: cb.Device) -> None:
    for cls, restarts in ((Restarting, 0), (Leaver, 1), (Brief, 1)):
        actor = dev.actor_of(cb.Props(cls, 5))
        await actor.call(Probe.add, 1)
        with pytest.raises(cb.RemoteError, match="SystemExit: 3"):
            await actor.call(Probe.fail, "exit")
        assert await actor.call(Probe.state) == (6 - restarts, 1, 1)
        await restarted(actor, restarts)
        assert actor.restarts == restarts


async def test_what_cannot_be_rebuilt_is_a_remote_error_with_its_traceback(dev: cb.Device, isolation: str) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    kind = cb.RemoteError if isolation == "process" else Exception
    with pytest.raises(kind, match="hidden") as caught:
        await probe.call(Probe.fail, "local")
    if isolation == "process":
        assert isinstance(caught.value, cb.RemoteError)
        assert caught.value.type.endswith("Hidden")
        assert "raise Hidden" in caught.value.traceback
    with pytest.raises(cb.RemoteError, match="SystemExit: 3"):
        await probe.call(Probe.fail, "exit")


@pytest.mark.parametrize("where", ["prepare", "setup", "method"])
async def test_sys_exit_restarts_the_actor_within_its_budget(dev: cb.Device, where: str, tmp_path: Path) -> None:
    flag = tmp_path / "exits"
    if where != "method":
        flag.touch()
    actor = dev.actor_of(cb.Props(Leaving, where, str(flag)))  # one restart is allowed
    if where != "method":
        assert await actor.call(Leaving.state) == (0, 1, 1)
        assert not flag.exists()
        return
    with pytest.raises(cb.RemoteError, match="SystemExit: 3"):
        await actor.call(Leaving.fail, "exit")
    assert await actor.call(Leaving.state) == (0, 1, 1)
    with pytest.raises(cb.RemoteError, match="SystemExit: 3"):
        await actor.call(Leaving.fail, "exit")
    with pytest.raises(ActorStopped, match="SystemExit"):
        await actor.call(Leaving.state)


async def test_answers_and_want_of_memory_restart_nobody(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    await probe.call(Probe.add, 1)
    with pytest.raises(cb.ReplyError, match="an answer"):
        await probe.call(Probe.fail, "answer")
    with pytest.raises(cb.LibraryError) as library:
        await probe.call(Probe.fail, "library")
    assert (library.value.lib, library.value.code) == ("mine", 5)
    (await dev.zeros(100_000)).free()
    for how, text in (("memory", "MemoryError: too big"), ("torch", "OutOfMemoryError: CUDA out of memory")):
        with pytest.raises(cb.OutOfMemory, match=text):
            await probe.call(Probe.fail, how)
    assert (await dev.stats()).cached_bytes == 0  # the pools were trimmed
    assert await probe.call(Probe.state) == (1, 1, 1)
    assert probe.restarts == 0


async def test_the_mailbox_is_kept_over_a_restart(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Restarting))
    first = probe.call(Probe.add, 5)
    failed = probe.call(Probe.fail, "value")
    behind = [probe.call(Probe.add, 1) for _ in range(3)]
    assert await first == 5
    with pytest.raises(ValueError, match="no"):
        await failed
    assert [await r for r in behind] == [1, 2, 3]


async def test_a_spent_budget_stops_that_actor_only(dev: cb.Device) -> None:
    brief, other = dev.actor_of(cb.Props(Brief), name="brief"), dev.actor_of(cb.Props(Probe))
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            await brief.call(Probe.fail, "value")
    with pytest.raises(ActorStopped, match=r"brief has stopped: .*ValueError"):
        await brief.call(Probe.add, 1)
    async with asyncio.timeout(BOUND):
        while not brief.is_stopped:
            await other.call(Probe.add, 1)
    with pytest.raises(ActorStopped, match=r"brief has stopped: ValueError: \('no', 3\)") as caught:
        brief.call(Probe.add, 1)
    assert isinstance(caught.value.__cause__, ValueError)
    again = dev.actor_of(cb.Props(Brief), name="brief")
    assert await again.call(Probe.add, 1) == 1


async def test_calls_that_wait_when_the_budget_is_spent_fail(dev: cb.Device, gate: Gate) -> None:
    brief = dev.actor_of(cb.Props(Brief))
    running = brief.call(Probe.wait, gate.path)
    failing = [brief.call(Probe.fail, "value") for _ in range(2)]
    late = brief.call(Probe.echo, np.ones(100_000))
    await gate.let_through()
    await running
    for reply in failing:
        with pytest.raises(ValueError, match="no"):
            await reply
    with pytest.raises(ActorStopped):
        await late
    async with asyncio.timeout(BOUND):
        while (await dev.stats()).staged_bytes:
            pass


async def test_the_strategy_of_the_class_decides(dev: cb.Device) -> None:
    lasting = dev.actor_of(cb.Props(Lasting))
    await lasting.call(Probe.add, 1)
    for _ in range(6):
        with pytest.raises(ValueError, match="no"):
            await lasting.call(Probe.fail, "value")
    assert await lasting.call(Probe.state) == (1, 1, 1)
    with pytest.raises(KeyError):
        await lasting.call(Probe.fail, "key")
    with pytest.raises(ActorStopped):
        await lasting.call(Probe.add, 1)


async def test_a_setup_that_fails_is_tried_again_and_calls_wait(dev: cb.Device, tmp_path: Path) -> None:
    flag = tmp_path / "fail"
    flag.touch()
    log = tmp_path / "log"
    os_log = str(log)
    gate = Gate(tmp_path / "setup")
    probe = dev.actor_of(cb.Props(_Flaky, str(flag), os_log, gate.path))
    early = probe.call(Probe.add, 1)
    await gate.let_through()  # it is in its first setup
    flag.unlink()
    gate.open_for_good()
    assert await early == 1
    assert log.read_text().count("setup") >= 1
    assert not probe.is_stopped


class _Flaky(Probe):
    def __init__(self, flag: str, log: str, gate: str) -> None:
        super().__init__(0, flag, log)
        self.gate = gate

    def setup(self, ctx: cb.HostContext) -> None:
        from tests.device.residents.lab import wait_at

        wait_at(self.gate)
        super().setup(ctx)


async def test_a_setup_that_never_works_stops_the_actor(dev: cb.Device, tmp_path: Path) -> None:
    (tmp_path / "fail").touch()
    probe = dev.actor_of(cb.Props(Probe, 0, str(tmp_path / "fail"), str(tmp_path / "log")))
    with pytest.raises(ActorStopped, match="ValueError: setup failed"):
        await probe.call(Probe.add, 1)
    assert (tmp_path / "log").read_text().count("setup") == 4  # the first, and three restarts
    np.testing.assert_array_equal(await dev.zeros(2).get(), [0, 0])


async def test_a_constructor_that_fails_stops_the_actor(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(_Broken))
    with pytest.raises(ActorStopped, match="cannot be made"):
        await probe.call(Probe.add, 1)


class _Broken(Probe):
    def __init__(self) -> None:
        raise RuntimeError("cannot be made")


class _OddCause(Exception):
    __cause__: Any = property(lambda self: 5)


class _Odd(Probe):
    def fail(self, how: str) -> None:
        if how == "cause":
            raise _OddCause
        raise type("OutOfMemoryError", (RuntimeError,), {"__module__": None})("x")


@pytest.mark.parametrize("how", ["cause", "module"])
async def test_an_exception_of_an_odd_class_is_an_answer(dev: cb.Device, how: str) -> None:
    odd = dev.actor_of(cb.Props(_Odd))
    with pytest.raises((_OddCause, RuntimeError, cb.RemoteError)):
        await odd.with_timeout(BOUND).call(_Odd.fail, how)
    assert await odd.call(Probe.add, 1) == 1


@pytest.mark.parametrize("leads", [False, True])
async def test_a_call_that_an_error_of_the_host_interrupts_fails_with_the_actor(
    backend: str, monkeypatch: pytest.MonkeyPatch, leads: bool
) -> None:
    async with cb.device(backend, isolation="thread") as dev, asyncio.timeout(BOUND):
        probe = dev.actor_of(cb.Props(Probe), name="broken")
        while leads and not (await probe.call(Probe.place))[1]:
            pass
        array = dev.zeros(3)
        interrupt_once(monkeypatch)
        calls: list[Any] = [probe.call(Probe.fail, "value")] if leads else [probe.call(Probe.increment, array)]
        calls.append(probe.call(Probe.add, 1))
        for call in calls:
            with pytest.raises(ActorStopped, match=r"resident actor broken has stopped: .*RuntimeError: internal"):
                await call
        with pytest.raises(ActorStopped, match="RuntimeError: internal"):
            await probe.ready()
        if not leads:
            with pytest.raises(ActorStopped):
                await array.get()  # the call may have written it
        np.testing.assert_array_equal(await dev.zeros(2).get(), [0, 0])  # the host goes on


async def test_a_failed_call_keeps_none_of_its_arguments(dev: cb.Device) -> None:
    lasting = dev.actor_of(cb.Props(Lasting))
    for _ in range(3):
        with pytest.raises(ValueError, match="spoilt"):
            await lasting.call(Probe.fail_with, np.ones(1_000_000))
    async with asyncio.timeout(BOUND):
        while (await dev.stats()).staged_bytes:
            gc.collect()


async def test_a_failure_that_nobody_awaits_is_logged(
    dev: cb.Device, caplog: pytest.LogCaptureFixture, gates: Callable[[str], Gate]
) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    probe.call(Probe.fail, "value")
    await probe.call(Probe.add, 1)
    gc.collect()
    await dev.stats()
    assert [r for r in caplog.records if "was not awaited" in r.message]
