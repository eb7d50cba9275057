"""Replicas that live on devices: losses with a killed host, and takeover."""

import asyncio
import contextlib
import functools
import os
import signal
from typing import Any

import numpy as np
import pytest
from batching_lab import turns

import callboard as cb
from callboard.patterns.replicas.errors import NoReplica
from callboard.patterns.replicas.member import Phase
from callboard.patterns.replicas.replica import Replica
from callboard.patterns.replicas.server import ModelReplicaPool

LIMIT = 30.0
WEIGHTS = np.arange(12.0).reshape(4, 3)


class Model(cb.ResidentActor):
    """Tells who has run which item; waits where an item names a file that is there."""

    def setup(self, ctx: cb.HostContext) -> None:
        self.calls = 0

    def predict(self, item: tuple[int, str]) -> tuple[int, int]:
        number, gate = item
        self.calls += 1
        if gate:
            with contextlib.suppress(FileNotFoundError), open(gate) as file:
                file.read()
        return number, os.getpid()


def replica(device: cb.Device) -> Any:
    return functools.partial(device.actor_of(cb.Props(Model)).call, Model.predict)


@pytest.mark.fault
@pytest.mark.few(1)
@pytest.mark.leaves_nothing
@pytest.mark.parametrize("idempotent", [True, False])
async def test_nothing_is_lost_when_a_host_is_killed(tmp_path: Any, idempotent: bool) -> None:
    gate = str(tmp_path / "gate")
    os.mkfifo(gate)
    async with contextlib.AsyncExitStack() as stack:
        devices = [
            await stack.enter_async_context(cb.device("cpu", isolation="process", standby=None)) for _ in range(2)
        ]
        models = [replica(device) for device in devices]
        for model in models:
            await model((0, ""))
        async with (
            ModelReplicaPool(models, idempotent=idempotent, policy="round_robin") as pool,
            asyncio.timeout(LIMIT),
        ):
            running = asyncio.create_task(pool.submit((0, gate)))  # stays on the first replica
            await asyncio.sleep(0)
            queued = [asyncio.create_task(pool.submit((n, ""))) for n in range(1, 200)]
            while pool.stats().completed < 5:
                await queued[pool.stats().completed]
            assert pool.stats().replicas[0].ongoing == 1
            pid, generation = devices[0].health().host_pid, devices[0].watch_generation().value
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            os.unlink(gate)  # the second run does not wait
            found = await asyncio.gather(running, *queued, return_exceptions=True)
            lost = [each for each in found if isinstance(each, BaseException)]
            assert [type(each) for each in lost] == ([] if idempotent else [cb.ContextPoisoned])
            values = [each for each in found if not isinstance(each, BaseException)]
            assert [number for number, _ in values] == list(range(0 if idempotent else 1, 200))
            stats = pool.stats()
            assert (stats.submitted, stats.completed + stats.failed) == (200, 200)
            assert stats.repeated == (1 if idempotent else 0)
            await devices[0].watch_generation().changed(generation)
            await models[0].func.__self__.ready()  # its actor is set up again
            await turns()
            assert pool.stats().replicas[0].phase is Phase.READY
            again = await asyncio.gather(*(pool.submit((n, "")) for n in range(4)))
            assert {pid for _, pid in again} == {device.health().host_pid for device in devices}


@pytest.mark.slow
@pytest.mark.fault
async def test_a_replica_that_is_rebuilt_is_skipped() -> None:
    async with cb.device("cpu", isolation="process", standby=None) as first, cb.device("cpu") as second:
        weights = [device.per_generation(lambda d: d.put(WEIGHTS)) for device in (first, second)]
        begun: list[int] = []

        def on(n: int, device: cb.Device) -> Any:
            async def product(row: Any) -> Any:
                begun.append(n)
                return await device.blas.gemm(device.put(row), await weights[n]()).get()

            return Replica(product, device=device)

        row = np.ones((1, 4))
        async with (
            ModelReplicaPool([on(0, first), on(1, second)], idempotent=True, policy="round_robin") as pool,
            asyncio.timeout(LIMIT),
        ):
            for _ in range(2):
                assert np.allclose(await pool.submit(row), row @ WEIGHTS)
            assert begun == [0, 1]
            pid, events = first.health().host_pid, first.events()
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            assert isinstance(await anext(events), cb.Lost)
            for _ in range(3):
                assert np.allclose(await pool.submit(row), row @ WEIGHTS)
            assert begun[2:] == [1, 1, 1]
            assert pool.stats().replicas[0].phase is Phase.AWAY
            await first.ready()
            await turns()
            assert pool.stats().replicas[0].phase is Phase.READY
            for _ in range(2):
                assert np.allclose(await pool.submit(row), row @ WEIGHTS)
            assert 0 in begun[5:]


async def test_an_actor_that_has_stopped_is_out_and_when_all_are_there_is_none() -> None:
    async with cb.device("cpu", isolation="thread") as device:
        models = [device.actor_of(cb.Props(Model)) for _ in range(2)]
        calls = [functools.partial(model.call, Model.predict) for model in models]
        async with ModelReplicaPool(calls) as pool, asyncio.timeout(LIMIT):
            await models[0].stop_and_wait()
            found = await asyncio.gather(*(pool.submit((n, "")) for n in range(6)))
            assert [number for number, _ in found] == list(range(6))
            assert [each.phase for each in pool.stats().replicas] == [Phase.STOPPED, Phase.READY]
            await models[1].stop_and_wait()
            with pytest.raises(NoReplica, match="all 2 replicas have stopped"):
                await pool.submit((7, ""))


async def test_a_call_that_an_actor_refused_is_queued_again_though_not_idempotent(tmp_path: Any) -> None:
    gate = str(tmp_path / "gate")
    os.mkfifo(gate)

    class Narrow(Model):
        max_in_flight = 1

    async with cb.device("cpu", isolation="thread") as device:
        models = [device.actor_of(cb.Props(Narrow)) for _ in range(2)]
        for model in models:
            await model.ready()
        calls = [functools.partial(model.call, Model.predict) for model in models]
        other = models[0].call(Model.predict, (-1, gate))  # somebody else's: the pool's call finds no room
        async with ModelReplicaPool(calls, policy="round_robin") as pool, asyncio.timeout(LIMIT):
            assert (await pool.submit((1, "")))[0] == 1
            assert pool.stats().repeated == 1
        os.close(os.open(gate, os.O_WRONLY))
        assert (await other)[0] == -1
