"""Polling for the ops of several devices that one caller waits for."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from callboard.device.client.line.outbox import Outbox

pytestmark = pytest.mark.leaves_nothing


class Polled:
    """A host whose op is done at the ``after``-th poll; None: never."""

    def __init__(self, name: str, after: int | None, log: list[str]) -> None:
        self.name, self.after, self.log = name, after, log

    def linger(self, done: Callable[[], bool], seconds: float) -> bool:
        self.log.append(self.name)
        return done()

    def done(self) -> bool:
        return self.after is not None and self.log.count(self.name) >= self.after


@pytest.fixture
async def outboxes() -> AsyncIterator[list[Outbox]]:
    made = [Outbox(asyncio.get_running_loop(), name, 60.0) for name in "abc"]
    yield made
    for outbox in made:
        outbox.close()


def polled(outboxes: list[Outbox], afters: list[int | None], late: float = 0.0) -> list[str]:
    """The polls, in order; later ones are added."""
    log: list[str] = []
    waits = []
    for outbox, after in zip(outboxes, afters, strict=True):
        host: Any = Polled(outbox._name, after, log)
        outbox.host = host
        outbox._schedule()
        outbox._scheduled_at += late
        waits.append((outbox, host.done))
    Outbox.linger_together(waits)
    return log


async def test_each_line_is_read_until_its_op_is_done(outboxes: list[Outbox]) -> None:
    assert "".join(polled(outboxes, [2, 1, 4])) == "abcaccc"
    assert [outbox._pauses for outbox in outboxes] == [0, 0, 0]


async def test_a_device_that_cannot_be_polled_stops_the_polling(outboxes: list[Outbox]) -> None:
    outboxes[1]._linger = 0.0
    assert polled(outboxes, [1, 1, 1]) == []


async def test_an_iteration_of_the_loop_that_is_due_comes_first(outboxes: list[Outbox]) -> None:
    others: list[int] = []
    asyncio.get_running_loop().call_soon(lambda: others.append(len(log)))
    log = polled(outboxes, [1, 1, 1], late=-61.0)
    assert log == []
    await asyncio.sleep(0)
    assert (others, log) == ([0], ["a", "b", "c"])
    host: Any = outboxes[0].host
    host.after = 2
    outboxes[0]._scheduled_at -= 61.0
    outboxes[0].linger(host.done)
    assert log == ["a", "b", "c"]
    await asyncio.sleep(0)
    assert log == ["a", "b", "c", "a"]
    outboxes[0].linger(host.done)
    outboxes[0].host = None  # lost before the iteration
    await asyncio.sleep(0)
    assert log == ["a", "b", "c", "a"]


async def test_ops_that_take_longer_are_polled_for_seldom(
    outboxes: list[Outbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[Outbox.__module__], "LOOP_TURN", 60.0)
    outboxes[2]._linger = 1e-9  # over at once
    assert len(polled(outboxes, [None, None, None])) <= 3
    assert [outbox._pauses for outbox in outboxes] == [1, 1, 1]
    outboxes[2]._linger = 60.0
    assert polled(outboxes, [1, 1, 1]) == []  # skipped
    assert polled(outboxes, [1, 1, 1]) == ["a", "b", "c"]
    assert Outbox.linger_together([]) is None
