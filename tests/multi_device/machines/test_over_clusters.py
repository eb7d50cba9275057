"""Placement, worlds, replica pools and entities over the devices of a cluster."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.multi_device.machines import over_it
from tests.multi_device.machines.lab import LocalEngine, clustered, three

import callboard as cb

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.timeout(180)]

Opened = tuple[LocalEngine, cb.Cluster, list[cb.Device]]


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    engine = three()
    async with clustered(engine) as cluster:
        yield engine, cluster, list(await asyncio.gather(*(cluster.device("cpu") for _ in range(3))))


@pytest.mark.slow
async def test_placement_and_copies(opened: Opened) -> None:
    await over_it.placement(opened[2])


@pytest.mark.slow
async def test_entities(opened: Opened) -> None:
    await over_it.entities(opened[2])


@pytest.mark.slow
@pytest.mark.fault
async def test_a_replica_pool_whose_node_is_killed(opened: Opened) -> None:
    engine, cluster, devices = opened

    async def lose() -> None:
        engine.kill(cluster.where(devices[1]))

    await over_it.replica_pool(devices, lose)


@pytest.mark.fault
async def test_a_world_whose_node_is_killed(opened: Opened) -> None:
    engine, cluster, devices = opened
    assert len({cluster.where(device) for device in devices}) == 3

    async def lose() -> None:
        engine.kill(cluster.where(devices[2]))

    await over_it.worlds(devices, lose)


@pytest.mark.slow
async def test_a_world_of_nodes_and_of_this_machine(opened: Opened) -> None:
    async with cb.device("cpu", isolation="process", standby=None) as here:
        await over_it.worlds([here, *opened[2][:2]])
