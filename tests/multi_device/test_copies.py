"""Copies between devices: order, failures, losses, in every isolation."""

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.device.residents.lab import Gate
from tests.multi_device.copies_lab import BOUND, Slow, kill, numbers, pair
from tests.together import together

import callboard as cb
from callboard.device.client.line import port as ports
from callboard.device.client.peers import peer
from callboard.device.client.residents import registry
from callboard.device.client.staging import windows

pytestmark = pytest.mark.leaves_nothing

PAIRS = [("thread", "thread"), ("process", "process"), ("loop", "process"), ("process", "loop"), ("thread", "loop")]


@pytest.fixture(autouse=True)
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.open_for_good()


@pytest.mark.parametrize("one, other", PAIRS)
async def test_a_copy_is_made_between_the_producer_and_later_writers(one: str, other: str, gate: Gate) -> None:
    async with pair(one, other) as (a, b), asyncio.timeout(BOUND):
        slow = a.actor_of(cb.Props(Slow))
        x = a.put(numbers())
        filled = slow.call(Slow.fill, x, 3.0, gate.path)
        there = x.to(b)
        doubled = there * 2.0
        a.fill(x, 9.0)
        assert not there.done()
        await gate.reached()
        assert (await b.full(3, 1.0).get() == 1.0).all(), "what does not read the copy goes on"
        assert not there.done()
        await gate.let_through()
        await filled
        assert there.device == b.name
        np.testing.assert_array_equal(await doubled.get(), np.full(12, 6.0))
        np.testing.assert_array_equal(await there.get(), np.full(12, 3.0))
        np.testing.assert_array_equal(await x.get(), np.full(12, 9.0))
        back = there.to(a)
        np.testing.assert_array_equal(await (back + 1.0).get(), np.full(12, 4.0))


@pytest.mark.parametrize("one, other", [("thread", "thread"), ("process", "loop")])
async def test_what_can_be_copied(one: str, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "CHUNK", 64)
    values = numbers(60).reshape(6, 10)
    async with pair(one, other) as (a, b), asyncio.timeout(BOUND):
        x = a.put(values)
        np.testing.assert_array_equal(await x.to(b).get(), values)
        np.testing.assert_array_equal(await x.T.to(b).get(), values.T)
        np.testing.assert_array_equal(await b.put(x[1:3, ::2]).get(), values[1:3, ::2])
        np.testing.assert_array_equal(await x[2, 3].to(b).get(), values[2, 3])
        np.testing.assert_array_equal(await a.empty((0, 3)).to(b).get(), np.empty((0, 3)))
        out = b.zeros((10, 8))
        b.put(x.T, out=out[:, 1:7])
        want = np.zeros((10, 8), "f4")
        want[:, 1:7] = values.T
        np.testing.assert_array_equal(await out.get(), want)
        assert x.to(a) is x
        same = a.put(x)
        a.fill(x, 0.0)
        np.testing.assert_array_equal(await same.get(), values)


async def test_what_cannot_be_copied() -> None:
    async with pair("thread", "thread") as (a, b):
        x = a.put(numbers())
        with pytest.raises(cb.DeviceMismatch, match=r"x f32\[12\] is on cpu:0, .*; copy it there first: ref\.to"):
            b.blas.dot(x, b.put(numbers()))
        with pytest.raises(TypeError, match="convert it to f64 before or after"):
            b.put(x, dtype="f64")
        with pytest.raises(cb.ShapeError, match=r"out is f32\[3\], the array is f32\[12\]"):
            b.put(x, out=b.empty(3))
        with pytest.raises(cb.DeviceMismatch, match="pass a GpuRef of cpu:1"):
            b.put(x, out=a.empty(12))
        with pytest.raises(TypeError, match="device is str; pass a callboard Device"):
            x.to("cpu:1")  # type: ignore[arg-type]
        with pytest.raises(cb.UnsupportedOp, match="copy before the recording, or after it"), b.record():
            x.to(b)
        x.free()
        with pytest.raises(cb.GpuRefStale, match="freed"):
            x.to(b)
        await a.close()
        with pytest.raises(cb.GpuRefStale, match="shutting down"):
            x.to(b)


@pytest.mark.parametrize("one, other", [("thread", "thread"), ("process", "loop")])
async def test_the_failure_of_the_source_is_the_copys(one: str, other: str, gate: Gate) -> None:
    async with pair(one, other) as (a, b), asyncio.timeout(BOUND):
        slow = a.actor_of(cb.Props(Slow))
        x = a.put(numbers())
        failed = slow.call(Slow.fail, x, gate.path)
        there = x.to(b)
        read = there + 1.0
        await gate.let_through()
        with pytest.raises(ArithmeticError):
            await failed
        for ref in (there, read):
            with pytest.raises(ArithmeticError, match="copy from cpu:0 to cpu:1: the source failed: no numbers"):
                await ref
        b.fill(there, 1.0)
        np.testing.assert_array_equal(await there.get(), np.ones(12))


