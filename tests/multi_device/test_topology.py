"""Peer access between devices: the graph, and open devices over it."""

import os
import signal

import pytest
from tests.multi_device.waiting import until

import callboard as cb
from callboard.core.links import Link


def graph(away: dict[str, str] | None = None) -> cb.P2pGraph:
    names = {f"GPU-{i}": f"cuda:{i}" for i in range(4)}
    links = [
        Link(one="GPU-0", other="GPU-1", kind="nvlink", direct=True, count=18, generation=4, ancestor="node"),
        Link(one="GPU-2", other="GPU-3", kind="pcie", direct=True, generation=5, width=16, ancestor="switch"),
        Link(one="GPU-1", other="GPU-2", kind="pcie", direct=False, generation=5, width=16, ancestor="system"),
        Link(one="GPU-1", other="GPU-9", kind="pcie", direct=True),
    ]
    return cb.P2pGraph(names, links, away or {})


def test_pairs_and_islands() -> None:
    links = graph()
    assert links.device_count == 4
    assert links.can_pair("GPU-1", "GPU-0")
    assert links.can_pair("GPU-2", "GPU-3")
    assert not links.can_pair("GPU-1", "GPU-2")
    assert not links.can_pair("GPU-1", "GPU-1")
    assert links.islands() == [frozenset({"GPU-0", "GPU-1"}), frozenset({"GPU-2", "GPU-3"})]
    assert links.edges["GPU-1"] == frozenset({"GPU-0"})
    with pytest.raises(KeyError, match="'GPU-9': the devices are GPU-0, GPU-1, GPU-2, GPU-3"):
        links.can_pair("GPU-1", "GPU-9")


def test_a_device_that_is_rebuilt_reaches_no_other() -> None:
    links = graph({"GPU-1": "rebuilding"})
    assert not links.can_pair("GPU-0", "GPU-1")
    assert links.islands() == [frozenset({"GPU-0"}), frozenset({"GPU-1"}), frozenset({"GPU-2", "GPU-3"})]


def test_explained() -> None:
    assert graph({"GPU-1": "rebuilding"}).explain().splitlines() == [
        "cuda:1: rebuilding",
        "cuda:0 - cuda:1: NVLink 4 (18 links) by node",
        "cuda:0 - cuda:2: no link is known; copies go through host memory",
        "cuda:0 - cuda:3: no link is known; copies go through host memory",
        "cuda:1 - cuda:2: PCIe 5 x16 by system without peer access; copies go through host memory",
        "cuda:1 - cuda:3: no link is known; copies go through host memory",
        "cuda:2 - cuda:3: PCIe 5 x16 by switch",
        "island: cuda:0",
        "island: cuda:1",
        "island: cuda:2, cuda:3",
    ]


@pytest.mark.leaves_nothing
async def test_open_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "3")
    async with cb.device("cpu:0", isolation="process", standby=None) as a, cb.device("cpu:1") as b:
        topology = cb.P2pTopology([a, b])
        assert topology.can_access(a, b)
        assert topology.can_access(a, a)
        link = topology.link(b, a)
        assert link is not None
        assert (link.kind, link.direct) == ("shared memory", True)
        assert topology.islands() == [frozenset({a, b})]
        assert topology.explain() == "cpu:0 - cpu:1: host memory of both\nisland: cpu:0, cpu:1"
        async with cb.PlacementActor([a, b], links=topology) as placement:
            assert {c.device for c in placement.gang([cb.PlacementHints()] * 2, linked=True)} == {a, b}
            pid = a.health().host_pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await until(lambda: not a.available)
            assert not topology.can_access(a, b)
            assert topology.islands() == [frozenset({a}), frozenset({b})]
            assert topology.explain().startswith("cpu:0: rebuilding\n")
        await a.ready()
        assert topology.can_access(a, b)
        with pytest.raises(ValueError, match="given twice"):
            cb.P2pTopology([a, a])
