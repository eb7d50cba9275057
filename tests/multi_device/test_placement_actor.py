"""Work is placed on open devices, which are lost, stop, come and go."""

import asyncio
import os
import signal
from typing import Any

import pytest
from tests.multi_device.waiting import until

import callboard as cb
from callboard.actors import ManualClock

pytestmark = pytest.mark.leaves_nothing
GIB = 1 << 30


def ready(placement: cb.PlacementActor, device: cb.Device) -> bool:
    return {c.id: c.ready for c in placement.candidates()}[device.uuid]


async def test_a_burst_spreads_and_what_is_released_counts_no_more(devices: list[cb.Device]) -> None:
    async with cb.PlacementActor(devices) as placement:
        choices = [placement.pick() for _ in range(8)]
        assert sorted(choice.device_id for choice in choices) == sorted([d.uuid for d in devices] * 2)
        assert {choice.load for choice in choices} == {1, 2}
        for choice in choices:
            choice.release()
        with placement.pick() as choice:
            assert choice.active
            assert await choice.device.full(3, 2.0).get() is not None
        assert not choice.active
        assert [candidate.load for candidate in placement.candidates()] == [0, 0, 0, 0]
        assert placement.devices == devices


async def test_work_in_flight_is_load(devices: list[cb.Device]) -> None:
    async with cb.PlacementActor(devices[:2]) as placement:
        refs = [devices[0].full(4, 1.0) for _ in range(3)]
        assert placement.pick().device is devices[1]
        assert placement.pick().device is devices[1]
        await asyncio.gather(*(ref.get() for ref in refs))


async def test_memory_is_reserved_until_the_lease_ends(devices: list[cb.Device]) -> None:
    clock = ManualClock()
    async with cb.PlacementActor(devices[:1], clock=clock) as placement:
        half = cb.PlacementHints(memory_bytes=placement.candidates()[0].free_bytes * 2 // 3)
        placement.pick(half, lease=5.0)
        with pytest.raises(cb.NoEligibleDevice, match=r"memory_bytes = .* CPU-0: .* are reserved"):
            placement.pick(half)
        assert placement.explain(half).chosen is None
        clock.advance(5.0)
        assert placement.explain(half).chosen == "CPU-0"


async def test_a_device_that_is_being_rebuilt_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")
    async with (
        cb.device("cpu:0", isolation="process", standby=None) as lost,
        cb.device("cpu:1") as other,
        cb.PlacementActor([lost, other]) as placement,
    ):
        events = lost.events()
        pid = lost.health().host_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not ready(placement, lost))
        assert {placement.pick().device for _ in range(3)} == {other}
        async for event in events:
            if isinstance(event, cb.Recovered):
                break
        await until(lambda: ready(placement, lost))
        assert placement.pick().device is lost


async def test_devices_come_and_go(devices: list[cb.Device]) -> None:
    async with cb.PlacementActor(devices[:1], policy="round_robin") as placement:
        await placement.add(devices[1])
        with pytest.raises(ValueError, match=r"device cpu:1 \(CPU-1\) is placed on already"):
            await placement.add(devices[1])
        assert {placement.pick().device for _ in range(4)} == set(devices[:2])
        await placement.remove(devices[0])
        await placement.remove(devices[0])
        assert {placement.pick().device for _ in range(4)} == {devices[1]}
    with pytest.raises(cb.NoEligibleDevice, match="there are no devices"):
        placement.pick()


async def test_a_gang_takes_linked_devices(devices: list[cb.Device]) -> None:
    links = {"CPU-0": ["CPU-3"], "CPU-3": ["CPU-0"]}
    async with cb.PlacementActor(devices, links=links) as placement:
        gang = placement.gang([cb.PlacementHints()] * 2)
        assert {choice.device_id for choice in gang} == {"CPU-0", "CPU-3"}
        near = placement.pick(cb.PlacementHints(near=frozenset({"CPU-0"}), avoid=frozenset({"CPU-0"})))
        assert near.device_id == "CPU-3"


async def test_a_policy_of_the_callers(devices: list[cb.Device]) -> None:
    async with cb.PlacementActor(devices, policy=lambda hints, able: max(able, key=lambda c: c.id)) as placement:
        assert placement.pick().device is devices[3]
    with pytest.raises(ValueError, match="policy 'worst'"):
        cb.PlacementActor(devices, policy="worst")


async def test_devices_say_how_much_memory_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that is taken without a reservation, and given back, is known without anything that asks for it."""
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")
    asked: list[str] = []
    async with (
        cb.device("cpu:0", isolation="process", standby=None, memory_limit=8 * GIB) as device,
        cb.PlacementActor([device]) as placement,
    ):
        candidate = placement.candidates()[0]
        await until(lambda: device._answers.memory)
        await device.stats()  # the watch has been answered
        monkeypatch.setattr(cb.Device, "stats", lambda self: asked.append(self.name))
        pushed: list[cb.MemoryFigures] = []
        await device.watch_memory(pushed.append, step=1 << 20)
        await until(lambda: pushed)
        before = pushed[-1].used_bytes
        array = device.empty(GIB // 8, "f32")
        await until(lambda: pushed[-1].used_bytes >= before + GIB // 2)
        assert candidate.free_bytes == pushed[-1].free_bytes + pushed[-1].cached_bytes
        array.free()
        await until(lambda: pushed[-1].used_bytes < before + GIB // 2)
        assert candidate.free_bytes == pushed[-1].free_bytes + pushed[-1].cached_bytes
        assert not asked


async def test_a_stopped_device_is_said_to_be_stopped(devices: list[cb.Device]) -> None:
    async with cb.PlacementActor(devices) as placement:
        await devices[1].close()
        assert placement.explain().refused == {"CPU-1": "it has stopped"}


async def test_nothing_is_left_of_one_that_cannot_begin(devices: list[cb.Device]) -> None:
    await devices[1].close()
    with pytest.raises(cb.DeviceStopped):
        async with cb.PlacementActor(devices):
            pass
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("placing")]


@pytest.mark.parametrize("returned", [None, "CPU-0", cb.Candidate("CPU-0")])
async def test_a_policy_that_returns_none_of_its_candidates(devices: list[cb.Device], returned: Any) -> None:
    async with cb.PlacementActor(devices, policy=lambda hints, able: returned) as placement:
        for ask in (placement.pick, placement.explain):
            with pytest.raises(ValueError, match=r"returned .*; it has to return one of its candidates"):
                ask()
        assert [candidate.choices for candidate in placement.candidates()] == [0] * 4
    none: Any = None
    with pytest.raises(TypeError, match="policy is None; pass a name, or a function"):
        cb.PlacementActor(devices, policy=none)


async def test_what_are_no_hints_is_refused(devices: list[cb.Device]) -> None:
    wrong: Any = "cpu:0"
    async with cb.PlacementActor(devices) as placement:
        for call in (placement.pick, placement.explain, lambda hints: placement.gang([hints])):
            with pytest.raises(TypeError, match=r"the hints are 'cpu:0'; pass a cb\.PlacementHints"):
                call(wrong)
