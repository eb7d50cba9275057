"""One region in several applications: one entity for an id, in order, through handovers, cuts and losses."""

import asyncio
import os
import random
import signal
import sys
import threading
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.multi_device.machines.lab import LOST_AFTER, LocalEngine, clustered
from tests.multi_device.shared.app_process import SHARDS, Logged, Place, check, load, logged
from tests.multi_device.waiting import until

import callboard as cb
from callboard.device.supervision.remote.node import NodeServer
from callboard.multi_device.machines.agent import RegionAgent
from callboard.multi_device.sharding.shared import Regions

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.timeout(120)]

TOKEN = "a token of 24 characters"
BOUND = 60.0
ROOT = Path(__file__).parents[3]
SIGNALS = {"killed": signal.SIGKILL, "frozen": signal.SIGSTOP}
Region = cb.PlacementShardingAdapter


class Cart(cb.ResidentActor):
    """Remembers what it is given; all carts of the process write ``log``."""

    log: ClassVar[dict[str, list[Any]]] = defaultdict(list)
    gate: ClassVar[threading.Event] = threading.Event()
    inside: ClassVar[threading.Event] = threading.Event()

    def __init__(self, key: str) -> None:
        self.key = key
        self.items: list[Any] = []

    def add(self, item: Any) -> list[Any]:
        self.items.append(item)
        Cart.log[self.key].append(item)
        return self.items

    def wait(self) -> str:
        Cart.inside.set()
        Cart.gate.wait(BOUND)
        return "late"

    def fail(self) -> None:
        raise ValueError("not this one")

    def setup(self, ctx: cb.HostContext) -> None:
        self.ctx = ctx

    def of_the_device(self) -> Any:
        return self.ctx.ref(np.ones(3))


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    server = NodeServer(TOKEN, None, Regions(follows=False))
    host, port = await server.start("127.0.0.1")
    Cart.log.clear()
    Cart.gate.clear()
    Cart.inside.clear()
    yield Place(f"{host}:{port}", TOKEN, LOST_AFTER)
    Cart.gate.set()
    await server.close()


def carts(devices: list[cb.Device], place: Any, **options: Any) -> "Region[Cart]":
    return Region("carts", devices, lambda key: cb.Props(Cart, key), shards=SHARDS, shared=place, **options)


def key_of(region: "Region[Cart]", owned: bool) -> str:
    """An entity that this application owns, or another one."""
    assert region._sharing is not None
    return next(str(n) for n in range(1000) if region._sharing.holds(str(n), region._shard(str(n))) is owned)


async def test_two_applications_reach_the_same_entity(devices: list[cb.Device], place: Place) -> None:
    async with carts(devices[:1], place) as first:
        assert await first.entity("1").call(Cart.add, 0) == [0]
        async with carts(devices[1:2], place) as second:
            for number in range(1, 5):
                await first.entity(str(number)).call(Cart.add, "first")
                answer = await second.entity(str(number)).call(Cart.add, np.arange(number))
                assert answer[-2] == "first"
                np.testing.assert_array_equal(answer[-1], np.arange(number))
            assert {first.entity(str(n)).device for n in range(99)} == {d.uuid for d in devices[:2]}
            assert first.table.owners == second.table.owners
            for region in (first, second):
                for owned in (True, False):
                    with pytest.raises(ValueError, match="not this one"):
                        await region.entity(key_of(region, owned)).call(Cart.fail)
            other = second.entity(key_of(second, False))
            with pytest.raises(TypeError, match=r"'.*' of region carts: add\(self, item: .*too many positional"):
                other.call(Cart.add, 1, 2)  # type: ignore[call-arg]
            with pytest.raises(
                TypeError, match=r"an argument of add of entity .* a GpuRef is a handle inside one process"
            ):
                other.call(Cart.add, devices[1].put(np.ones(3)))
            with pytest.raises(TypeError, match=r"the result of of_the_device .* cannot be sent"):
                await other.call(Cart.of_the_device)
            with pytest.raises(TypeError, match="is not a method"):
                other.call(Cart, 1)
        assert {first.entity(str(n)).device for n in range(99)} == {devices[0].uuid}
        assert await first.entity("1").call(Cart.add, 0)
    async with carts([], place) as guest:
        with pytest.raises(cb.RegionStopped, match="none of its applications has a device"):
            await guest.entity("1").call(Cart.add, 1)
    with pytest.raises(cb.RegionStopped, match="has been stopped"):
        guest.entity("1").call(Cart.add, 1)


