"""NVML: every figure, what is not supported, lost GPUs, intervals, and Xid events that end a context."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.telemetry.fakenvml import UUID, FakeNvml, NVMLError_GpuIsLost, field

import callboard as cb
from callboard.actors import ManualClock
from callboard.events.kinds import LOST, MARK
from callboard.telemetry import TABLE
from callboard.telemetry.nvidia import nvml as module
from callboard.telemetry.nvidia.figures import GpuFigures, GpuProcess
from callboard.telemetry.nvidia.metrics import GpuSource
from callboard.telemetry.nvidia.nvml import GpuSnapshot, NvmlActor, SetInterval, Shutdown, watch_gpus
from callboard.telemetry.nvidia.reading import Gpus

LIMIT = 60.0

EXPECTED = GpuFigures(
    index=0,
    uuid=UUID,
    name="NVIDIA H100",
    power=310.5,
    power_average=300.0,
    power_limit=700.0,
    energy=5000.5,
    temperature=41.0,
    memory_temperature=55.0,
    sm_clock=1.98e9,
    memory_clock=2.619e9,
    video_clock=1.545e9,
    throttled=["sw_power_cap", "hw_thermal_slowdown"],
    utilization=0.87,
    memory_utilization=0.25,
    memory_total=80 << 30,
    memory_used=10 << 30,
    memory_free=69 << 30,
    ecc_corrected=1,
    ecc_uncorrected=2,
    ecc_corrected_ever=3,
    ecc_uncorrected_ever=4,
    rows_corrected=5,
    rows_uncorrected=6,
    row_remap_pending=False,
    row_remap_failed=True,
    pcie_sent=1000,
    pcie_received=2000,
    pcie_replays=7,
    nvlink_sent=3 * 1024,
    nvlink_received=4 * 1024,
    processes=[GpuProcess(42, 1 << 20)],
    mig=True,
    mig_devices=["MIG-1"],
    recovery_action="none",
)


async def until(true: Callable[[], Any]) -> None:
    while not true():  # noqa: ASYNC110 - a counter of a thread
        await asyncio.sleep(0.001)


def test_every_figure_in_our_units() -> None:
    [found] = Gpus(FakeNvml()).read()
    for name in GpuFigures.__struct_fields__:
        assert getattr(found, name) == pytest.approx(getattr(EXPECTED, name)), name


def test_what_is_not_supported_is_none_and_not_zero() -> None:
    nvml = FakeNvml()
    nvml.answers.clear()
    nvml.fields.clear()
    [found] = Gpus(nvml).read()
    assert found == GpuFigures(0, UUID, "NVIDIA H100")
    source = GpuSource()
    source.latest = [found]
    assert {family.name: series for family, series in source.collect() if series} == {
        "callboard_gpu_lost": [(("0", UUID), 0)]
    }


def test_an_older_call_replaces_the_field_of_power_where_that_is_missing() -> None:
    nvml = FakeNvml()
    del nvml.fields[186]
    assert Gpus(nvml).read()[0].power == 311.0


def test_a_gpu_that_uses_no_power_does_not_take_the_older_call() -> None:
    nvml = FakeNvml()
    nvml.fields[186] = field(0, 1)
    assert Gpus(nvml).read()[0].power == 0.0


def test_a_lost_gpu_is_shown_as_lost() -> None:
    nvml = FakeNvml()
    gpus = Gpus(nvml)
    nvml.lost = True
    assert gpus.read() == [GpuFigures(0, UUID, "NVIDIA H100", lost=True)]


def test_every_metric_of_the_table_is_exported() -> None:
    source = GpuSource()
    source.latest = Gpus(FakeNvml()).read()
    source.xids[UUID, 31] = 2
    groups = {family.name: dict(series) for family, series in source.collect()}
    assert groups.keys() == {name for name in TABLE if name.startswith("callboard_gpu_")}
    assert all(groups.values())
    assert groups["callboard_gpu_energy_joules_total"] == {("0", UUID): 5000.5}
    assert groups["callboard_gpu_xid_errors_total"] == {("0", UUID, "31"): 2}
    assert groups["callboard_gpu_throttled"].keys() == {
        ("0", UUID, "sw_power_cap"),
        ("0", UUID, "hw_thermal_slowdown"),
    }
    [figures] = source.figures()
    assert (figures["power"], figures["xids"]) == (310.5, {"31": 2})


@pytest.mark.parametrize("seconds", [0, -1.0, float("inf"), float("nan"), "1"])
def test_an_interval_is_a_positive_number(seconds: Any) -> None:
    with pytest.raises(ValueError, match=r"seconds is .*positive number"):
        SetInterval(seconds=seconds)


async def test_intervals_and_the_end() -> None:
    clock, nvml = ManualClock(), FakeNvml()
    readings = 0

    def power() -> int:
        nonlocal readings
        readings += 1
        return 1000 * readings

    nvml.answers["nvmlDeviceGetPowerUsage"] = power
    del nvml.fields[186]
    async with asyncio.timeout(LIMIT), cb.System("nvml", clock=clock) as system:
        actor = system.actor_of(cb.Props(NvmlActor, 2.0, nvml), "nvml")
        [first] = await actor.ask(GpuSnapshot(), timeout=None)
        before = readings
        clock.advance(1.9)
        await actor.ask(SetInterval(seconds=10.0), timeout=None)
        clock.advance(9.9)
        await actor.ask(SetInterval(seconds=10.0), timeout=None)
        assert readings == before
        clock.advance(10.1)
        await until(lambda: readings == before + 1)
        assert first.power == before
        await actor.ask(Shutdown(), timeout=None)
        assert nvml.calls[-1] == "nvmlShutdown"
        assert "nvmlEventSetFree" in nvml.calls
        with pytest.raises(cb.ActorStopped):
            await actor.ask(GpuSnapshot(), timeout=None)


async def test_without_a_driver_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    module._say.cache_clear()
    nvml = FakeNvml()
    nvml.absent = True
    with caplog.at_level(logging.INFO, "callboard.telemetry"):
        async with asyncio.timeout(LIMIT), cb.System("none") as system:
            for name in ("one", "two"):
                actor = system.actor_of(cb.Props(NvmlActor, 1.0, nvml), name)
                assert await actor.ask(GpuSnapshot(), timeout=None) == []
                assert await actor.ask(GpuSnapshot(), timeout=None) == []
    said = [record for record in caplog.records if "no figures of GPUs" in record.message]
    assert [record.levelname for record in said] == ["INFO"]


def of_gpu(device: cb.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device._port, "uuid", UUID)


async def test_a_fatal_xid_gives_the_device_a_new_context(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    nvml = FakeNvml()
    async with asyncio.timeout(LIMIT), cb.System("xid") as system:
        telemetry = cb.observe(system)
        telemetry.subscribe(seen.extend)
        actor = watch_gpus(telemetry, nvml)
        assert actor is not None
        device = await system.device("cpu", isolation="process")
        await device.full((2,), 1.0)
        of_gpu(device, monkeypatch)
        await actor.ask(GpuSnapshot(), timeout=None)
        generation = device.watch_generation().value
        nvml.tell(0x8, 31)  # of one process: the host of this one finds its context well
        nvml.tell(0x8000, 1)
        await until(lambda: telemetry.flush() or sum(event[2] == MARK for event in seen) == 2)
        assert float((await device.full((2,), 2.0).get())[0]) == 2.0
        assert device.watch_generation().value == generation
        nvml.tell(0x8, 79)
        await device.watch_generation().changed(generation)
        assert np.array_equal(await device.full((2,), 3.0).get(), [3, 3])
        telemetry.flush()
        marks = [event[3:] for event in seen if event[2] == MARK]
        assert [(where, name, values["code"], values["fatal"]) for where, name, values in marks] == [
            (UUID, "xid", 31, False),
            (UUID, "recovery_action", 1, False),
            (UUID, "xid", 79, True),
        ]
        [lost] = [event for event in seen if event[2] == LOST]
        assert "Xid 79: the GPU has fallen off the bus" in lost[6]
        assert telemetry.sample().extra["gpus"][0]["xids"] == {"31": 1, "79": 1}
    assert nvml.calls[-1] == "nvmlShutdown"


async def test_the_host_looks_whether_its_context_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml()
    async with asyncio.timeout(LIMIT), cb.System("probe") as system:
        device = await system.device("cpu", isolation="thread")
        of_gpu(device, monkeypatch)
        events = device.events()
        actor = system.actor_of(cb.Props(NvmlActor, 1.0, nvml), "nvml")
        await actor.ask(GpuSnapshot(), timeout=None)
        dead = cb.ContextPoisoned("illegal address")
        monkeypatch.setattr("callboard.backends.cpu.device.CpuDevice.probe", lambda self: dead)
        nvml.tell(0x8, 13)
        lost = await anext(events)
        assert "illegal address" in str(lost.error)


async def test_a_lost_gpu_ends_the_events_and_its_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml()
    async with asyncio.timeout(LIMIT), cb.System("lost") as system:
        device = await system.device("cpu")
        of_gpu(device, monkeypatch)
        events = device.events()
        actor = system.actor_of(cb.Props(NvmlActor, 1.0, nvml), "nvml")
        await actor.ask(GpuSnapshot(), timeout=None)
        nvml.lost = True
        nvml.events.put(NVMLError_GpuIsLost("GPU is lost"))
        lost = await anext(events)
        assert "the GPU does not answer" in str(lost.error)


async def test_a_system_is_observed_again_while_the_last_watcher_ends() -> None:
    async with asyncio.timeout(LIMIT), cb.System("again") as system:
        for _ in range(3):
            telemetry = cb.observe(system)
            actor = watch_gpus(telemetry, FakeNvml())
            assert actor is not None
            await actor.ask(GpuSnapshot(), timeout=None)
            await telemetry.close()
