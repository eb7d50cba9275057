"""Completion: how long the admitting thread waits, and who wakes it."""

import threading
from typing import Any
from unittest import mock

import pytest

from callboard.backends.cpu.stream import CpuStream
from callboard.device.host.context.completion import completion_for
from callboard.device.host.context.timelines import Timeline
from callboard.device.strategies.completion import WATCHDOG, HostFnCompletion, PolledCompletion, SyncCompletion

PATIENCE = 20.0


class Woken:
    """Counts and waits for wake-ups."""

    def __init__(self) -> None:
        self.count = 0
        self._event = threading.Event()

    def __call__(self) -> None:
        self.count += 1
        self._event.set()

    def wait(self) -> None:
        assert self._event.wait(PATIENCE)
        self._event.clear()


def made(name: str, woken: Woken) -> Any:
    completion = HostFnCompletion() if name == "host_fn" else SyncCompletion()
    completion.open(woken, lambda: None)
    return completion


def test_polling_spins_for_a_moment_after_the_last_op_and_blocks_then() -> None:
    now = [10.0]
    completion = PolledCompletion(0.5, lambda: now[0])
    assert completion.wait(flying=True) == 0
    assert completion.wait(flying=False) == 0
    now[0] += 0.4
    assert completion.wait(flying=False) == 0
    now[0] += 0.2
    assert completion.wait(flying=False) is None
    assert completion.wait(flying=False) is None  # no burnt core at rest
    assert completion.wait(flying=True) == 0
    assert completion.wait(flying=False) == 0
    completion.close()


@pytest.mark.parametrize("messages", [False, True], ids=["ops", "messages that are no ops"])
def test_polling_spins_longer_where_work_comes_back_soon(messages: bool) -> None:
    now = [10.0]
    completion = PolledCompletion(0.5, lambda: now[0])

    def pause(seconds: float) -> list[bool]:
        """Whether it still spins after 0.4, 0.6, 1.9 and 2.1 seconds of a pause."""
        began, spins = now[0], []
        completion.wait(flying=False)
        for at in (0.4, 0.6, 1.9, 2.1):
            if at < seconds:
                now[0] = began + at
                spins.append(completion.wait(flying=False) == 0)
        now[0] = began + seconds
        if messages:
            completion.came()
        else:
            completion.wait(flying=True)
        return spins

    assert pause(1.8) == [True, False]
    assert pause(3.0) == [True, True, True, False]
    assert pause(1.8) == [True, False]
    assert pause(1.8) == [True, True]
    assert pause(0.1) == []
    assert pause(3.0) == [True, True, True, False]
    assert pause(3.0) == [True, False, False, False]


@pytest.mark.parametrize("name", ["host_fn", "sync"])
def test_a_stream_that_has_passed_wakes_the_admitting_thread_once_per_seal(name: str) -> None:
    woken = Woken()
    stream = CpuStream(0)
    completion = made(name, woken)
    timeline = Timeline(stream)
    go = threading.Event()
    try:
        stream.submit(go.wait, PATIENCE)
        timeline.issued = 1
        timeline.record_event()
        completion.watch([timeline])
        completion.watch([timeline])  # nothing new
        assert completion.wait(flying=True) == WATCHDOG
        assert completion.wait(flying=False) is None
        assert woken.count == 0
        go.set()
        woken.wait()
        timeline.issued = 2
        timeline.record_event()
        completion.watch([timeline])
        woken.wait()
        stream.synchronize()
        assert woken.count == 2
        while timeline.poll():
            pass
        assert timeline.completed == 2
    finally:
        go.set()
        completion.close()
        stream.close()


@pytest.mark.parametrize("name", ["host_fn", "sync"])
def test_a_stream_with_nothing_in_flight_wakes_nobody(name: str) -> None:
    woken = Woken()
    stream = CpuStream(0)
    completion = made(name, woken)
    idle, busy = Timeline(stream), Timeline(stream)
    signalled: list[int] = []
    try:
        with mock.patch.object(CpuStream, "signal", lambda _, at: signalled.append(at)):
            idle.issued = idle.recorded = idle.completed = 5  # a call of a resident actor, done when it ended
            completion.watch([idle])
            assert idle not in completion._watched
            assert signalled == []
        busy.issued = 1
        busy.record_event()
        completion.watch([idle, busy])
        woken.wait()
        assert set(completion._watched) == {busy}
        stream.synchronize()
        assert woken.count == 1
    finally:
        completion.close()
        stream.close()


@pytest.mark.parametrize("name", ["host_fn", "sync"])
def test_closing_ends_its_thread(name: str) -> None:
    before = threading.active_count()
    completion = made(name, Woken())
    assert threading.active_count() == before + 1
    completion.close()
    assert threading.active_count() == before


def test_the_names_choose() -> None:
    kinds = [("polled", PolledCompletion), ("host_fn", HostFnCompletion), ("sync", SyncCompletion)]
    for name, kind in kinds:
        completion = completion_for(name, 1e-4, lambda: None, lambda: None, shared=False, looks=False)
        assert type(completion) is kind
        completion.close()
