"""An exception such as Ctrl-C at any point of a transfer: its memory is returned once, and the device works on."""

import contextlib
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.device.client.line import outbox
from callboard.device.client.line import releases as module
from callboard.device.client.line.outbox import Outbox
from callboard.device.client.line.port import OpPort
from callboard.device.client.line.releases import Releases
from callboard.device.protocol.arena import ranges
from callboard.device.protocol.arena.ranges import FreeRanges

CHUNKED = (40 << 20) // 4
"""Elements of an array that is copied in two parts."""


class Once:
    """Wraps a method: the ``at``-th call raises KeyboardInterrupt, before or after the work."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: type, name: str, *, after: bool, at: int = 1) -> None:
        self.left = 0
        real: Callable[..., Any] = getattr(owner, name)

        def method(own: Any, *args: Any, **keywords: Any) -> Any:
            self.left -= 1
            if self.left == 0 and not after:
                raise KeyboardInterrupt
            found = real(own, *args, **keywords)
            if self.left == 0:
                raise KeyboardInterrupt
            return found

        patch.setattr(owner, name, method)
        self._at = at

    def arm(self) -> None:
        self.left = self._at


POINTS = [
    (OpPort, "submit", True),
    (OpPort, "submit", False),
    (OpPort, "enter", True),
    (OpPort, "enter", False),
    (Outbox, "send", True),
    (Outbox, "send", False),
    (Outbox, "remind", False),
]


def used(dev: Any) -> int:
    return int(dev._transfers.arenas.stats.used)


def made(size: int, value: float) -> np.ndarray:
    return np.full(size, value, np.float32)


async def settle(dev: cb.Device) -> None:
    """All ops before this have had their completions."""
    await dev.put(np.ones(1, np.float32)).get()


@pytest.mark.parametrize("isolation", ["thread", "process"])
@pytest.mark.parametrize("size", [1000, CHUNKED], ids=["whole", "parts"])
@pytest.mark.parametrize("owner, name, after", POINTS, ids=lambda each: getattr(each, "__name__", str(each)))
async def test_an_interrupted_put_returns_its_memory_once(
    monkeypatch: pytest.MonkeyPatch, isolation: str, size: int, owner: type, name: str, after: bool
) -> None:
    async with cb.device("cpu", isolation=isolation, standby=None) as dev:
        await settle(dev)
        once = Once(monkeypatch, owner, name, after=after, at=1)
        once.arm()
        with pytest.raises(KeyboardInterrupt):
            dev.put(made(size, 1.0))
        refs = [dev.put(made(1000, float(value))) for value in range(4)]
        assert [(await ref.get()).max() for ref in refs] == [0.0, 1.0, 2.0, 3.0]
        if not (owner is Outbox and name == "send"):  # whether the host has it is not known there
            assert used(dev) == 0


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("owner, name, after", POINTS, ids=lambda each: getattr(each, "__name__", str(each)))
async def test_an_interrupted_get_returns_its_memory_once(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, after: bool, at: int
) -> None:
    async with cb.device("cpu", isolation="thread") as dev:
        x = dev.put(made(CHUNKED, 2.0))
        await x
        once = Once(monkeypatch, owner, name, after=after, at=at)
        once.arm()
        with contextlib.suppress(KeyboardInterrupt):
            x.get()
        once.left = 0
        again = await x.get()
        assert (again == 2.0).all()
        await settle(dev)
        if not (owner is Outbox and name == "send"):
            assert used(dev) == 0


async def test_an_op_that_may_have_been_sent_is_settled_when_its_completion_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cb.device("cpu", isolation="thread") as dev:
        await settle(dev)
        once = Once(monkeypatch, Outbox, "send", after=True)
        once.arm()
        with pytest.raises(KeyboardInterrupt):
            dev.put(made(1000, 1.0))
        await settle(dev)
        assert used(dev) == 0


def test_a_burst_is_sent_although_the_request_for_its_turn_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    with cb.sync.device("cpu", isolation="thread") as dev:
        dev.put(made(10, 1.0)).get()
        with monkeypatch.context() as patch:

            def post(*_: Any) -> None:
                raise KeyboardInterrupt

            patch.setattr(outbox, "post", post)
            with pytest.raises(KeyboardInterrupt):
                dev.put(made(10, 2.0))
        assert dev.put(made(10, 3.0)).get().max() == 3.0


def test_a_release_wakes_the_loop_although_the_one_before_it_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    releases = Releases()
    wrote: list[bytes] = []

    def write(_: int, data: bytes) -> None:
        wrote.append(data)
        if len(wrote) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "os", SimpleNamespace(write=write, close=os.close, read=os.read))
    with pytest.raises(KeyboardInterrupt):
        releases.append(1)
    releases.append(2)
    assert len(wrote) == 2
    assert list(releases.ids) == [1, 2]
    releases.close()


@pytest.mark.parametrize("act", ["take", "give"])
def test_interrupted_ranges_still_agree_with_each_other(monkeypatch: pytest.MonkeyPatch, act: str) -> None:
    free = FreeRanges()
    for start, length in ((0, 10), (20, 10), (40, 10)):
        free.give(start, length)
    with monkeypatch.context() as patch:

        def insort(*_: Any) -> None:
            raise KeyboardInterrupt

        patch.setattr(ranges, "insort", insort)
        with pytest.raises(KeyboardInterrupt):
            free.take(4) if act == "take" else free.give(10, 10)
    whole = {"take": [(0, 10), (20, 10), (40, 10)], "give": [(0, 30), (40, 10)]}[act]
    assert free.free == sum(length for _, length in whole)
    assert all(free.remove(start, length) for start, length in whole)
    assert free.free == 0