async def test_handovers_between_applications_lose_and_reorder_nothing(devices: list[cb.Device], place: Place) -> None:
    draw = random.Random(5)
    ids = [str(n) for n in range(12)]
    async with carts(devices[:1], place) as first, carts(devices[1:2], place) as second:
        inside = {first: {devices[0]}, second: {devices[1]}}
        own = {first: [devices[0], devices[2]], second: [devices[1], devices[3]]}

        async def change() -> None:
            for _ in range(12):
                region = draw.choice([first, second])
                device = draw.choice(own[region])
                if device not in inside[region]:
                    inside[region].add(device)
                    await region.add(device)
                elif sum(map(len, inside.values())) > 1:
                    inside[region].discard(device)
                    await region.remove(device)

        changing = asyncio.create_task(change())
        sent: dict[tuple[str, str], list[Any]] = defaultdict(list)
        answers: list[asyncio.Future[Any]] = []
        number = 0
        while not changing.done():
            for key in draw.sample(ids, 4):
                for name, region in (("first", first), ("second", second)):
                    number += 1
                    sent[key, name].append((name, number))
                    answers.append(region.entity(key).call(Cart.add, (name, number)))
            await asyncio.sleep(0)
            if len(answers) > 200:
                await answers[-200]
        await changing
        async with asyncio.timeout(BOUND):
            await asyncio.gather(*answers)
    for (key, name), items in sent.items():
        assert [item for item in Cart.log[key] if item[0] == name] == items


async def test_a_connection_that_is_cut_costs_no_entity(devices: list[cb.Device], place: Place) -> None:
    async with carts(devices[:1], place) as first, carts(devices[1:2], place) as second:
        mine, other = key_of(first, True), key_of(first, False)
        await first.entity(mine).call(Cart.add, 1)
        await first.entity(other).call(Cart.add, 1)
        waiting = first.entity(other).call(Cart.wait)
        await until(Cart.inside.is_set)
        membership = first._sharing._membership  # type: ignore[union-attr]
        assert membership is not None
        assert membership._link is not None
        membership._link.end("cut by the test")
        later = first.entity(other).call(Cart.add, 2)  # waits for a connection
        assert await first.entity(mine).call(Cart.add, 2) == [1, 2]  # the lease lasts
        with pytest.raises(cb.ContextLost, match="connection to the holder of its table was cut during this call"):
            await waiting
        Cart.gate.set()
        async with asyncio.timeout(BOUND):
            assert await later == [1, 2]
            assert await second.entity(mine).call(Cart.add, 3) == [1, 2, 3]


async def test_an_owner_whose_lease_has_expired_answers_nobody(devices: list[cb.Device], place: Place) -> None:
    fences: list[int] = []

    def cart(key: str, fence: int) -> cb.Props[Cart]:
        fences.append(fence)
        return cb.Props(Cart, key)

    place.lost_after = 2.0
    options: dict[str, Any] = {"shards": 1, "shared": place, "handoff_timeout": 0.2}
    async with Region("carts", devices[:1], cart, **options) as first:
        async with Region("carts", [], cart, **options) as second:
            late = second.entity("1").call(Cart.wait)
            await until(Cart.inside.is_set)
            own, queued = first.entity("1").call(Cart.wait), first.entity("1").call(Cart.add, "queued")
            sharing = first._sharing
            assert sharing is not None
            assert sharing._membership is not None
            sharing._membership._valid = 0.0
            sharing._membership._check()
            with pytest.raises(cb.ContextLost):
                await late
            Cart.gate.set()
            async with asyncio.timeout(BOUND):
                assert await queued == ["queued"]  # had not begun
                assert await own == "late"
                await second.entity("1").call(Cart.add, 1)
    assert fences == sorted(set(fences))


