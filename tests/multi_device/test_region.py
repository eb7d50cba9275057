"""Entities on devices: one actor each, calls in order, through handovers, passivation and the end of a device."""

import asyncio
import os
import random
import signal
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.multi_device.waiting import until

import callboard as cb
from callboard.actors import ManualClock

pytestmark = pytest.mark.leaves_nothing
PATIENCE = 30.0
MOST = 200
"""Calls without an answer."""


class Cart(cb.ResidentActor):
    """Remembers what it is given, and where it is."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.items: list[Any] = []

    def add(self, item: Any) -> tuple[str, int, list[Any]]:
        self.items.append(item)
        return self.id, id(self), list(self.items)

    def fail(self) -> None:
        raise ValueError("not this one")


@pytest.fixture
async def region(devices: list[cb.Device]) -> AsyncIterator["cb.PlacementShardingAdapter[Cart]"]:
    async with cb.PlacementShardingAdapter("carts", devices[:2], lambda key: cb.Props(Cart, key), shards=32) as made:
        yield made


async def test_an_entity_has_one_actor_on_the_device_that_owns_it(
    region: "cb.PlacementShardingAdapter[Cart]", devices: list[cb.Device]
) -> None:
    assert region.active == []
    answers = [await region.entity(str(n % 10)).call(Cart.add, n) for n in range(30)]
    assert [key for key, _, _ in answers[:10]] == [str(n) for n in range(10)]
    assert [items for _, _, items in answers[20:]] == [[n, n + 10, n + 20] for n in range(10)]
    assert len({actor for _, actor, _ in answers}) == 10
    assert {region.entity(str(n)).device for n in range(100)} == {d.uuid for d in devices[:2]}
    with pytest.raises(ValueError, match="not this one"):
        await region.entity("1").call(Cart.fail)
    assert (await region.entity("1").call(Cart.add, 0))[2] == [1, 11, 21, 0]
    assert repr(region.entity("1")) == "<EntityRef carts/1>"
    with pytest.raises(
        AttributeError, match=r"an EntityRef has no attribute 'add'; .* entity\.call\(Class\.add, \.\.\.\)"
    ):
        region.entity("1").add(0)


async def test_handovers_lose_and_reorder_nothing(
    region: "cb.PlacementShardingAdapter[Cart]", devices: list[cb.Device]
) -> None:
    draw = random.Random(3)
    sent: dict[str, list[int]] = {str(n): [] for n in range(24)}
    answers: list[tuple[str, Any]] = []

    async def change() -> None:
        inside = set(devices[:2])
        for _ in range(10):
            device = draw.choice(devices)
            if device not in inside:
                inside.add(device)
                await region.add(device)
            elif len(inside) > 1:
                inside.discard(device)
                await region.remove(device)

    changing = asyncio.create_task(change())
    number = 0
    while not changing.done():
        for key in draw.sample(sorted(sent), 6):
            sent[key].append(number)
            answers.append((key, region.entity(key).call(Cart.add, number)))
            number += 1
        await asyncio.sleep(0)
        if len(answers) > MOST:  # calls in flight have to end before a shard moves
            await answers[-MOST][1]
    await changing
    seen: dict[str, list[int]] = {key: [] for key in sent}
    async with asyncio.timeout(PATIENCE):
        for key, answer in answers:
            of, _, items = await answer
            assert of == key
            seen[key].append(items[-1])
            # What the actor has seen is a run of what was sent: it began at a handover, and has missed nothing since.
            assert items == sent[key][len(seen[key]) - len(items) : len(seen[key])]
    assert seen == sent
    owners = {region.entity(key).device for key in sent}
    assert owners <= set(region.table.owners)


async def test_calls_wait_within_bounds_while_a_shard_is_handed_over(devices: list[cb.Device]) -> None:
    async with cb.PlacementShardingAdapter(
        "bounded", devices[:1], lambda key: cb.Props(Cart, key), shards=4, max_waiting=2
    ) as region:
        ids = [str(n) for n in range(40)]
        for key in ids:
            await region.entity(key).call(Cart.add, 0)
        adding = asyncio.create_task(region.add(devices[1]))
        await until(lambda: region._moving)
        moving = next(key for key in ids if region._shard(key) in region._moving)
        first, second = (region.entity(moving).call(Cart.add, n) for n in (1, 2))
        with pytest.raises(cb.MailboxFull, match=rf"2 calls wait for entity '{moving}' .* \(max_waiting\)"):
            region.entity(moving).call(Cart.add, 3)
        second.cancel()
        await adding
        assert (await first)[2] == [1]
        assert (await region.entity(moving).call(Cart.add, 4))[2] == [1, 4]


async def test_entities_rest_when_they_are_idle(devices: list[cb.Device]) -> None:
    clock = ManualClock()
    async with cb.PlacementShardingAdapter(
        "resting", devices[:2], lambda key: cb.Props(Cart, key), passivate_after=10.0, clock=clock
    ) as region:
        await region.entity("a").call(Cart.add, 1)
        clock.advance(6.0)
        await region.entity("b").call(Cart.add, 1)
        clock.advance(5.0)
        clock.advance(5.0)
        await until(lambda: region.active == [])
        assert (await region.entity("a").call(Cart.add, 2))[2] == [2]  # begins anew


async def test_the_least_recently_used_leaves_for_another(devices: list[cb.Device]) -> None:
    async with cb.PlacementShardingAdapter(
        "few", devices[:1], lambda key: cb.Props(Cart, key), max_entities=2
    ) as region:
        for key in ("a", "b", "a", "c"):
            await region.entity(key).call(Cart.add, key)
        assert region.active == ["a", "c"]


async def test_a_device_that_stops_hands_over_and_the_last_one_ends_the_region(devices: list[cb.Device]) -> None:
    async with cb.PlacementShardingAdapter("ends", devices[:2], lambda key: cb.Props(Cart, key)) as region:
        ids = [str(n) for n in range(20)]
        for key in ids:
            await region.entity(key).call(Cart.add, key)
        await devices[0].close()
        await until(lambda: {region.entity(key).device for key in ids} == {devices[1].uuid} and not region._moving)
        for key in ids:
            assert (await region.entity(key).call(Cart.add, key))[2][-1] == key
        await region.remove(devices[1])
        with pytest.raises(cb.RegionStopped, match="region ends has no device; entity '1' takes no calls"):
            region.entity("1").call(Cart.add, 1)
    with pytest.raises(cb.RegionStopped, match="region ends has been stopped"):
        region.entity("1").call(Cart.add, 1)
    with pytest.raises(cb.RegionStopped):
        await region.add(devices[2])
    with pytest.raises(ValueError, match="max_waiting must be at least 1, but is 0"):
        cb.PlacementShardingAdapter("x", devices, lambda key: cb.Props(Cart, key), max_waiting=0)


class Fenced(cb.ResidentActor):
    """Knows its fence."""

    def __init__(self, id: str, fence: int) -> None:
        self.fence = fence

    def setup(self, ctx: cb.HostContext) -> None:
        self.fence = max(self.fence, ctx.generation)

    def number(self) -> int:
        return self.fence


def fenced(id: str, fence: int) -> cb.Props[Fenced]:
    return cb.Props(Fenced, id, fence)


async def test_each_actor_of_an_entity_has_a_greater_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")
    async with (
        asyncio.timeout(2 * PATIENCE),
        cb.device("cpu:0", isolation="process", standby=None) as first,
        cb.device("cpu:1", isolation="process", standby=None) as second,
        cb.PlacementShardingAdapter("fenced", [first], fenced) as region,
    ):
        entity = region.entity("a")
        fences = [await entity.call(Fenced.number)]
        pid = first.health().host_pid
        assert pid is not None
        generation = first.generation
        os.kill(pid, signal.SIGKILL)  # the device makes the actor again
        await until(lambda: first.generation != generation)
        await first.ready()
        fences.append(await entity.call(Fenced.number))
        await region.add(second)
        await region.remove(first)
        fences.append(await entity.call(Fenced.number))
        await region.add(first)
        await region.remove(second)
        fences.append(await entity.call(Fenced.number))
        assert fences == sorted(set(fences))


async def test_an_actor_that_hangs_is_left_behind(devices: list[cb.Device]) -> None:
    gate = threading.Event()

    class Slow(cb.ResidentActor):
        def wait(self) -> str:
            gate.wait(PATIENCE)
            return "late"

        def quick(self) -> str:
            return "new"

    async with cb.PlacementShardingAdapter(
        "hangs", devices[:1], lambda key: cb.Props(Slow), handoff_timeout=0.05
    ) as region:
        late = region.entity("a").call(Slow.wait)
        await asyncio.gather(region.add(devices[1]), region.remove(devices[0]))
        assert await region.entity("a").call(Slow.quick) == "new"
        gate.set()
        with pytest.raises(cb.ActorStopped):
            await late


@pytest.mark.slow
async def test_devices_may_leave_while_shards_are_on_their_way(devices: list[cb.Device]) -> None:
    """Changes at the same time, and calls of entities that have no actor yet: none is lost, each is answered once."""
    draw = random.Random(11)
    async with (
        asyncio.timeout(2 * PATIENCE),
        cb.PlacementShardingAdapter("busy", devices[:1], lambda key: cb.Props(Cart, key), shards=32) as region,
    ):
        answers: list[tuple[str, Any]] = []

        async def change(device: cb.Device) -> None:
            for _ in range(4):
                await region.add(device)
                await region.remove(device)

        changing = [asyncio.create_task(change(device)) for device in devices[1:]]
        number = 0
        while not all(task.done() for task in changing):
            for _ in range(4):
                number += 1
                key = str(draw.randrange(1000))
                answers.append((key, region.entity(key).call(Cart.add, number)))
            await asyncio.sleep(0)
            if len(answers) > MOST:
                await answers[-MOST][1]
        await asyncio.gather(*changing)
        assert not region._moving
        for key, answer in answers:
            assert (await answer)[0] == key
        left = asyncio.create_task(region.remove(devices[0]))
        await region.add(devices[1])
        back = asyncio.create_task(region.add(devices[0]))
        await asyncio.gather(left, back)
        assert not region._moving
        assert (await region.entity("x").call(Cart.add, 1))[2] == [1]


async def test_a_remove_whose_wait_was_cancelled_goes_on(devices: list[cb.Device]) -> None:
    gate = threading.Event()

    class Slow(cb.ResidentActor):
        def wait(self) -> None:
            gate.wait(PATIENCE)

        def quick(self) -> str:
            return "there"

    async with (
        asyncio.timeout(PATIENCE),
        cb.PlacementShardingAdapter("moves", devices[:1], lambda key: cb.Props(Slow), shards=8) as region,
    ):
        slow = region.entity("a").call(Slow.wait)
        adding = asyncio.create_task(region.add(devices[1]))
        removing = asyncio.create_task(region.remove(devices[0]))
        await until(lambda: not any(device == devices[0].uuid for device in region.table.owners) or adding.done())
        adding.cancel()
        removing.cancel()
        await asyncio.gather(adding, removing, return_exceptions=True)
        later = region.entity("a").call(Slow.quick)
        gate.set()
        await slow
        assert await later == "there"
        await until(lambda: set(region._owners) == {devices[1].uuid})


async def test_a_factory_that_fails_leaves_no_entity(devices: list[cb.Device]) -> None:
    def cart(key: str) -> cb.Props[Cart]:
        raise LookupError(key)

    async with cb.PlacementShardingAdapter("fails", devices[:1], cart) as region:
        for key in "ab":
            with pytest.raises(LookupError, match=key):
                region.entity(key).call(Cart.fail)
        assert region.active == []


async def test_what_a_region_cannot_be_made_of(devices: list[cb.Device]) -> None:
    def cart(key: str) -> cb.Props[Cart]:
        return cb.Props(Cart, key)

    for options, says in (
        ({"passivate_after": 0.0}, "passivate_after must be more than 0 seconds, but is 0.0"),
        ({"passivate_after": float("nan")}, "passivate_after must be more than 0 seconds"),
        ({"handoff_timeout": -1.0}, "handoff_timeout must be more than 0 seconds"),
        ({"weights": {devices[0].uuid: -1.0}}, "the weight of CPU-0 must be a positive number, but is -1.0"),
    ):
        given: Any = options
        with pytest.raises(ValueError, match=says):
            cb.PlacementShardingAdapter("carts", devices, cart, **given)
    with pytest.raises(ValueError, match="region_id is 'a/b'; the actors' names begin with it"):
        cb.PlacementShardingAdapter("a/b", devices, cart)
    wrong: Any = cb.Props(Cart, "ada")
    with pytest.raises(TypeError, match=r"entity is Props.*; pass a function of an id"):
        cb.PlacementShardingAdapter("carts", devices, wrong)
    wrong = "localhost:4600"
    with pytest.raises(TypeError, match=r"shared is 'localhost:4600'; pass a cb\.Cluster or a cb\.Node"):
        cb.PlacementShardingAdapter("carts", devices, cart, shared=wrong)
    with pytest.raises(ValueError, match="in region carts already"):
        async with cb.PlacementShardingAdapter("carts", [devices[0], devices[0]], cart):
            pass
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("region")]
    number: Any = 17
    async with cb.PlacementShardingAdapter("carts", devices, cart) as region:
        with pytest.raises(TypeError, match="region carts: the id of an entity is a str, and 17 is not"):
            region.entity(number)
