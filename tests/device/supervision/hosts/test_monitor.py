"""Hangs, on a clock of the test's own."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from callboard.device.supervision.hosts.activity import Activity
from callboard.device.supervision.hosts.monitor import DUMP_TIME, Monitor

Start = Callable[..., Awaitable[Any]]
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only"),
    pytest.mark.fault,
    pytest.mark.timeout(60),
]


class Watch:
    """A monitor without a thread, and its clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.monitor = Monitor(lambda: self.now, threaded=False)

    def pass_seconds(self, seconds: int) -> None:
        """Look once a second; what has arrived is read first."""
        for _ in range(seconds):
            self.now += 1.0
            self.monitor.turn(0)

    async def turn_until(self, condition: Callable[[], bool]) -> None:
        """Look, without time passing, until it holds."""
        async with asyncio.timeout(20.0):
            while not condition():
                self.monitor.turn(0)
                await asyncio.sleep(0)


def stacks_of(talk: Any) -> str:
    """The stacks that have come, which are logged when no more comes."""
    return "\n".join(talk.host._watch.log._stack)


def stop(talk: Any) -> None:
    """Stop the process; it beats no more when this returns."""
    os.kill(talk.host.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, talk.host.pid, os.WSTOPPED)


@pytest.fixture
def watch() -> Iterator[Watch]:
    watch = Watch()
    yield watch
    watch.monitor.after_fork()  # closes its descriptors


@pytest.fixture
async def talk(start: Start, watch: Watch) -> AsyncIterator[Any]:
    talk = await start(monitor=watch.monitor, interval=1.0)
    await talk.ask("echo")
    yield talk
    if not talk.host.reaped.done():
        talk.host.kill("the test is over")
        await watch.turn_until(talk.host.reaped.done)


async def ended(watch: Watch, talk: Any) -> Any:
    await watch.turn_until(talk.host.reaped.done)
    return await talk.ended()


async def test_a_stopped_process_is_killed(talk: Any, watch: Watch, caplog: pytest.LogCaptureFixture) -> None:
    stop(talk)
    watch.pass_seconds(29)
    assert "no heartbeat" not in caplog.text
    watch.pass_seconds(2)
    assert "no heartbeat for 30 s; its stacks follow" in caplog.text
    watch.now += DUMP_TIME
    end = await ended(watch, talk)
    assert end.reason == "hung"
    assert end.detail.startswith("no heartbeat for 30 s (signal SIGKILL)")


async def test_stacks_are_logged_before_the_kill(start: Start, watch: Watch, caplog: pytest.LogCaptureFixture) -> None:
    """The process runs and beats; its admitting thread does not come back."""
    talk = await start(monitor=watch.monitor, hang_after=0.3, interval=0.01)
    await talk.ask("echo")
    talk.ask_later("stick")
    for _ in range(2000):
        watch.now += 0.01
        watch.monitor.turn(1.0)  # until the next heartbeat
        if "its stacks follow" in caplog.text:
            break
    assert "its admitting loop made no round for 0.3 s; its stacks follow" in caplog.text
    await watch.turn_until(lambda: "do_stick" in (text := stacks_of(talk)) and "childcontrol.py" in text)
    assert not talk.ends
    watch.now += DUMP_TIME
    end = await ended(watch, talk)
    assert end.reason == "hung"
    assert "it was at threading.py:" in end.detail
    assert re.search(r"called from standin\.py:\d+ in do_stick \(thread 0x", end.detail)
    assert "childcontrol.py" in end.details
    assert "do_stick" in caplog.text


async def test_a_thread_that_keeps_the_gil_is_a_hang(
    start: Start, watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even the control thread runs, so nothing beats; the stacks come all the same."""
    talk = await start(monitor=watch.monitor)
    talk.ask_later("hold_gil")
    await talk.until(lambda: any(getattr(message, "value", b"") == b"holding" for message in talk.messages))
    watch.monitor.turn(0)
    while "no heartbeat" not in caplog.text:
        watch.now += 0.2
        watch.monitor.turn(0)
    await watch.turn_until(lambda: "do_hold_gil" in stacks_of(talk))
    watch.now += DUMP_TIME
    assert (await ended(watch, talk)).reason == "hung"
    assert "do_hold_gil" in caplog.text


async def test_an_announced_step_is_no_hang_up_to_its_limit(
    talk: Any, watch: Watch, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk.ask_later("stick", b"announced")
    await watch.turn_until(lambda: talk.host._liveness._step == "a long step")
    monkeypatch.setattr(Activity, "goes_on", lambda _: True)  # it computes, and keeps the GIL
    stop(talk)
    watch.pass_seconds(290)
    assert "its stacks follow" not in caplog.text
    watch.pass_seconds(11)
    assert "its step 'a long step' did not end within 300 s (step_timeout); its stacks follow" in caplog.text
    watch.now += DUMP_TIME
    assert (await ended(watch, talk)).reason == "hung"


async def test_an_announced_step_is_a_hang_if_the_process_does_nothing(
    talk: Any, watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    talk.ask_later("stick", b"announced")
    await watch.turn_until(lambda: talk.host._liveness._step == "a long step")
    stop(talk)
    watch.pass_seconds(35)
    assert "in which its threads did nothing; its stacks follow" in caplog.text
    watch.now += DUMP_TIME
    assert (await ended(watch, talk)).reason == "hung"


async def test_a_step_of_another_thread_does_not_excuse_the_admitting_thread(
    talk: Any, watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    """The setup of a resident actor never ends; heartbeats come, and the admitting thread does not come back."""
    talk.ask_later("stick", b"beside")
    await watch.turn_until(lambda: bool(talk.host._liveness._others))
    liveness = talk.host._liveness
    for _ in range(200):  # heartbeats of 200 s, all alike
        liveness.beat(liveness._rounds, waiting=False, step="", others=["another thread's step"])
        watch.pass_seconds(1)
        if "no round" in caplog.text:
            break
    assert "its admitting loop made no round for 30 s; its stacks follow" in caplog.text
    watch.now += DUMP_TIME
    assert (await ended(watch, talk)).reason == "hung"


async def test_a_paused_watch(talk: Any, watch: Watch, caplog: pytest.LogCaptureFixture) -> None:
    talk.host.pause_watch(True)
    stop(talk)
    watch.pass_seconds(200)
    talk.host.pause_watch(False)
    watch.pass_seconds(29)
    assert "no heartbeat" not in caplog.text
    watch.pass_seconds(1)
    assert "no heartbeat" in caplog.text


async def test_an_application_that_was_stopped_kills_nobody(
    talk: Any, watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    stop(talk)  # as the debugger did with us
    watch.now += 3600.0
    watch.monitor.turn(0)
    watch.pass_seconds(28)
    os.kill(talk.host.pid, signal.SIGCONT)
    assert "no heartbeat" not in caplog.text
