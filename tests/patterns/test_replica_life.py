"""The life of the replicas of a pool: made, drained, restarted in place, closed; and the end of the pool."""

import asyncio
from typing import Any

import pytest
from batching_lab import outcome, turns
from pool_lab import Copy, pool_lab

import callboard as cb
from callboard.actors import ManualClock
from callboard.patterns.replicas.errors import NoReplica
from callboard.patterns.replicas.hedging import Hedging
from callboard.patterns.replicas.replica import Replica
from callboard.patterns.replicas.server import ModelReplicaPool


class Made:
    """Makes copies by name, and sees them closed."""

    def __init__(self) -> None:
        self.made: list[tuple[str, Copy]] = []
        self.closed: list[str] = []
        self.error: Exception | None = None

    async def __call__(self, name: str) -> Replica:
        if self.error is not None:
            raise self.error
        copy = Copy()
        self.made.append((name, copy))

        async def close() -> None:
            self.closed.append(name)

        return Replica(copy, close=close)


async def test_scale_makes_more_and_drains_the_last_ones(clock: ManualClock) -> None:
    make = Made()
    async with pool_lab(1, clock, make=make) as pool:
        futures = [pool.submit_nowait(item) for item in "abc"]
        await turns()
        await pool.scale(3)
        await turns()
        assert [copy.running for _, copy in make.made] == [["a"], ["b"], ["c"]]
        shrinking = asyncio.create_task(pool.scale(1))
        await turns()
        assert not shrinking.done()
        later = pool.submit_nowait("d")
        for _, copy in reversed(make.made):
            await copy.release()
        await shrinking
        assert [await future for future in futures] == ["<a>", "<b>", "<c>"]
        assert make.closed == ["replica-1", "replica-2"]
        await make.made[0][1].release()
        assert await later == "<d>"
        assert [each.name for each in pool.stats().replicas] == ["replica-0"]
        with pytest.raises(ValueError, match="at least one"):
            await pool.scale(0)
    assert make.closed == ["replica-1", "replica-2", "replica-0"]


async def test_drain_one_and_resume(clock: ManualClock) -> None:
    copies = [Copy(), Copy()]
    async with pool_lab([Replica(copies[0], "left"), Replica(copies[1], "right")], clock, policy="round_robin") as pool:
        pool.submit_nowait("a")
        await turns()
        draining = asyncio.create_task(pool.drain_replica("left"))
        assert await pool.drain_replica("right") is True
        future = pool.submit_nowait("b")
        await turns()
        assert not draining.done()
        await copies[0].release()
        assert await draining is True
        assert pool.stats().queued == 1
        pool.resume("right")
        await turns()
        await copies[1].release()
        assert await future == "<b>"
        with pytest.raises(KeyError, match=r"nobody.*left, right"):
            pool.resume("nobody")


async def test_draining_one_gives_up_in_time(clock: ManualClock) -> None:
    async with pool_lab([Replica(Copy(), "only")], clock) as pool:
        pool.submit_nowait("a")
        await turns()
        draining = asyncio.create_task(pool.drain_replica("only", timeout=1.0))
        await turns()
        clock.advance(1.0)
        assert await draining is False


@pytest.mark.parametrize("idempotent", [True, False])
async def test_restart_in_place(clock: ManualClock, idempotent: bool) -> None:
    make = Made()
    async with pool_lab(2, clock, make=make, idempotent=idempotent, policy="round_robin") as pool:
        hung = pool.submit_nowait("a")
        await turns()
        restarting = asyncio.create_task(pool.restart("replica-0", timeout=1.0))
        await turns()
        clock.advance(1.0)
        await restarting
        assert make.made[0][1].cancelled == 1
        assert [name for name, _ in make.made] == ["replica-0", "replica-1", "replica-0"]
        assert make.closed == ["replica-0"]
        assert [each.name for each in pool.stats().replicas] == ["replica-0", "replica-1"]
        await turns()
        if idempotent:
            await make.made[1][1].release()
            assert await hung == "<a>"
        else:
            assert isinstance(await outcome(hung), NoReplica)
        for item in "bc":
            pool.submit_nowait(item)
        await turns()
        assert len(make.made[2][1].running) == 1


