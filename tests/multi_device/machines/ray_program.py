"""Scenarios on a Ray cluster of three nodes on this machine, each said with its end: ``{"name": ..., "error": ...}``.

A program of its own, because Ray leaves threads and descriptors in the process that was connected to it.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import ray
from ray.cluster_utils import Cluster as RayCluster
from tests.multi_device.machines import over_it
from tests.multi_device.shared import app_process

import callboard as cb

BOUND = 90.0
STORE = 100 << 20
LOSSES = over_it.LOSSES


class Machine:
    """The cluster: a head without devices, and three nodes of two CPUs each."""

    def __init__(self) -> None:
        quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_timeout_ms": 1000}
        self.ray = RayCluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 0,
                "object_store_memory": STORE,
                "include_dashboard": False,
                "_system_config": {**quick, "health_check_failure_threshold": 3},
            },
        )
        self._count = 0
        self.nodes: dict[str, Any] = {}

    def add(self) -> str:
        self._count += 1
        node = self.ray.add_node(
            num_cpus=2,
            object_store_memory=STORE,
            env_vars={"CALLBOARD_MACHINE": f"machine {self._count}", **SLIM},
        )
        self.nodes[node.node_id] = node
        return str(node.node_id)

    async def kill(self, node: str | None) -> None:
        """Kill the raylet of a node; its workers find out."""
        assert node is not None
        gone = self.nodes.pop(node)
        await asyncio.to_thread(self.ray.remove_node, gone, False)

    def fill(self) -> None:
        """Have three nodes again. Ray starts nodes in the main thread only; nothing else runs then."""
        while len(self.nodes) < 3:
            self.add()


SLIM = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def agent_of(device: cb.Device) -> psutil.Process:
    """The process of Ray that serves a device."""
    host = psutil.Process(device.health().host_pid)
    agent = host.parent()
    assert agent is not None
    return agent


async def gone(*processes: psutil.Process) -> None:
    """Wait until these processes are no more."""
    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, BOUND)
    assert not alive


async def devices_on_each(cluster: cb.Cluster, machine: Machine) -> list[cb.Device]:
    return [await cluster.device("cpu", node=node) for node in machine.nodes]


# -- scenarios ---------------------------------------------------------------------------------------------------------


async def opens(machine: Machine) -> None:
    async with cb.cluster("auto") as cluster:
        nodes = await cluster.nodes()
        assert {node.id for node in nodes} >= set(machine.nodes)
        assert sum(node.resources.get("CPU", 0) == 2 for node in nodes if node.alive) == 3
        chosen = next(iter(machine.nodes))
        device = await cluster.device(node=chosen)
        assert cluster.where(device) == chosen
        x = np.arange(700_000.0)
        np.testing.assert_array_equal(await (device.put(x) * 2).get(), x * 2)
        counter = device.actor_of(cb.Props(over_it.Counter, "a"))
        assert await counter.call(over_it.Counter.add, 2) == ("a", 2)
        host, agent = psutil.Process(device.health().host_pid), agent_of(device)
        await device.close()
        await gone(host, agent)


async def places_by_resources(machine: Machine) -> None:
    async with cb.cluster("auto") as cluster:
        devices = [await cluster.device("cpu", resources={"CPU": 2}) for _ in range(3)]
        assert {cluster.where(device) for device in devices} == set(machine.nodes)
        async with cb.cluster("auto", place_timeout=4.0) as impatient:
            with pytest.raises(cb.PlacementFailed, match=r"within 4 s \(CPU 1\)"):
                await impatient.device("cpu")


async def node_killed_under_load(machine: Machine) -> None:
    async with cb.cluster("auto", lost_after=5.0) as cluster:
        device = await cluster.device("cpu")
        lost, events, generation = cluster.where(device), device.events(), device.generation
        a = device.put(np.eye(64, dtype="f4"))
        await device.blas.gemm(a, a)
        refs: list[cb.GpuRef] = []
        killing: asyncio.Task[None] | None = None
        async with asyncio.timeout(BOUND):
            while device.generation == generation:
                await device.room(20)
                refs += [device.blas.gemm(a, a) for _ in range(20)]
                if len(refs) == 200:
                    killing = asyncio.create_task(machine.kill(lost))
                await asyncio.sleep(0)
            ends = await asyncio.gather(*refs, return_exceptions=True)
            await device.ready()
        assert killing is not None
        await killing
        assert any(isinstance(end, LOSSES) for end in ends)
        assert all(isinstance(end, cb.GpuRef | cb.ContextLost | cb.GpuRefStale) for end in ends)
        assert isinstance(await anext(events), cb.Lost)
        assert cluster.where(device) in machine.nodes
        b = device.put(np.full((64, 64), 2.0))
        assert float((await device.blas.gemm(b, b).get())[0, 0]) == 256.0
        took = [event.seconds async for event in _first(events, cb.Recovered)]
        print(json.dumps({"name": "recovery", "seconds": took[0]}), flush=True)


async def _first(events: Any, kind: Any) -> Any:
    async for event in events:
        if isinstance(event, kind):
            yield event
            return


async def partition(machine: Machine) -> None:
    """The process of the node is stopped, so it is silent, and goes on later: an orphan with answers in its hands."""
    async with cb.cluster("auto", lost_after=4.0) as cluster:
        device = await cluster.device("cpu")
        before, generation = cluster.where(device), device.generation
        a = device.put(np.full((64, 64), 1.0))
        await a
        agent, host = agent_of(device), psutil.Process(device.health().host_pid)
        agent.send_signal(signal.SIGSTOP)
        try:
            pending = [device.blas.gemm(a, a) for _ in range(50)]
            async with asyncio.timeout(BOUND):
                ends = await asyncio.gather(*pending, return_exceptions=True)
                assert {type(end) for end in ends} == {cb.ContextPoisoned}, ends
                await device.ready()
        finally:
            if agent.is_running():
                agent.send_signal(signal.SIGCONT)
        assert device.generation > generation
        assert cluster.where(device) not in (None, before)
        b = device.put(np.full((64, 64), 2.0))
        for _ in range(50):
            assert float((await device.blas.gemm(b, b).get())[0, 0]) == 256.0
        with pytest.raises(LOSSES):
            await a.get()  # of the lost generation
        await gone(agent, host)  # neither the orphan nor its host is left


async def agent_killed(machine: Machine) -> None:
    """Ray says that the process has ended; a pinned device comes back on the same node."""
    async with cb.cluster("auto") as cluster:
        node = next(iter(machine.nodes))
        device = await cluster.device("cpu", node=node, pinned=True)
        ref = device.put(np.ones(3))
        await ref
        agent_of(device).kill()
        async with asyncio.timeout(BOUND):
            try:
                while True:
                    await (ref + 1)
            except LOSSES:
                pass
            await device.ready()
        assert cluster.where(device) == node


async def orphan(machine: Machine) -> None:
    """The raylet is dead, the process of the device goes on: what it answers meanwhile is of its generation."""
    async with cb.cluster("auto", lost_after=60.0) as cluster:
        device = await cluster.device("cpu")
        node, generation = cluster.where(device), device.generation
        a = device.put(np.full((8, 8), 1.0))
        await a
        raylet = next(p for p in machine.nodes[node or ""].all_processes["raylet"]).process
        raylet.kill()
        answered = 0
        async with asyncio.timeout(BOUND):
            try:
                while True:
                    await (a + 1)
                    answered += 1
                    assert device.generation == generation
            except LOSSES:
                pass
            await device.ready()
            assert (await device.put(np.ones(2)).get()).sum() == 2
        print(json.dumps({"name": "orphan answers", "count": answered}), flush=True)
        await machine.kill(node)


async def over_nodes(machine: Machine) -> None:
    async with cb.cluster("auto") as cluster:
        devices = await devices_on_each(cluster, machine)
        await over_it.placement(devices)
        await over_it.entities(devices)


async def pool_with_a_loss(machine: Machine) -> None:
    async with cb.cluster("auto") as cluster:
        devices = await devices_on_each(cluster, machine)
        await over_it.replica_pool(devices, lambda: machine.kill(cluster.where(devices[1])))


async def world_with_a_loss(machine: Machine) -> None:
    async with cb.cluster("auto") as cluster:
        devices = await devices_on_each(cluster, machine)
        await over_it.worlds(devices, lambda: machine.kill(cluster.where(devices[2])))


async def encrypted(machine: Machine) -> None:
    from tests.device.supervision.test_nodes import certified

    with tempfile.TemporaryDirectory() as folder:
        certificate, key = certified(Path(folder))
        tls = cb.NodeTls(cafile=certificate, certfile=certificate, keyfile=key, server_name="node.example")
        async with cb.cluster("auto", tls=tls) as cluster:
            device = await cluster.device("cpu")
            assert (await device.put(np.ones(300_000)).get()).sum() == 300_000


def blocking(machine: Machine) -> None:
    with cb.sync.cluster("auto") as cluster:
        assert len([node for node in cluster.nodes() if node.alive]) == 4
        device = cluster.device("cpu")
        assert cluster.where(device) in machine.nodes
        assert (device.put(np.ones((4, 4))) + 1).get().sum() == 32
        device.close()
        with cluster.device("cpu") as second:
            assert second.put(np.ones(4)).get().sum() == 4


async def shared_region(machine: Machine) -> None:
    """Another application makes the table, and is killed; then the table's process is."""
    with tempfile.TemporaryDirectory() as folder:
        other = await asyncio.create_subprocess_exec(
            *(sys.executable, app_process.__file__, "ray", "-", folder, "5.0"),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "RAY_ADDRESS": machine.ray.address},
        )
        assert other.stdout is not None
        try:
            async with asyncio.timeout(BOUND):
                assert await other.stdout.readline() == b"joined\n"
            async with cb.cluster("auto", lost_after=5.0) as cluster:
                device = await cluster.device("cpu")
                async with app_process.logged([device], folder, cluster) as region, asyncio.timeout(BOUND):
                    await app_process.load(region, other.kill, folder)
                    assert {region.entity(str(n)).device for n in range(8)} == {device.uuid}
                    holder = await asyncio.to_thread(ray.get_actor, "callboard-regions", "callboard")
                    await asyncio.to_thread(ray.kill, holder, no_restart=False)
                    answered = [number for number in range(600, 620) if await _answered(region, number)]
                    async with app_process.logged([], folder, cluster) as guest:
                        answered += [number for number in range(620, 640) if await _answered(guest, number)]
                assert any(number >= 620 for number in answered)
                app_process.check(folder, answered)
                await asyncio.to_thread(ray.kill, holder)
        finally:
            if other.returncode is None:
                other.kill()
            await other.wait()


