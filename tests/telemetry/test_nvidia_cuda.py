"""A real GPU: NVML's figures against ``nvidia-smi``, CUPTI's times against ours, and a poisoned context under both."""

import asyncio
import importlib.util
import os
import subprocess
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.faults.cuda.actors import Striker
from tests.faults.cuda.lab import cuda, error_of

import callboard as cb
from callboard.events.kinds import MARK
from callboard.telemetry.nvidia.cupti import ActivityRecord, CuptiSession
from callboard.telemetry.nvidia.figures import GpuFigures
from callboard.telemetry.nvidia.nvml import GpuSnapshot, NvmlActor
from callboard.telemetry.nvidia.nvtx import NvtxKernelTrace

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

LIMIT = 120.0
Record = Callable[[str, object], None]

SMI: dict[str, tuple[str, float, float]] = {
    "uuid": ("uuid", 1, 0),
    "power": ("power.draw.instant", 1, 60.0),
    "power_limit": ("enforced.power.limit", 1, 0.01),
    "temperature": ("temperature.gpu", 1, 5.0),
    "memory_temperature": ("temperature.memory", 1, 5.0),
    "sm_clock": ("clocks.sm", 1e6, 300e6),
    "memory_clock": ("clocks.mem", 1e6, 1e6),
    "video_clock": ("clocks.video", 1e6, 300e6),
    "memory_total": ("memory.total", 1 << 20, 1 << 20),
    "memory_used": ("memory.used", 1 << 20, 64 << 20),
    "memory_free": ("memory.free", 1 << 20, 64 << 20),
    "ecc_corrected": ("ecc.errors.corrected.volatile.total", 1, 0),
    "ecc_uncorrected": ("ecc.errors.uncorrected.volatile.total", 1, 0),
    "ecc_corrected_ever": ("ecc.errors.corrected.aggregate.total", 1, 0),
    "ecc_uncorrected_ever": ("ecc.errors.uncorrected.aggregate.total", 1, 0),
}
"""Figures, nvidia-smi's names, the unit of its numbers, and by how much two readings may differ."""


def needs(module: str) -> None:
    """Skip where a package is missing, except where a GPU is required."""
    if importlib.util.find_spec(module) is None:
        if os.environ.get("CALLBOARD_REQUIRE") == "cuda":
            pytest.fail(f"CALLBOARD_REQUIRE=cuda, and {module} is not installed (extra observability-full-cuda13)")
        pytest.skip(f"{module} is not installed")


