"""Random programs of ops, copies between devices and calls of actors in their own processes, and a model."""

import asyncio
import random
from typing import Any

import numpy as np
import pytest

import callboard as cb

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.timeout(120)]

BOUND = 30.0
KEPT = 6
"""Most arrays that a program has at one time."""


class Worker(cb.ResidentActor):
    def setup(self, ctx: cb.HostContext) -> None:
        self.ctx = ctx

    def sum_of(self, x: cb.In, k: float) -> cb.GpuRef:
        return self.ctx.ref(np.asarray(x) + k)

    def add(self, x: cb.InOut, k: float) -> None:
        np.asarray(x)[...] += k

    def add_other(self, x: cb.InOut, y: cb.In) -> None:
        np.asarray(x)[...] += np.asarray(y)


class Held:
    """An array of a device, and what it must contain after everything called so far."""

    def __init__(self, device: cb.Device, ref: Any, value: float) -> None:
        self.device = device
        self.ref = ref
        self.value = value


class Program:
    """Steps on two devices; nothing is awaited but results that are refs, and at times an array."""

    def __init__(self, seed: int, actors: dict[cb.Device, list[Any]]) -> None:
        self.random = random.Random(seed)
        self.actors = actors
        self.arrays: list[Held] = []
        self.calls: list[Any] = []

    async def run(self, steps: int) -> None:
        for device in self.actors:
            self.new(device)
        for _ in range(steps):
            held = self.random.choice(self.arrays)
            await getattr(self, self.random.choice(self.STEPS))(held)
            while len(self.arrays) > KEPT:
                self.arrays.pop(self.random.randrange(1, len(self.arrays)))
        for held in self.arrays:
            await self.read(held)
        await asyncio.gather(*self.calls)

    def new(self, device: cb.Device) -> None:
        self.arrays.append(Held(device, device.put(np.full(500, 1.0)), 1.0))

    def call(self, held: Held, method: Any, *arguments: Any) -> Any:
        return self.random.choice(self.actors[held.device]).call(method, held.ref, *arguments)

    async def add(self, held: Held) -> None:
        self.calls.append(self.call(held, Worker.add, 2.0))
        held.value += 2.0

    async def add_other(self, held: Held) -> None:
        other = self.random.choice([one for one in self.arrays if one.device is held.device])
        if other is not held:
            self.calls.append(self.call(held, Worker.add_other, other.ref))
            held.value += other.value

    async def sum_of(self, held: Held) -> None:
        made, value = self.call(held, Worker.sum_of, 3.0), held.value + 3.0
        await self.add(held)
        await self.halve(held)
        self.arrays.append(Held(held.device, await made, value))

    async def copy(self, held: Held) -> None:
        device = self.random.choice(list(self.actors))
        self.arrays.append(Held(device, device.put(held.ref), held.value))

    async def copy_over(self, held: Held) -> None:
        other = self.random.choice(self.arrays)
        if other is not held:
            other.device.put(held.ref, out=other.ref)
            other.value = held.value

    async def halve(self, held: Held) -> None:
        with held.device.time():  # fences
            self.arrays.append(Held(held.device, held.ref * 0.5, held.value * 0.5))

    async def read(self, held: Held) -> None:
        np.testing.assert_array_equal(await held.ref.get(), np.full(500, held.value))

    STEPS = ("add", "add_other", "sum_of", "copy", "copy_over", "halve", "read")


@pytest.fixture(autouse=True)
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["process", pytest.param("thread", marks=pytest.mark.slow)])
async def test_arrays_contain_what_the_calls_give_in_order(isolation: Any) -> None:
    settings: dict[str, Any] = {"isolation": isolation, "standby": None, "close_timeout": 5.0}
    async with cb.device("cpu:0", **settings) as a, cb.device("cpu:1", **settings) as b:
        actors = {d: [d.actor_of(cb.Props(Worker), own_process=own) for own in (True, True, False)] for d in (a, b)}
        for actor in (*actors[a], *actors[b]):
            await actor.ready(timeout=BOUND)
        for seed in range(6):
            async with asyncio.timeout(BOUND):
                await Program(seed, actors).run(80)
        ports: list[Any] = [a._port, b._port]
        assert not any(port.sources for port in ports)