async def test_a_replica_that_cannot_be_made_again_has_stopped(clock: ManualClock) -> None:
    make = Made()
    async with pool_lab(1, clock, make=make) as pool:
        make.error = OSError("no device")
        waiting = asyncio.create_task(pool.submit("a"))
        await turns()
        await make.made[0][1].release()
        assert await waiting == "<a>"
        with pytest.raises(OSError, match="no device"):
            await pool.restart("replica-0")
        assert await pool.drain_replica("replica-0") is True
        pool.resume("replica-0")  # it has stopped all the same
        with pytest.raises(NoReplica, match="all 1 replicas have stopped"):
            await pool.submit("b")
        make.error = None
        await pool.restart("replica-0")
        future = pool.submit_nowait("c")
        await turns()
        await make.made[1][1].release()
        assert await future == "<c>"


async def test_a_pool_whose_replicas_cannot_be_made_does_not_start(clock: ManualClock) -> None:
    make = Made()
    make.error = OSError("no device")
    pool: ModelReplicaPool[str, str] = ModelReplicaPool(2, make=make, clock=clock)
    with pytest.raises(OSError, match="no device"):
        await pool.start()
    with pytest.raises(cb.ServerStopped):
        await pool.submit("a")


async def test_stopped_while_a_replica_is_made(clock: ManualClock) -> None:
    gate = asyncio.get_running_loop().create_future()
    closed = []

    async def make(name: str) -> Replica:
        if name == "replica-1":
            await gate
        return Replica(Copy(), close=lambda: closed.append(name))

    pool: ModelReplicaPool[str, str] = ModelReplicaPool(1, make=make, clock=clock)
    await pool.start()
    growing = asyncio.create_task(pool.scale(2))
    await turns()
    await pool.stop()
    assert closed == ["replica-0"]
    gate.set_result(None)
    assert isinstance(await outcome(growing), cb.ServerStopped)
    assert closed == ["replica-0", "replica-1"]


async def test_stop_ends_everything(clock: ManualClock) -> None:
    copy = Copy()
    async with pool_lab([copy], clock) as pool:
        futures = [pool.submit_nowait(item) for item in "ab"]
        await turns()
        await pool.stop()
        assert [type(await outcome(future)) for future in futures] == [cb.ServerStopped] * 2
        assert copy.cancelled == 1
        assert clock.pending == 0


async def test_a_function_that_resists_its_cancellation_does_not_hold_up_stop(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    gate = asyncio.get_running_loop().create_future()

    async def stubborn(item: str) -> str:
        while not gate.done():
            try:
                await asyncio.shield(gate)
            except asyncio.CancelledError:
                continue
        return item

    pool: ModelReplicaPool[str, str] = await ModelReplicaPool([stubborn], clock=clock).start()
    future = pool.submit_nowait("a")
    await turns()
    stopping = asyncio.create_task(pool.stop())
    await turns()
    assert isinstance(await outcome(future), cb.ServerStopped)
    assert not stopping.done()
    clock.advance(5.0)
    await turns()
    assert stopping.done()
    assert "1 requests still run" in caplog.text
    gate.set_result(None)
    await turns()


@pytest.mark.parametrize(
    "wrong, text",
    [
        ({"replicas": []}, "empty"),
        ({"replicas": 2}, "make="),
        ({"replicas": [Replica(print, "a"), Replica(print, "a")]}, "'a'"),
        ({"policy": "best"}, "best"),
        ({"policy": "consistent_hash"}, "key="),
        ({"max_ongoing": 0}, "max_ongoing"),
        ({"attempts": 0}, "attempts"),
        ({"hedging": Hedging(), "idempotent": False}, "idempotent"),
    ],
)
def test_settings_are_checked_when_it_is_made(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ModelReplicaPool(**{"replicas": [print], **wrong})


async def test_without_make_there_are_only_those_that_were_given(clock: ManualClock) -> None:
    async with pool_lab([Copy()], clock) as pool:
        with pytest.raises(ValueError, match="make="):
            await pool.scale(2)
        with pytest.raises(ValueError, match="make="):
            await pool.restart("replica-0")
