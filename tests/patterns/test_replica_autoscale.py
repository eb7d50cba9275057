"""A pool that grows while requests wait, and shrinks when fewer replicas do."""

import asyncio
from typing import Any

import pytest
from batching_lab import turns
from hypothesis import given
from hypothesis import strategies as st

import callboard as cb
from callboard.actors import ManualClock
from callboard.patterns.replicas.autoscale import Scaler

SETTINGS = cb.Autoscale(min=1, max=6, target=0.1, interval=1.0, shrink_after=3.0)


@pytest.mark.parametrize(
    "replicas, waits, oldest, wanted",
    [
        (2, [0.05, 0.1], 0.0, 2),
        (2, [0.11], 0.0, 3),
        (4, [0.15], 0.0, 6),
        (2, [9.0], 0.0, 4),  # twofold at most
        (3, [], 0.5, 6),  # nothing has begun, and one waits
        (6, [9.0], 0.0, 6),
    ],
)
def test_growth(replicas: int, waits: list[float], oldest: float, wanted: int) -> None:
    scaler = Scaler(SETTINGS, 0.0)
    scaler.running(replicas, 0.0)
    for wait in waits:
        scaler.began(wait)
    assert scaler.decide(replicas, 1, oldest, 1.0) == wanted
    assert scaler.decide(replicas, 1, 0.0, 2.0) == replicas  # all of them run


def test_it_shrinks_when_fewer_would_have_done_for_long() -> None:
    scaler = Scaler(SETTINGS, 0.0)
    scaler.running(1, 0.0)
    wanted = [scaler.decide(3, 1, 0.0, float(t)) for t in range(1, 6)]
    assert wanted == [3, 3, 2, 3, 3]
    scaler.running(2, 5.0)
    assert [scaler.decide(3, 1, 0.0, float(t)) for t in range(6, 12)] == [3] * 6  # two of two would be too busy
    scaler.running(0, 11.0)
    assert [scaler.decide(1, 1, 0.0, float(t)) for t in range(12, 18)] == [1] * 6


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5), st.integers(0, 9), st.floats(0, 3)), max_size=30))
def test_the_bounds_hold(story: list[tuple[float, float, int, float]]) -> None:
    scaler, replicas, now = Scaler(SETTINGS, 0.0), 2, 0.0
    for wait, oldest, running, seconds in story:
        now += seconds
        scaler.began(wait)
        scaler.running(running, now)
        wanted = scaler.decide(replicas, 2, oldest, now)
        assert 1 <= wanted <= 6
        assert wanted <= 2 * replicas
        assert wanted >= replicas - 1
        replicas = wanted


async def test_a_pool_that_grows_and_shrinks() -> None:
    clock = ManualClock()
    gates: list[asyncio.Future[None]] = []

    async def model(item: int) -> int:
        gate = asyncio.get_running_loop().create_future()
        gates.append(gate)
        await gate
        return item

    closed: list[str] = []

    def make(name: str) -> cb.Replica:
        return cb.Replica(model, close=lambda: closed.append(name))

    pool = cb.ModelReplicaPool[int, int](1, make=make, autoscale=SETTINGS, clock=clock)
    async with pool:
        tasks = [asyncio.create_task(pool.submit(n)) for n in range(4)]
        await turns()
        for expected in (2, 4):
            clock.advance(1.0)
            await turns()
            assert len(pool.stats().replicas) == expected
        assert len(gates) == 4
        for gate in gates:
            gate.set_result(None)
        assert await asyncio.gather(*tasks) == [0, 1, 2, 3]
        for _ in range(14):
            clock.advance(1.0)
            await turns()
        stats = pool.stats()
        assert (len(stats.replicas), stats.scaled, len(closed)) == (1, 5, 3)
    assert clock.pending == 0


async def test_a_replica_that_cannot_be_made_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    fails = [False, True, False]
    gate = asyncio.Event()

    async def model(item: int) -> int:
        await gate.wait()
        return item

    def make(name: str) -> Any:
        if fails.pop(0):
            raise OSError("no device")
        return model

    async with cb.ModelReplicaPool[int, int](1, make=make, autoscale=SETTINGS, executor="loop", clock=clock) as pool:
        tasks = [asyncio.create_task(pool.submit(n)) for n in range(2)]
        await turns()
        for expected in (1, 2):
            clock.advance(1.0)
            await turns()
            assert len(pool.stats().replicas) == expected
        gate.set()
        assert await asyncio.gather(*tasks) == [0, 1]
    assert "scaling to 2 replicas" in caplog.text


@pytest.mark.parametrize(
    "settings, says",
    [
        ({"min": 0}, "1 <= min <= max"),
        ({"min": 3, "max": 2}, "1 <= min <= max"),
        ({"target": 0}, "target must be positive"),
        ({"interval": float("inf")}, "interval must be positive"),
        ({"busy": 1.5}, "busy must be above 0"),
    ],
)
def test_settings_that_are_refused(settings: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        cb.Autoscale(**settings)


def test_a_pool_without_make() -> None:
    with pytest.raises(ValueError, match="autoscale needs `make=`"):
        cb.ModelReplicaPool([len], autoscale=SETTINGS)