async def _answered(region: Any, number: int) -> bool:
    """Whether a call has an answer; False if its outcome is not known."""
    try:
        return bool(await region.entity(str(number % 8)).call(app_process.Logged.add, number) == number)
    except cb.ContextLost:
        return False


SCENARIOS: list[Callable[[Machine], Awaitable[None]]] = [
    *(opens, places_by_resources, node_killed_under_load, partition, agent_killed, orphan, over_nodes),
    *(pool_with_a_loss, world_with_a_loss, encrypted, shared_region),
]


async def main() -> None:
    machine = Machine()
    names = sys.argv[1:]
    try:
        machine.fill()

        ray.init(address=machine.ray.address, log_to_driver=False, logging_level="error")
        for scenario in [s for s in SCENARIOS if not names or s.__name__ in names]:
            machine.fill()
            await _said(scenario.__name__, lambda s=scenario: s(machine))
        if not names or "blocking" in names:
            machine.fill()
            await _said("blocking", lambda: asyncio.to_thread(blocking, machine))
    finally:
        ray.shutdown()
        machine.ray.shutdown()


async def _said(name: str, run: Callable[[], Awaitable[None]]) -> None:
    error = ""
    try:
        async with asyncio.timeout(2 * BOUND):
            await run()
    except Exception:
        error = traceback.format_exc()
    print(json.dumps({"name": name, "error": error}), flush=True)


if __name__ == "__main__":
    os.environ.update(SLIM)
    asyncio.run(main())
