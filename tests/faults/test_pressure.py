"""Many ops and little room: full sockets, full queues, and nothing that grows."""

import asyncio
import gc
import logging
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import pytest
from tests.faults.load import BOUND, lost_and_recovered, signal_host

import callboard as cb
from callboard.device.protocol import control
from callboard.device.supervision.hosts import launch

pytestmark = [pytest.mark.fault, pytest.mark.leaves_nothing]

SMALL = 4096
SPREAD = 600
"""Blocks of Python's allocator that come and go with caches."""


@pytest.fixture
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Op sockets whose buffers hold 4 KiB each way."""
    pair = socket.socketpair

    def small(*arguments: Any) -> tuple[socket.socket, socket.socket]:
        ends = pair(*arguments)
        for end in ends:
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                end.setsockopt(socket.SOL_SOCKET, option, SMALL // 2)  # the kernel doubles it
        return ends

    monkeypatch.setattr(launch.socket, "socketpair", small)
    assert control.socket is launch.socket


async def many(dev: cb.Device, ops: int, step: int) -> None:
    """Ops that nobody awaits, paced by room; then one whose value tells that all were executed in order."""
    x = dev.zeros((16,))
    y = dev.put(np.ones(16, np.float32))
    for first in range(0, ops, step):
        async with asyncio.timeout(BOUND):
            await dev.room(step)
        for _ in range(first, first + step):
            dev.blas.axpy(y, x)
    async with asyncio.timeout(BOUND):
        await dev.room(1)  # the last thousand may have taken all there was
        np.testing.assert_array_equal(await x.get(), np.full(16, ops, np.float32))
    assert dev._port.in_flight == 0


@pytest.mark.slow
@pytest.mark.usefixtures("small_buffers")
async def test_a_hundred_thousand_ops_through_buffers_of_4_kib() -> None:
    async with cb.device("cpu", isolation="process", standby=None) as dev:
        await many(dev, 100_000, 1000)


@pytest.mark.usefixtures("small_buffers")
@pytest.mark.slow
async def test_a_host_killed_behind_full_buffers() -> None:
    """Neither side waits for the other: everything that was accepted ends."""
    async with cb.device("cpu", isolation="process", standby=None) as dev:
        x = dev.zeros((16,))
        await x
        signal_host(dev, signal.SIGSTOP)  # it reads nothing more
        replies = [dev.copy(x) for _ in range(20_000)]
        dev._port.flush()
        assert dev._actor.host is not None
        assert dev._actor.host.unsent_bytes > 50 * SMALL  # the buffers hold two of them
        signal_host(dev, signal.SIGKILL)
        async with asyncio.timeout(BOUND):
            outcomes = await asyncio.gather(*(_error(r) for r in replies))
        assert set(outcomes) == {cb.ContextPoisoned}
        assert (await dev.zeros((3,)).get()).sum() == 0


async def _error(reply: Any) -> type[BaseException] | None:
    try:
        await reply
    except cb.AccelError as e:
        return type(e)
    return None


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("small_buffers")
async def test_a_million_ops_that_nobody_awaits_in_one_loop() -> None:
    async with cb.device("cpu", isolation="process", standby=None) as dev:
        await many(dev, 50_000, 1000)
        before = _figures(dev)
        await many(dev, 1_000_000, 1000)
        gc.collect()
        _assert_flat(before, _figures(dev), mb=24, blocks=SPREAD)


async def test_more_than_fits_is_refused_at_the_call_and_nothing_is_lost() -> None:
    async with cb.device("cpu", isolation="process", standby=None, max_in_flight=500, pending_capacity=50) as dev:
        x = dev.zeros((4,))
        await x
        signal_host(dev, signal.SIGSTOP)
        replies = [dev.copy(x) for _ in range(500)]
        with pytest.raises(cb.MailboxFull, match="max_in_flight"):
            dev.copy(x)
        signal_host(dev, signal.SIGCONT)
        async with asyncio.timeout(BOUND):
            await asyncio.gather(*(_error(r) for r in replies))
            await dev.room(500)
        events = dev.events()
        signal_host(dev, signal.SIGKILL)
        assert isinstance(await anext(events), cb.Lost)
        early = [dev.zeros((4,)) for _ in range(25)]  # two ops each
        with pytest.raises(cb.MailboxFull, match="pending_capacity"):
            dev.empty((4,))
        room = asyncio.create_task(dev.room(400))
        async with asyncio.timeout(BOUND):
            await early[-1]
            await room
            assert (await early[-1].get()).sum() == 0
        await events.aclose()  # type: ignore[attr-defined]


# -- nothing grows -----------------------------------------------------------------------------------------------------


@pytest.fixture
def unlogged(caplog: pytest.LogCaptureFixture) -> None:
    """pytest keeps every record until the end of the test, and they would be counted."""
    caplog.set_level(logging.CRITICAL + 1, "callboard")


def _figures(dev: cb.Device) -> dict[str, int]:
    dev._actor.arenas.trim()  # it keeps unused ones for some seconds, each with descriptors
    me = psutil.Process()
    return {
        "rss": me.memory_info().rss,
        "blocks": sys.getallocatedblocks(),
        "descriptors": me.num_fds(),
        "threads": threading.active_count(),
        "children": len(me.children(recursive=True)),
        "staged": dev._actor.arenas.stats.used,
        "hosts": len(dev._actor.fleet.hosts),
        "pending": dev._port.in_flight,
    }


def _assert_flat(before: dict[str, int], after: dict[str, int], mb: int, blocks: int) -> None:
    """Nothing has come to stay.

    What an allocator keeps for later is in ``mb``. What Python holds is counted in ``blocks``, which no allocator's
    habits blur: a single object left behind by each loss shows.
    """
    grown, held = (after.pop(what) - before.pop(what) for what in ("rss", "blocks"))
    assert all(after[what] <= n for what, n in before.items()), f"{before} before, {after} after"
    assert grown < mb << 20, f"{grown >> 20} MiB more than before"
    assert held < blocks, f"{held} blocks more than before"


@pytest.mark.usefixtures("unlogged")
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [15, 100])
async def test_kills_leave_nothing_behind(kills: int) -> None:
    async with cb.device("cpu", isolation="process", standby=None, max_restarts=None) as dev:

        async def once() -> None:
            refs = [dev.put(np.ones(1000, np.float32)) for _ in range(50)]
            lost = [r.get() for r in refs]

            def kill() -> None:
                signal_host(dev, signal.SIGKILL)

            await lost_and_recovered(dev, kill)
            for reply in lost:
                await _error(reply)
            assert (await dev.put(np.ones(3)).get()).sum() == 3

        for _ in range(4):
            await once()
        gc.collect()
        before = _figures(dev)
        for _ in range(kills):
            await once()
        gc.collect()
        _assert_flat(before, _figures(dev), mb=12, blocks=SPREAD + kills)
        assert dev.health().restarts == kills + 4


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("unlogged")
async def test_kills_with_a_hot_standby_leave_nothing_behind() -> None:
    async with cb.device("cpu", isolation="process", standby="hot", max_restarts=None) as dev:

        async def once() -> None:
            async with asyncio.timeout(BOUND):
                await dev.standby_ready()
            await lost_and_recovered(dev, lambda: signal_host(dev, signal.SIGKILL))
            assert (await dev.put(np.ones(3)).get()).sum() == 3

        async def settled() -> dict[str, int]:
            async with asyncio.timeout(BOUND):
                await dev.standby_ready()
                for host in dev._actor.fleet.hosts - {dev._actor.host, dev._actor._standby.host}:
                    await asyncio.shield(host.reaped)
            gc.collect()
            return _figures(dev)

        for _ in range(4):
            await once()
        before = await settled()
        for _ in range(50):
            await once()
        _assert_flat(before, await settled(), mb=12, blocks=SPREAD + 50)


async def test_no_descriptors_left_is_a_typed_loss_and_recovery_goes_on() -> None:
    """A host that cannot be started for lack of descriptors counts as a loss; when there are some again, it starts."""
    async with cb.device("cpu", isolation="process", standby=None, max_restarts=None) as dev:
        await dev.zeros((3,))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        events = dev.events()
        restore: Callable[[], None] = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
            signal_host(dev, signal.SIGKILL)
            async with asyncio.timeout(BOUND):
                losses = [await anext(events) for _ in range(3)]
        finally:
            restore()
        assert all(isinstance(e, cb.Lost) for e in losses)
        assert "failed to start" in str(losses[-1].error)  # type: ignore[union-attr]
        async with asyncio.timeout(BOUND):
            while not isinstance(await anext(events), cb.Recovered):
                pass
            assert (await dev.zeros((3,)).get()).sum() == 0
        await events.aclose()  # type: ignore[attr-defined]