@pytest.mark.fault
@pytest.mark.parametrize("how", ["killed", pytest.param("frozen", marks=pytest.mark.slow)])
async def test_an_application_that_is_lost(devices: list[cb.Device], place: Place, tmp_path: Path, how: str) -> None:
    """No call is lost without an error, none is executed twice, and no two owners work at once."""
    place.lost_after = 1.0
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(Path(__file__).parent / "app_process.py")),
        *(str(place.address), TOKEN, str(tmp_path), str(place.lost_after)),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "OPENBLAS_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"joined\n"
        async with logged(devices[:1], str(tmp_path), place) as region, asyncio.timeout(BOUND):
            assert len({region._sharing.holds(str(n), region._shard(str(n))) for n in range(8)}) == 2  # type: ignore[union-attr]
            await load(region, lambda: process.send_signal(SIGNALS[how]), str(tmp_path))
            await until(lambda: len(region._sharing._mine) == SHARDS)  # type: ignore[union-attr]
            if how == "frozen":  # it goes on, and takes part again
                process.send_signal(signal.SIGCONT)
                await until(lambda: len(region._sharing._mine) < SHARDS)  # type: ignore[union-attr]
                numbers = range(600, 700)
                calls = [region.entity(str(number % 8)).call(Logged.add, number) for number in numbers]
                assert await asyncio.gather(*calls) == list(numbers)
                check(str(tmp_path), list(numbers))
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_the_applications_of_a_cluster_share_its_regions(devices: list[cb.Device]) -> None:
    agent = RegionAgent(TOKEN, None)
    engines = [LocalEngine({"n1": {"CPU": 1.0}}, regions=agent) for _ in range(2)]
    async with (
        clustered(engines[0]) as one,
        clustered(engines[1]) as two,
        carts(devices[:1], one) as first,
        carts(devices[1:2], two) as second,
    ):
        await first.entity("1").call(Cart.add, 1)
        assert await second.entity("1").call(Cart.add, 2) == [1, 2]
    assert agent._server is not None
    await agent._server.close()


async def test_refusals(devices: list[cb.Device], place: Place) -> None:
    server = NodeServer(TOKEN)
    host, port = await server.start("127.0.0.1")
    with pytest.raises(cb.BackendUnavailable, match="holds no table of a shared region"):
        async with carts(devices[:1], Place(f"{host}:{port}", TOKEN, LOST_AFTER)):
            pass
    await server.close()
    with pytest.raises(cb.BackendUnavailable, match="region carts: the process that holds its table does not answer"):
        async with carts(devices[:1], Place(f"{host}:{port}", TOKEN, LOST_AFTER)):
            pass
    async with carts(devices[:1], place, max_waiting=2) as first:
        with pytest.raises(ValueError, match=r"has shards=16, but this application has shards=5; pass the same"):
            async with Region("carts", [], lambda key: cb.Props(Cart, key), shards=5, shared=place):
                pass
        async with carts([], place, max_waiting=2) as guest:
            for region in (guest, first):
                calls = [region.entity("1").call(Cart.wait)]
                while len(calls) < (2 if region is guest else 3):
                    calls.append(region.entity("1").call(Cart.wait))
                with pytest.raises(cb.MailboxFull, match=r"max_waiting"):
                    region.entity("1").call(Cart.add, 1)
                Cart.gate.set()
                async with asyncio.timeout(BOUND):
                    assert await asyncio.gather(*calls) == ["late"] * len(calls)
                Cart.gate.clear()
    async with Region("made", devices[:1], lambda key: cb.Props(lambda: Cart(key)), shared=place) as made:
        with pytest.raises(TypeError, match="region made is shared; pass the class of its actors"):
            made.entity("1").call(Cart.add, 1)
