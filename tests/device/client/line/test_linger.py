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
        assert seconds == 0.0
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


def polled(outboxes: list[Outbox], afters: list[int | None]) -> list[str]:
    """The polls, in order."""
    log: list[str] = []
    waits = []
    for outbox, after in zip(outboxes, afters, strict=True):
        host: Any = Polled(outbox._name, after, log)
        outbox.host = host
        outbox._schedule()
        waits.append((outbox, host.done))
    Outbox.linger_together(waits)
    return log


async def test_each_line_is_read_until_its_op_is_done(outboxes: list[Outbox]) -> None:
    assert "".join(polled(outboxes, [2, 1, 4])) == "abcaccc"
    assert [outbox._pauses for outbox in outboxes] == [0, 0, 0]


async def test_a_device_that_cannot_be_polled_stops_the_polling(outboxes: list[Outbox]) -> None:
    outboxes[1]._linger = 0.0
    assert polled(outboxes, [1, 1, 1]) == []


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
