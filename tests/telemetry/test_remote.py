"""A device whose context host a node on another machine has started: figures, events and trace contexts arrive."""

import asyncio
import time

import numpy as np
import pytest

import callboard as cb
from callboard.device.protocol.messages import Traces
from callboard.device.supervision.remote import host as remote
from callboard.device.supervision.remote.clock import RemoteClock
from callboard.device.supervision.remote.node import NodeServer
from callboard.events.concerns import TRACE
from callboard.events.kinds import OP, TRACED
from callboard.events.ring import Event
from callboard.observability import traceparent

TOKEN = "a token of 24 characters"
CONTEXT = f"00-{'ab' * 16}-{'cd' * 8}-01"
AHEAD = 5000.0
"""Seconds by which the node's clock is ahead."""


class Known(cb.ResidentActor):
    def known(self) -> str | None:
        return traceparent()


class OtherClock(RemoteClock):
    """What the records of such a node become."""

    def translated(self, message: Traces, now: float) -> Traces:
        ahead = [
            (op, tag, stream, began + AHEAD, enqueued + AHEAD, done + AHEAD, ok, started and started + AHEAD, seconds)
            for op, tag, stream, began, enqueued, done, ok, started, seconds in message.records
        ]
        return super().translated(Traces(ahead), now)


@pytest.mark.timeout(120)
async def test_telemetry_of_a_device_of_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "RemoteClock", OtherClock)
    node, events = NodeServer(TOKEN), list[Event]()
    host, port = await node.start("127.0.0.1")
    try:
        async with asyncio.timeout(100), cb.System("app") as system:
            telemetry = cb.observe(system)
            telemetry.subscribe(events.extend)
            device = await system.device("cpu", node=cb.Node(f"{host}:{port}", token=TOKEN))
            telemetry.measure_everything()
            known = device.actor_of(cb.Props(Known))
            await known.ready()
            began = time.monotonic()
            TRACE.set(CONTEXT)
            a = device.put(np.eye(4, dtype=np.float32))
            for _ in range(10):
                a = device.blas.gemm(a, a)
            await a.get()
            assert await known.call(Known.known) == CONTEXT
            ended = time.monotonic()
            await telemetry.refresh(60.0)
            telemetry.flush()
            (figures,) = telemetry.sample().devices
            assert figures.ops["blas.gemm"].submitted == figures.ops["blas.gemm"].measured == 10
            assert figures.memory
            called = {event[4]: event[7] for event in events if event[2] == OP and event[5] == "blas.gemm"}
            assert list(called.values()) == [CONTEXT] * 10
            records = [record for event in events if event[2] == TRACED for record in event[4]]
            times = [record[3:6] for record in records if record[0] in called]
            assert len(times) == 10
            assert all(began <= start <= launched <= done <= ended for start, launched, done in times)
    finally:
        await node.close()
