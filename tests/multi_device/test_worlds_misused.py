"""Worlds and groups in the hands of programs that make mistakes: nothing hangs, and each error names its cause."""

import asyncio
import threading
from typing import Any

import numpy as np
import pytest
from tests.multi_device.waiting import until
from tests.multi_device.world_lab import BOUND, put

import callboard as cb

pytestmark = pytest.mark.leaves_nothing


class Holder(cb.ResidentActor):
    """Holds an array of its device until it is told."""

    def hold(self, x: Any) -> None:
        GATE.wait(BOUND)


GATE = threading.Event()


async def test_collectives_of_a_group_that_was_not_called_fail(devices: list[cb.Device]) -> None:
    async with asyncio.timeout(BOUND), cb.world(devices[:2]) as world:
        xs = put(world, [np.arange(3.0)] * 2)
        replies: list[cb.Collective[Any]] = []

        def left_by_an_error() -> None:
            with world.group() as group:
                replies.append(group.all_reduce(xs))
                raise ArithmeticError("of the block")

        def refused() -> None:
            with world.group() as group:
                replies.extend([group.all_reduce(xs, out=xs), group.all_reduce(xs, out=xs)])

        with pytest.raises(ArithmeticError):
            left_by_an_error()
        with pytest.raises(cb.ShapeError, match="shares memory"):
            refused()
        with pytest.raises(RuntimeError, match="the group was not called: ArithmeticError: of the block"):
            await replies[0]
        for reply in replies[1:]:
            with pytest.raises(RuntimeError, match=r"the group was not called: ShapeError: .* shares memory"):
                await reply
        assert world.stats().calls == 0


async def test_awaiting_inside_the_block_of_a_group_is_an_error(devices: list[cb.Device]) -> None:
    async with asyncio.timeout(BOUND), cb.world(devices[:2]) as world:
        with world.group() as group:
            total = group.all_reduce(put(world, [np.arange(3.0)] * 2))
            with pytest.raises(RuntimeError, match="called when the group's block is left; await it after that"):
                await total
            with pytest.raises(RuntimeError, match="called when the group's block is left"):
                await asyncio.to_thread(total.result)
        np.testing.assert_array_equal(await (await total)[1].get(), 2 * np.arange(3.0))


async def test_a_close_whose_wait_was_cancelled_is_repeated(devices: list[cb.Device]) -> None:
    GATE.clear()
    async with asyncio.timeout(BOUND):
        world = await cb.world(devices[:2])
        x = devices[0].full(3, 1.0)
        held = devices[0].actor_of(cb.Props(Holder), own_process=False).call(Holder.hold, x)
        reply = world.all_reduce([x, devices[1].full(3, 1.0)])
        closing = asyncio.create_task(world.close())
        await until(lambda: world._closing)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        GATE.set()
        await held
        await reply
        await world.close()
        assert world.health().state == "closed"
        with pytest.raises(cb.WorldStopped, match=r"^the world is closed$"):
            await world.ready()
        assert not world._tasks


async def test_factors_and_devices_that_are_none(devices: list[cb.Device]) -> None:
    async with cb.world(devices[:2]) as world:
        xs = put(world, [np.arange(3, dtype=np.uint8)] * 2)
        for factor, kind, says in (
            (None, TypeError, "PreMulSum: factor is None; pass a real number"),
            (np.float32(2), TypeError, r"factor is .*2\.0.*; pass a real number"),
            (256, cb.ShapeError, "the factor of rank 0 is 256; xs are u8, which holds the integers from 0 to 255"),
            ([1, -1], cb.ShapeError, "the factor of rank 1 is -1"),
            (float("nan"), cb.ShapeError, "the factor of rank 0 is nan"),
        ):
            given: Any = factor
            with pytest.raises(kind, match=says):
                world.all_reduce(xs, cb.PreMulSum(given))
        assert world.stats().calls == 0
    none: Any = [devices[0], "cpu:1"]
    with pytest.raises(TypeError, match=r"world: devices\[1\] is 'cpu:1'; pass open devices"):
        await cb.world(none)


async def test_devices_of_another_loop_are_refused(devices: list[cb.Device]) -> None:
    """Waiting for one would never end, and could not be cancelled."""

    def elsewhere() -> None:
        asyncio.run(trying())

    async def trying() -> None:
        for name, make in (
            ("world", lambda: cb.world(devices[:2])),
            ("placement", lambda: cb.PlacementActor(devices[:2])),
            ("region r", lambda: cb.PlacementShardingAdapter("r", devices[:2], lambda key: cb.Props(Holder))),
        ):
            with pytest.raises(ValueError, match=rf"{name}: devices\[0\] \(cpu:0\) belongs to another event loop"):
                async with make():
                    pass

    async with asyncio.timeout(BOUND):
        await asyncio.to_thread(elsewhere)


def test_devices_of_sync_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")

    async def trying(device: Any) -> None:
        with pytest.raises(TypeError, match=r"placement: devices\[0\] is .*; pass open devices"):
            async with cb.PlacementActor([device]):
                pass

    with cb.sync.device("cpu:0") as device:
        asyncio.run(trying(device))
