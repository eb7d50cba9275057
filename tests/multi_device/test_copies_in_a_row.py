"""Copies between devices, awaited one by one and submitted in a burst: the source's answers are not missed."""

import asyncio
import select
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.multi_device.copies_lab import BOUND, how, numbers, pair

import callboard as cb
from callboard.device.client.line.outbox import Outbox
from callboard.device.client.peers.lent import LentCopy

pytestmark = pytest.mark.leaves_nothing

WAYS = [("thread", "cpu"), ("process", "sharing")]


@pytest.fixture(autouse=True)
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")


@pytest.mark.parametrize("isolation, which", WAYS)
async def test_an_awaited_copy_polls_for_the_source_before_the_target(
    isolation: str, which: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if which == "sharing":
        request.getfixturevalue("sharing")
    polled: list[bool] = []
    poll = Outbox.linger

    def linger(outbox: Outbox, done: Callable[[], bool]) -> None:
        poll(outbox, done)
        polled.append(outbox._in_vain == 0)

    monkeypatch.setattr(Outbox, "linger", linger)
    settings: dict[str, Any] = {"standby": None, "linger": BOUND, **how(isolation)}
    async with cb.device(f"{which}:0", **settings) as a, cb.device(f"{which}:1", **settings) as b:
        x, out = await a.put(numbers()), await b.zeros(12)
        for _ in range(10):
            await b.put(x, out=out)
        np.testing.assert_array_equal(await out.get(), numbers())
    assert polled
    assert all(polled), "polled the target for all of the time, which waited for the source"


async def test_copies_of_a_burst_begin_while_it_is_submitted(sharing: None, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[LentCopy] = []
    held = LentCopy._held

    def counted(copy: LentCopy, shared: list[Any]) -> None:
        begun.append(copy)
        held(copy, shared)

    monkeypatch.setattr(LentCopy, "_held", counted)
    async with pair("process", "process", "sharing") as (a, b), asyncio.timeout(BOUND):
        x, out = await a.put(numbers()), await b.zeros(12)
        for _ in range(100):  # the loop has no turn in between
            copy = b.put(x, out=out)
            if begun:
                break
            port: Any = x._port
            answers = port.outbox.host._line._sock
            assert select.select([answers], [], [], BOUND)[0], "the source was not asked before the loop's next turn"
        assert begun
        await copy
        np.testing.assert_array_equal(await out.get(), numbers())
