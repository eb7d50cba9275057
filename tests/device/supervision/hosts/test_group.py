"""Processes that a host has started end with it."""

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from callboard.device.supervision.hosts import group as group_module
from callboard.device.supervision.hosts.group import HostGroup

Start = Callable[..., Awaitable[Any]]
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only"),
    pytest.mark.timeout(60),
]


@contextlib.contextmanager
def watched(pid: bytes) -> Iterator[Callable[..., bool]]:
    """Whether that process ends within so many seconds; it is killed at the end."""
    pidfd = os.pidfd_open(int(pid))
    try:
        yield lambda seconds=0.0: bool(select.select([pidfd], [], [], seconds)[0])
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)


# -- real processes ----------------------------------------------------------------------------------------------------


@pytest.mark.fault
@pytest.mark.parametrize("how", ["killed from outside", "killed", "exits", "closed"])
async def test_they_are_gone_when_the_host_is_reaped(start: Start, how: str) -> None:
    talk = await start()
    with (
        watched(await talk.ask("start", b"usual")) as gone,
        watched(await talk.ask("start", b"session")) as apart_gone,
        subprocess.Popen(["sleep", "1000"]) as sibling,  # noqa: ASYNC220 - of the application's group
    ):
        try:
            if how == "killed from outside":
                os.kill(talk.host.pid, signal.SIGKILL)
            elif how == "killed":
                talk.host.kill("for the test")
            elif how == "exits":
                talk.ask_later("leave", b"3")
            else:
                await talk.host.close(20.0)
            await talk.ended()
            assert gone()
            assert not apart_gone()
            assert sibling.poll() is None
        finally:
            sibling.kill()


@pytest.mark.fault
async def test_one_that_ignores_sigterm_is_killed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    talk = await start()
    with watched(await talk.ask("start", b"stubborn")) as gone:
        monkeypatch.setattr(group_module, "GRACE", 0.05)
        os.kill(talk.host.pid, signal.SIGKILL)
        await talk.ended()
        assert gone(20.0)  # the kernel takes what it takes, once it is killed


@pytest.mark.fault
async def test_shared_memory_of_a_killed_host_is_removed(start: Start) -> None:
    talk = await start()
    segment = Path("/dev/shm") / (await talk.ask("share")).decode()
    assert segment.exists()
    os.kill(talk.host.pid, signal.SIGKILL)
    await talk.ended()
    assert not segment.exists()


# -- the order of signals, and the time between them -------------------------------------------------------------------


class Loop:
    """Time and timers of a loop; each timer goes off so many seconds late."""

    def __init__(self, late: float) -> None:
        self.now = 0.0
        self.late = late
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay: float, call: Callable[..., None], *arguments: Any) -> None:
        self.timers.append((self.now + delay + self.late, lambda: call(*arguments)))

    def run(self) -> None:
        while self.timers:
            self.now, call = self.timers.pop()
            call()


class Members:
    """A group of which a signal leaves so many processes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, left: dict[int, int], late: float = 0.0) -> None:
        self.loop = Loop(late)
        self.signals: list[tuple[int, float]] = []
        self.polls = 0
        self.count = 2
        self._left = left
        monkeypatch.setattr(os, "killpg", self._killpg)
        monkeypatch.setattr(os, "listdir", lambda folder: ["self", *map(str, range(self.count))])
        monkeypatch.setattr(group_module, "_group_of", lambda pid: 4711)
        self.ends: list[bool] = []
        loop: Any = self.loop
        group = HostGroup(loop, 4711)
        group.terminate()
        group.when_gone(self.ends.append)
        self.loop.run()

    def _killpg(self, group: int, number: int) -> None:
        assert group == 4711
        self.polls += number == 0
        if number:
            self.signals.append((number, self.loop.now))
            self.count = self._left[number]
        elif not self.count:
            raise ProcessLookupError


def test_a_host_that_has_started_nothing_costs_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    members = Members(monkeypatch, {signal.SIGTERM: 0})
    assert (members.ends, members.signals, members.polls) == ([True], [(signal.SIGTERM, 0.0)], 1)


@pytest.mark.parametrize("left, ended", [(0, True), (1, False)])
def test_those_that_sigterm_leaves_get_sigkill(monkeypatch: pytest.MonkeyPatch, left: int, ended: bool) -> None:
    members = Members(monkeypatch, {signal.SIGTERM: 1, signal.SIGKILL: left})
    (_, first), (number, second) = members.signals
    assert members.ends == [ended]
    assert number == signal.SIGKILL
    assert first == 0.0
    assert group_module.GRACE <= second <= group_module.GRACE + group_module.PAUSES[1]
    assert members.loop.now <= 2 * (group_module.GRACE + group_module.PAUSES[1])


def test_where_the_loop_stands_still_they_are_looked_for_as_often_before_sigkill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They may not have run in that time either."""
    usual, late = (Members(monkeypatch, {signal.SIGTERM: 1, signal.SIGKILL: 0}, late) for late in (0.0, 3600.0))
    assert late.ends == [True]
    assert late.polls == usual.polls > 2


async def test_one_that_has_ended_and_was_not_waited_for_does_not_count() -> None:
    with subprocess.Popen(["true"], process_group=0) as ended:  # noqa: ASYNC220 - it ends by itself
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222
        os.killpg(ended.pid, 0)  # the kernel counts it
        found = asyncio.get_running_loop().create_future()
        HostGroup(asyncio.get_running_loop(), ended.pid).when_gone(found.set_result)
        assert found.done()
        assert found.result() is True
