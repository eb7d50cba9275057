"""Entities on devices: one actor each, calls in order, through handovers, passivation and the end of a device."""

import asyncio
import random
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
