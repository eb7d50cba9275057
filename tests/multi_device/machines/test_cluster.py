"""Devices on the nodes of a cluster: placed, lost, placed again, and used. Without Ray."""

import asyncio
import os
import signal
from typing import Any

import numpy as np
import pytest
from tests.multi_device.machines.lab import BOUND, SOON, LocalEngine, Proxy, clustered, three

import callboard as cb
from callboard.device.supervision.remote.host import Address

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.timeout(180)]

LOSSES = (cb.ContextLost, cb.GpuRefStale)


class Counter(cb.ResidentActor):
    def __init__(self, begin: int = 0) -> None:
        self.value = begin

    def add(self, by: int) -> int:
        self.value += by
        return self.value

    def where(self) -> int:
        return os.getpid()


async def test_a_device_on_a_node_is_a_device() -> None:
    engine = three()
    async with clustered(engine) as cluster:
        gpu = await cluster.device("cpu", node="n2")
        assert cluster.where(gpu) == "n2"
        assert gpu.name == "local-1/cpu:0"
        x = np.arange(700_000, dtype="f8")  # several pieces
        a = gpu.put(x)
        np.testing.assert_array_equal(await (a * 2).get(), x * 2)
        small = gpu.put(np.eye(8, dtype="f4"))
        np.testing.assert_array_equal(await gpu.blas.gemm(small, small).get(), np.eye(8))
        counter = gpu.actor_of(cb.Props(Counter, 5))
        assert await counter.call(Counter.add, 2) == 7
        assert await counter.call(Counter.where) != os.getpid()
    assert engine.closed
    assert all(agent.ended for agent in engine.agents)


@pytest.mark.slow
async def test_each_device_has_a_place_and_gives_it_back() -> None:
    engine = LocalEngine({"n1": {"CPU": 1.0}, "n2": {"CPU": 1.0}})
    async with clustered(engine) as cluster:
        first, second = await cluster.device("cpu"), await cluster.device("cpu")
        assert {cluster.where(first), cluster.where(second)} == {"n1", "n2"}
        assert first.uuid != second.uuid
        with pytest.raises(cb.PlacementFailed, match="no node"):
            await cluster.device("cpu")
        place = cluster.where(first)
        await first.close()
        async with asyncio.timeout(BOUND):
            await engine.left(place)
        third = await cluster.device("cpu")
        assert cluster.where(third) == place
        assert cluster.where(first) is None


@pytest.mark.fault
async def test_a_node_killed_under_load_is_a_lost_context_with_a_new_placement() -> None:
    engine = three()
    async with clustered(engine) as cluster:
        gpu = await cluster.device("cpu")
        lost, events = cluster.where(gpu), gpu.events()
        a = gpu.put(np.eye(64, dtype="f4"))
        await gpu.blas.gemm(a, a)
        refs: list[cb.GpuRef] = []
        while gpu.available:
            refs += [gpu.blas.gemm(a, a) for _ in range(20)]
            if len(refs) == 200:
                engine.kill(lost)
            await asyncio.sleep(0)
        async with asyncio.timeout(BOUND):
            ends = await asyncio.gather(*refs, return_exceptions=True)
            await gpu.ready()
        assert {type(end).__name__ for end in ends} <= {"GpuRef", "ContextPoisoned", "ContextLost", "GpuRefStale"}
        assert any(isinstance(end, cb.ContextLost) for end in ends)
        assert isinstance(await anext(events), cb.Lost)
        assert cluster.where(gpu) not in (None, lost)
        with pytest.raises(LOSSES):
            await gpu.blas.gemm(a, a)  # of the old generation
        b = gpu.put(np.full((4, 4), 2.0))
        np.testing.assert_array_equal(await (b + 1).get(), np.full((4, 4), 3.0))
        assert engine.requests[-1].avoid == (lost,)


@pytest.mark.slow
@pytest.mark.fault
async def test_a_device_that_is_pinned_waits_for_its_node() -> None:
    engine = three()
    async with clustered(engine) as cluster:
        gpu = await cluster.device("cpu", node="n3", pinned=True)
        generation = gpu.generation
        engine.on("n3")[0].process.kill()  # only the agent
        async with asyncio.timeout(BOUND):
            await gpu.watch_generation().changed(generation)
            await gpu.ready()
        assert cluster.where(gpu) == "n3"
        stopped = gpu.events()
        engine.kill("n3")
        async with asyncio.timeout(BOUND):
            assert [type(event).__name__ async for event in stopped][-1] == "Stopped"
        assert not engine.on("n3")