@pytest.mark.slow
@pytest.mark.parametrize("which", ["cpu", "sharing"])
@pytest.mark.few(1)
async def test_a_loss_fails_the_copy_and_names_its_side(which: str, gate: Gate, request: pytest.FixtureRequest) -> None:
    if which == "sharing":
        request.getfixturevalue("sharing")
    async with pair("process", "process", which) as (a, b), asyncio.timeout(BOUND):
        slow = a.actor_of(cb.Props(Slow))
        x = a.put(numbers())
        filled = slow.call(Slow.fill, x, 3.0, gate.path)
        there = x.to(b)
        await gate.reached()
        await kill(a)
        with pytest.raises(cb.ContextPoisoned, match=f"copy from {a.name} to {b.name}: the source failed: {a.name}"):
            await there
        with contextlib.suppress(cb.AccelError):
            await filled
        gate.open_for_good()
        with pytest.raises(cb.GpuRefStale):
            x.to(b)
        x = a.put(numbers())  # of the next generation
        assert (await x.to(b).get() == numbers()).all()
        there = a.put(numbers()).to(b)
        await kill(b)
        if not there.done():
            with pytest.raises(cb.ContextPoisoned, match=b.name):
                await there
        later = x.to(b)  # while the target is being rebuilt
        np.testing.assert_array_equal(await later.get(), numbers())


async def test_memory_is_opened_once_and_given_back(sharing: None) -> None:
    async with pair("process", "process", "sharing") as (a, b), asyncio.timeout(BOUND):
        values = np.random.default_rng(5).random(1 << 18).astype("f4")
        for _ in range(3):
            x = a.put(values)
            np.testing.assert_array_equal(await x.to(b).get(), values)
            np.testing.assert_array_equal(await x[100:200].to(b).get(), values[100:200])
            del x
            assert a._actor.own._borrowers, "by handles"
            await a.trim()  # a block that the other process still has open must not be released
        assert (await a.pool_stats()).cached_bytes == 0
        x = a.put(values)
        await x.to(b)
        await kill(b)
        await x.to(b)
        await b.close()
        del x
        await a.trim()
        assert (await a.pool_stats()).cached_bytes == 0


def test_blocking(monkeypatch: pytest.MonkeyPatch) -> None:
    with cb.sync.System() as system:
        a = system.device("cpu:0", isolation="process", standby=None, max_in_flight=4)
        b = system.device("cpu:1", max_in_flight=4)
        refs = [a.put(numbers() + i).to(b) for i in range(20)]
        for i, ref in enumerate(refs):
            np.testing.assert_array_equal((ref * 2).get(), 2 * (numbers() + i))
        np.testing.assert_array_equal(a.put(refs[3]).get(), numbers() + 3)


async def test_many_at_once_from_threads() -> None:
    async with pair("process", "thread") as (a, b), asyncio.timeout(BOUND):

        def copied(start: int) -> list[Any]:
            return [a.put(numbers() + i).to(b) for i in range(start, start + 20)]

        found = await asyncio.to_thread(together, copied, [(0,), (100,), (200,)], BOUND)
        for start, refs in zip((0, 100, 200), found, strict=True):
            for i, ref in enumerate(refs):
                np.testing.assert_array_equal(await ref.get(), numbers() + start + i)


async def test_a_source_that_cannot_be_shared_fails_its_copy_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "_route", lambda source, target: "handle")  # as on GPUs; a CPU's memory has none
    async with pair("process", "process") as (a, b), asyncio.timeout(BOUND):
        for _ in range(5):  # nothing else is asked of the source meanwhile
            with pytest.raises(cb.UnsupportedOp, match="the source failed: CpuDevice shares no memory"):
                await a.put(numbers()).to(b)


async def test_actors_start_beside_what_holds_arrays_for_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_ids", itertools.count(1 << 20))  # ids of ops; those of actors are others
    monkeypatch.setattr(registry, "_ids", itertools.count(1 << 20))
    async with pair("thread", "thread") as (a, b), asyncio.timeout(BOUND):
        assert (await a.put(numbers()).to(b).get()).shape == numbers().shape
        for _ in range(20):
            await a.actor_of(cb.Props(Slow)).ready()
