"""Behaviour specific to thread hosts."""

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from callboard.device.protocol.messages import Completions
from callboard.device.supervision.hosts.thread import ThreadChannel

Start = Callable[..., Awaitable[Any]]


async def test_a_stuck_thread_is_reported_and_reaped_when_it_comes_back(start: Start) -> None:
    talk = await start("thread")
    talk.call(1)
    talk.ask_later("stick")
    await talk.until(lambda: talk.done == [1])
    assert await asyncio.to_thread(talk.sticks.wait, 30.0)
    talk.host.kill("it does not answer")
    await talk.until(lambda: bool(talk.ends))
    assert (talk.ends[0].reason, talk.ends[0].detail) == ("killed", "it does not answer")
    assert not talk.host.reaped.done()
    messages = len(talk.messages)
    talk.release()
    await talk.ended()
    assert len(talk.messages) == messages  # its late answer is nobody's


async def test_closing_a_stuck_thread_gives_up(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    talk = await start("thread")
    talk.ask_later("stick")
    assert await asyncio.to_thread(talk.sticks.wait, 30.0)
    await talk.host.close(0.01)
    assert talk.ends[0].reason == "killed"
    assert "left behind" in caplog.text
    assert not talk.host.reaped.done()


async def test_the_switch_interval_is_only_lowered(start: Start) -> None:
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(0.005)
        await start("thread")
        assert sys.getswitchinterval() == pytest.approx(2e-5)
        sys.setswitchinterval(1e-5)
        await start("thread")
        assert sys.getswitchinterval() == pytest.approx(1e-5)
    finally:
        sys.setswitchinterval(before)


async def test_a_burst_wakes_the_loop_once(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    talk = await start("thread")
    await talk.ask("echo")
    loop = asyncio.get_running_loop()
    wakes = []
    original = loop.call_soon_threadsafe
    monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *args: (wakes.append(args), original(*args))[1])
    talk.ask_later("flood", b"500")
    while not talk.host._outbox or len(talk.host._outbox) < 2000:  # the loop is busy here, so nothing is delivered
        pass
    assert len(wakes) == 1
    await talk.until(lambda: len([m for m in talk.messages if type(m) is Completions]) == 2000)


def test_a_thread_whose_work_is_seen_to_elsewhere_sleeps_until_it_is_woken() -> None:
    channel = ThreadChannel(deque(), lambda: None)
    channel.lent = True
    thread = threading.Thread(target=channel.receive, args=(1e-4,))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    channel.wake()
    thread.join(20.0)
    assert not thread.is_alive()


async def test_no_thread_is_left(start: Start) -> None:
    before = threading.active_count()
    for _ in range(20):
        talk = await start("thread")
        await talk.ask("echo")
        await talk.host.close(10.0)
    assert threading.active_count() == before