@pytest.mark.slow
@pytest.mark.fault
async def test_what_the_engine_says_counts_before_any_silence() -> None:
    """An orphan: the engine has given its node up, and it would still answer."""
    engine = LocalEngine({"n1": {"CPU": 1.0}, "n2": {"CPU": 1.0}}, words=False)
    async with clustered(engine, lost_after=60.0) as cluster:
        gpu = await cluster.device("cpu")
        host, generation = gpu.health().host_pid, gpu.generation
        orphan = engine.on(cluster.where(gpu))[0]
        a = gpu.put(np.ones(8))
        pending = a + 1
        orphan.say_gone("its node was declared dead")
        with pytest.raises(cb.ContextLost, match="declared dead"):
            await pending.get()
        async with asyncio.timeout(BOUND):
            await gpu.ready()
            assert gpu.generation > generation
            assert gpu.health().host_pid != host
            assert (await gpu.put(np.ones(2)).get()).sum() == 2
            await orphan.process.wait()  # ended, as the engine could reach it


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize("how", ["partition", "frozen"])
@pytest.mark.few(1)
async def test_what_a_node_says_that_was_cut_off_is_not_read(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = LocalEngine({"n1": {"CPU": 1.0}, "n2": {"CPU": 1.0}}, words=False)
    proxies: list[Proxy] = []
    ends: list[Any] = []

    async def keep(agent: Any) -> None:  # the engine cannot reach it either
        ends.append(agent)

    async with clustered(engine, lost_after=SOON) as cluster:
        from callboard.multi_device.machines import placed

        class Through(placed.AgentLease):
            def __init__(self, agent: Any, token: str, tls: Any, name: str) -> None:
                super().__init__(agent, token, tls, name)
                if len(proxies) == 1 and agent.node == "n1":
                    self.address = Address("127.0.0.1", proxies[0].port, token, tls, name, self)

        monkeypatch.setattr(placed, "AgentLease", Through)
        start = engine.start

        async def started(*args: Any) -> Any:
            agent = await start(*args)
            if not proxies:
                monkeypatch.setattr(type(agent), "end", keep)
                proxies.append(Proxy(agent.host, agent.port))
                await proxies[0].start()
            return agent

        monkeypatch.setattr(engine, "start", started)
        gpu = await cluster.device("cpu", node="n1")
        orphan, proxy = engine.on("n1")[0], proxies[0]
        a = gpu.put(np.full((64, 64), 1.0))
        await a
        generation = gpu.generation
        if how == "partition":
            proxy.open.clear()
        else:
            os.kill(orphan.pid, signal.SIGSTOP)
        pending = [gpu.blas.gemm(a, a) for _ in range(50)]  # the orphan's host gets them, or has them already
        async with asyncio.timeout(BOUND):
            outcomes = await asyncio.gather(*pending, return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} == {cb.ContextPoisoned}
            await gpu.ready()
        assert cluster.where(gpu) == "n2"
        assert gpu.generation > generation
        b = gpu.put(np.full((64, 64), 2.0))
        proxy.open.set()
        os.kill(orphan.pid, signal.SIGCONT)
        async with asyncio.timeout(BOUND):  # what it says now is of no generation
            for _ in range(50):
                assert float((await gpu.blas.gemm(b, b).get())[0, 0]) == 256.0
        with pytest.raises(LOSSES):
            await a.get()
        monkeypatch.undo()
        await proxy.close()


async def test_a_cluster_is_left_while_a_device_is_being_placed() -> None:
    engine = three()
    begun = asyncio.Event()

    async def never(*_: Any) -> Any:
        begun.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(BOUND):
        async with clustered(engine) as cluster:
            engine.start = never  # type: ignore[method-assign]
            opening = asyncio.create_task(cluster.device("cpu"))
            await begun.wait()
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening


async def test_refusals() -> None:
    engine = LocalEngine({"node-one": {"CPU": 1.0}, "node-two": {"CPU": 1.0}}, address="address")
    async with clustered(engine) as cluster:
        with pytest.raises(cb.BackendUnavailable, match=r"no node 'n9' in the cluster; alive are node-one"):
            await cluster.device("cpu", node="n9")
        with pytest.raises(ValueError, match="pinned=True needs node="):
            await cluster.device("cpu", pinned=True)
        with pytest.raises(ValueError, match="names 2 nodes"):
            await cluster.device("cpu", node="address")
        with pytest.raises(ValueError, match="unknown option 'place_timeout'; use one of "):
            await cluster.device("cuda", place_timeout=5)  # type: ignore[call-arg]
        assert not engine.requests
        with pytest.raises(cb.PlacementFailed):
            await cluster.device("cuda")
        with pytest.raises(ValueError, match="isolation"):
            await cluster.device("cpu", isolation="thread")
        one = await cluster.device(node="node-one")  # there is no GPU
        assert one.backend == "cpu"
        assert cluster.where(one) == "node-one"
    with pytest.raises(ValueError, match="lost_after"):
        cb.cluster(lost_after=1.0)
    with pytest.raises(ValueError, match="place_timeout"):
        cb.cluster(place_timeout=0)
    with pytest.raises(TypeError, match=r"cb\.sync\.cluster"), cb.cluster():  # type: ignore[attr-defined]
        pass