def smi(*query: str) -> list[list[str]]:
    """What nvidia-smi answers: a row for each GPU."""
    command = ["nvidia-smi", f"--query-gpu={','.join(query)}", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return [[value.strip() for value in line.split(",")] for line in done.stdout.splitlines()]


async def snapshot() -> list[GpuFigures]:
    async with asyncio.timeout(LIMIT), cb.System("nvml") as system:
        return await system.actor_of(cb.Props(NvmlActor), "nvml").ask(GpuSnapshot(), timeout=60)


async def test_figures_are_those_of_nvidia_smi(record_property: Record) -> None:
    needs("pynvml")
    async with cuda() as dev:
        await dev.full((1024, 1024), 1.0)  # keeps the GPU in one state
        rows = {row[0]: row for row in smi(*(name for name, _, _ in SMI.values()))}
        found = await snapshot()
        later = {row[0]: row for row in smi(*(name for name, _, _ in SMI.values()))}  # others use the GPU meanwhile
        assert {gpu.uuid for gpu in found} == rows.keys()
        assert dev.uuid in rows
        for gpu in found:
            record_property(gpu.uuid, repr(gpu))
            both = zip(SMI.items(), rows[gpu.uuid], later[gpu.uuid], strict=True)
            for (figure, (name, unit, differs)), text, then in both:
                value = getattr(gpu, figure)
                if figure == "uuid":
                    assert value == text
                elif "N/A" in text or "Not Supported" in text:
                    assert value is None, f"{figure} is {value}, {name} is {text}"
                else:
                    assert value is not None, f"{figure} is None, {name} is {text}"
                    low, high = sorted((float(text) * unit, float(then) * unit))
                    assert low - differs <= value <= high + differs, f"{figure} is {value}, {name} is {text}, {then}"


async def test_figures_follow_the_work(record_property: Record) -> None:
    """Counters grow, and the processes of hosts are there where the driver shows them."""
    needs("pynvml")
    async with cuda() as dev:
        [before] = [gpu for gpu in await snapshot() if gpu.uuid == dev.uuid]
        x = dev.put(np.ones((4096, 4096), np.float32))
        for _ in range(4):
            await (await dev.blas.gemm(x, x)).get()
        [after] = [gpu for gpu in await snapshot() if gpu.uuid == dev.uuid]
        record_property("processes", repr(after.processes))
        assert before.energy is not None
        assert after.energy is not None
        assert after.energy > before.energy
        for name in ("pcie_sent", "pcie_received"):
            one, other = getattr(before, name), getattr(after, name)
            record_property(name, None if one is None else other - one)
            assert one is None or other >= one, f"{name} went from {one} to {other}: it wraps around"
        assert after.recovery_action in (None, "none")


async def test_times_are_those_of_cupti(record_property: Record) -> None:
    """Products that take long: what CUPTI measures of their kernels is what our events measure, within 2 %."""
    needs("cupti")
    traces: list[Any] = []
    async with asyncio.timeout(LIMIT), cuda(trace=True) as dev:
        x = dev.put(np.ones((4096, 4096), np.float32))
        await dev.blas.gemm(x, x)
        async with CuptiSession(dev) as session:
            remove = await dev.trace(traces.append)
            for _ in range(20):
                await dev.blas.gemm(x, x)
            await remove()
            drained = await session.drain()
        kernels: dict[int, list[ActivityRecord]] = defaultdict(list)
        for record in drained.records:
            if record.kind == "kernel" and record.tag == "blas.gemm":
                kernels[record.op].append(record)
        ours = {trace.op: trace for trace in traces if trace.tag == "blas.gemm" and trace.seconds}
        both = kernels.keys() & ours.keys()
        assert len(both) == 20, (len(kernels), len(ours), [record.tag for record in drained.records][:10])
        ratios = []
        for op in both:
            began = min(record.start for record in kernels[op])
            ended = max(record.start + record.seconds for record in kernels[op])
            ratios.append(ours[op].seconds / (ended - began))
            assert abs(began - ours[op].started) < 0.005, "CUPTI's clock is not converted to the host's"
        record_property("median of ours by CUPTI's", float(np.median(ratios)))
        assert abs(np.median(ratios) - 1) < 0.02, ratios


async def test_copies_and_api_calls_have_their_ops() -> None:
    needs("cupti")
    async with asyncio.timeout(LIMIT), cuda() as dev:
        session = CuptiSession(dev)
        await session.start(["memcpy", "driver"])
        host = np.ones(1 << 20, np.float32)
        array = await dev.put(host).get()
        assert np.array_equal(array, host)
        records = (await session.stop()).records
        copies = {record.name: record for record in records if record.kind == "memcpy" and record.nbytes == host.nbytes}
        assert {"htod", "dtoh"} <= copies.keys(), records
        assert all(copy.op and copy.tag for copy in copies.values())
        assert any(record.kind == "driver" and record.op == copies["htod"].op for record in records)
        assert not [record.name for record in records if "Query" in record.name], "polls are not left out"


@pytest.mark.fault
@pytest.mark.leaves_nothing
@pytest.mark.parametrize("standby", [None, "warm"])
async def test_a_poisoned_context_under_cupti(standby: str | None) -> None:
    """It is lost as without CUPTI, and the next one is recorded."""
    needs("cupti")
    async with asyncio.timeout(LIMIT), cuda(standby=standby, max_restarts=1) as dev:
        striker = dev.actor_of(cb.Props(Striker), name="striker")
        events = dev.events()
        async with CuptiSession(dev) as session:
            x = dev.put(np.ones((64, 64), np.float32))
            await dev.blas.gemm(x, x)
            assert any(record.tag == "blas.gemm" for record in (await session.drain()).records)
            strike = striker.call(Striker.strike, "illegal")
            lost = await anext(events)
            assert isinstance(lost, cb.Lost)
            assert isinstance(await anext(events), cb.Recovered)
            y = dev.put(np.ones((64, 64), np.float32))
            assert float((await dev.blas.gemm(y, y).get())[0, 0]) == 64.0
            drained = await session.drain()
            assert drained.losses == 1
            assert any(record.tag == "blas.gemm" for record in drained.records)
        assert isinstance(await error_of(strike), cb.ContextPoisoned)


@pytest.mark.fault
@pytest.mark.leaves_nothing
async def test_a_poisoned_context_is_an_xid() -> None:
    needs("pynvml")
    seen: list[Any] = []
    async with asyncio.timeout(LIMIT), cuda(max_restarts=1) as dev:
        telemetry = cb.observe(dev._actor.system)
        telemetry.subscribe(seen.extend)
        await telemetry.refresh(30.0)
        assert any(gpu["uuid"] == dev.uuid for gpu in telemetry.sample().extra["gpus"])
        striker = dev.actor_of(cb.Props(Striker), name="striker")
        events = dev.events()
        strike = striker.call(Striker.strike, "illegal")
        assert isinstance(await anext(events), cb.Lost)
        assert isinstance(await anext(events), cb.Recovered)
        assert isinstance(await error_of(strike), cb.ContextPoisoned)
        for _ in range(200):
            telemetry.flush()
            if marks := [event for event in seen if event[2] == MARK and event[4] == "xid"]:
                assert (marks[0][3], marks[0][5]["fatal"]) == (dev.uuid, False)
                assert marks[0][5]["code"] in (13, 31, 43, 45), marks
                break
            await asyncio.sleep(0.1)
        else:
            pytest.skip("the driver of this machine tells this process of no Xid events")
        assert dev.health().restarts == 1  # the Xid of the old context does not cost the new one


async def test_ranges_cost_no_op() -> None:
    needs("nvtx")
    async with asyncio.timeout(LIMIT), cuda() as dev, NvtxKernelTrace(dev):
        x = dev.put(np.ones((64, 64), np.float32))
        assert float((await dev.blas.gemm(x, x).get())[0, 0]) == 64.0
