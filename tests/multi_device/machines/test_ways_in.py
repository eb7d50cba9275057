"""Clusters without asyncio, encrypted connections, and a node's limits for an application."""

import asyncio
import socket
from pathlib import Path

import numpy as np
import pytest
from tests.device.supervision.test_nodes import BOUND, TOKEN, certified
from tests.multi_device.machines.lab import LOST_AFTER, LocalEngine, clustered, three

import callboard as cb
from callboard.clusters import OpenCluster
from callboard.device.supervision.remote.node import BUSY, NodeServer

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.timeout(120)]


@pytest.mark.slow
def test_the_blocking_twin() -> None:
    engines: list[LocalEngine] = []

    async def connect() -> LocalEngine:
        engines.append(three())
        return engines[0]

    with cb.sync.Cluster(OpenCluster(None, connect, (None, LOST_AFTER, 20.0))) as cluster:
        assert [node.id for node in cluster.nodes()] == ["n1", "n2", "n3"]
        device = cluster.device("cpu", node="n2")
        assert cluster.where(device) == "n2"
        assert (device.put(np.ones((4, 4))) + 1).get().sum() == 32
        device.close()
        with cluster.device("cpu") as second:
            assert second.put(np.ones(4)).get().sum() == 4
        left = cluster.device("cpu")
    assert engines[0].closed
    cluster.close()
    with pytest.raises(cb.DeviceStopped, match="cluster was left"):
        cluster.device("cpu")
    with pytest.raises(cb.DeviceStopped):
        left.put(np.ones(2)).get()


@pytest.mark.slow
async def test_a_cluster_that_is_encrypted(tmp_path: Path) -> None:
    certificate, key = certified(tmp_path)
    tls = cb.NodeTls(cafile=certificate, certfile=certificate, keyfile=key, server_name="node.example")
    engine = three()
    async with clustered(engine, tls=tls) as cluster:
        device = await cluster.device("cpu")
        assert (await device.put(np.ones(300_000)).get()).sum() == 300_000
    other = cb.NodeTls(cafile=certificate, certfile=certificate, keyfile=key, server_name="another.example")
    async with clustered(three(), tls=other) as cluster:
        with pytest.raises(cb.BackendUnavailable, match="certificate"):
            await cluster.device("cpu")
    async with clustered(three(), tls=cb.NodeTls(cafile="/nowhere", certfile="", keyfile="")) as cluster:
        with pytest.raises(FileNotFoundError):
            await cluster.device("cpu")


async def test_a_busy_application_is_not_given_up_while_its_machine_answers() -> None:
    """The kernel says after ``lost_after`` that a machine is cut off; an event loop may be silent for longer."""
    server = NodeServer(TOKEN)
    host, port = await server.start("127.0.0.1")
    async with cb.device("cpu", node=cb.Node(f"{host}:{port}", token=TOKEN, lost_after=2.5)) as device:
        (session,) = [session for session in server._sessions if session._host is not None]
        assert session._link._lost_after == BUSY
        raw = session._streams[1].get_extra_info("socket")
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 2500
        assert device.available
    async with asyncio.timeout(BOUND):
        await server.close()
