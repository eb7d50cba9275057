"""Copies between devices, awaited one by one and submitted in a burst: the source's answers are not missed."""

import asyncio
import select
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.multi_device.copies_lab import BOUND, numbers, pair

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
    polled: list[tuple[bool, bool]] = []
    poll = Outbox.linger

    def linger(outbox: Outbox, done: Callable[[], bool]) -> None:
        polled.append((outbox is target.outbox, bool(target.sources)))
        poll(outbox, done)

    async with pair(isolation, isolation, which) as (a, b), asyncio.timeout(BOUND):
        x, out = await a.put(numbers()), await b.zeros(12)
        target: Any = out._port
        with monkeypatch.context() as patch:
            patch.setattr(Outbox, "linger", linger)
            while len(polled) < 10 or (False, True) not in polled:  # the source may answer before the copy is awaited
                await b.put(x, out=out)
        np.testing.assert_array_equal(await out.get(), numbers())
        assert not target.sources
    assert (True, True) not in polled, "polled the target, which waited for the source"


@pytest.mark.slow
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
