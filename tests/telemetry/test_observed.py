"""Several observed systems of one process: one port, one view, every series once."""

import asyncio
import os
import signal
import socket
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.telemetry.fakenvml import UUID, FakeNvml
from tests.telemetry.test_exporters import answer
from tests.telemetry.test_otlp import Collector, collector  # noqa: F401 - a fixture

import callboard as cb
from callboard.cli.top.source import Source, found
from callboard.events.kinds import MARK
from callboard.telemetry import installed
from callboard.telemetry.nvidia.nvml import _watching, watch_gpus
from callboard.telemetry.observed import snapshot_of_all

THREAD: dict[str, Any] = {"isolation": "thread", "standby": None}


class Idler(cb.Actor):
    """Does nothing."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


async def page(port: int) -> str:
    head, _, body = (await answer(port, b"GET /metrics HTTP/1.1\r\n\r\n")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    return body.decode()


def series(text: str) -> Counter[str]:
    return Counter(line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#"))


async def test_one_port_shows_all_systems_and_outlives_the_first() -> None:
    port = free_port()
    async with asyncio.timeout(60), cb.System() as other:
        async with cb.System() as system:
            for each in (system, other, system):
                cb.observe(each, prometheus=port)
            for each in (system, other):
                each.actor_of(cb.Props(Idler), "idler")
                device = await each.device("cpu", **THREAD)
                await device.put(np.ones(4))
            text = await page(port)
            lines = series(text)
            assert max(lines.values()) == 1
            for device_name in ("cpu:0", "cpu:0 #2"):
                assert f'callboard_op_calls_total{{device="{device_name}",op="memory.upload"}} 1' in text
                assert f'callboard_device_info{{device="{device_name}",system="callboard",' in text
            for path in ("/callboard/idler", "/callboard #2/idler"):
                assert f'callboard_actor_mailbox_depth{{actor="{path}"}}' in lines
            assert len([name for name in lines if name.startswith("callboard_process_threads")]) == 1
        text = await page(port)
        assert 'device="cpu:0 #2"' in text
        assert 'callboard_device_ready{device="cpu:0"}' not in text
    with pytest.raises(OSError, match=r"refused|Connect"):
        await answer(port, b"")


async def test_a_view_shows_all_systems_of_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    empty = await snapshot_of_all()
    assert (empty.devices, [each.role for each in empty.processes]) == ([], ["application"])
    async with cb.System("one") as one, cb.System("two") as two:
        for each in (one, two):
            cb.observe(each)
        await one.device("cpu", **THREAD)
        whole = await snapshot_of_all()
        assert whole.system == "one, two"
        assert [(each.name, each.system) for each in whole.devices] == [("cpu:0", "one")]
        assert {each.path.split("/")[1] for each in whole.actors} == {"one", "two"}
        assert len(whole.processes) == 1
        with Source(*found(os.getpid())) as source:
            assert (await asyncio.to_thread(source.snapshot)).system == "one, two"
            await two.stop()
            assert (await asyncio.to_thread(source.snapshot)).system == "one"


async def test_a_system_of_another_thread_is_asked_there(caplog: pytest.LogCaptureFixture) -> None:
    ended = threading.Event()
    begun = threading.Event()

    async def other() -> None:
        async with cb.System("other") as system:
            cb.observe(system)
            begun.set()
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=lambda: asyncio.run(other()))
    thread.start()
    try:
        async with cb.System("mine") as system:
            cb.observe(system)
            await asyncio.to_thread(begun.wait)
            assert sorted((await snapshot_of_all()).system.split(", ")) == ["mine", "other"]
    finally:
        ended.set()
        thread.join()
    assert installed() == []
    assert (await snapshot_of_all()).system == ""


async def test_an_ended_system_is_not_observed() -> None:
    async with cb.System("brief") as system:
        pass
    with pytest.raises(RuntimeError, match="the system brief has ended: call observe"):
        cb.observe(system)
    assert installed() == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a fork")
async def test_a_forked_child_observes_its_own_systems_only() -> None:
    async def child() -> bool:
        async with cb.System("mine") as system:
            cb.observe(system, prometheus=port)
            return (await snapshot_of_all()).system == "mine" and 'device="cpu:0 #2"' not in await page(port)

    port = free_port()
    async with cb.System("mine") as system:
        cb.observe(system)
        await system.device("cpu", **THREAD)
        await snapshot_of_all()
        pid = os.fork()
        if not pid:
            found: list[bool] = []
            try:
                signal.alarm(50)
                thread = threading.Thread(
                    target=lambda: found.append(asyncio.run(child()))
                )  # this loop is the parent's
                thread.start()
                thread.join()
            finally:
                os._exit(found != [True])
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
        assert status == 0


async def test_an_error_of_a_gpu_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    marks: list[Any] = []
    nvml = FakeNvml(), FakeNvml()
    async with asyncio.timeout(60), cb.System("one") as one, cb.System("two") as two:
        telemetries = [cb.observe(each) for each in (one, two)]
        telemetries[0].subscribe(lambda events: marks.extend(each for each in events if each[2] == MARK))
        sources = []
        for telemetry, each in zip(telemetries, nvml, strict=True):
            watch_gpus(telemetry, each)
            [source] = telemetry._sources
            await source.refresh()
            sources.append(source)
        for each in nvml:
            each.tell(0x8, 31)
        while not all(source.xids for source in sources):  # noqa: ASYNC110 - counters of threads
            await asyncio.sleep(0)
        telemetries[0].flush()
        assert [(each[3], each[4], each[5]["code"]) for each in marks] == [(UUID, "xid", 31)]
        assert caplog.text.count("Xid 31") == 1
        await telemetries[0].close()  # the other one goes on
        while len(_watching) > 1:  # noqa: ASYNC110 - the state of another actor
            await asyncio.sleep(0)
        nvml[1].tell(0x8, 43)
        while not sources[1].xids[UUID, 43]:  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0)
        assert caplog.text.count("Xid 43") == 1


async def test_one_collector_gets_the_metrics_of_all_systems_once(collector: Collector) -> None:  # noqa: F811
    async with cb.System("one") as one, cb.System("two") as two:
        for each in (one, two):
            cb.observe(each, "node-1", otlp=collector.port)
            await each.device("cpu", **THREAD)
    metrics = [request for path, bodies in collector.bodies.items() if path == "/v1/metrics" for request in bodies]
    assert len(metrics) == 2  # one as each system ended
    assert b"two" in metrics[0]
    points = collector.metrics()["callboard_process_threads"].gauge.data_points
    assert len(points) == 1
