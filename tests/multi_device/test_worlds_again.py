"""Collectives that are called again with arrays of the same layouts: their parts are worked out once."""

import asyncio
from typing import Any

import numpy as np
import pytest
from tests.multi_device.world_lab import begin, put, right

import callboard as cb
from callboard.device.client.prepared import Prepared, Sent

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.timeout(300)]


async def test_a_collective_is_worked_out_once_for_its_layouts(devices: list[cb.Device]) -> None:
    async with cb.world(devices[:3]) as world:
        for of in range(4):  # other arrays of the same layouts, and of others
            for rows, in_place in ((3, False), (3, True), (5, True)):
                for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
                    if kind != "all_to_all" or not in_place:
                        await right(*begin(world, kind, "f32", in_place=in_place, rows=rows), kind)
            if of == 0:
                known = len(world._prepared)
        assert len(world._prepared) == known


async def test_a_collective_that_is_called_again_is_refused_as_the_first_time(devices: list[cb.Device]) -> None:
    async with cb.world(devices[:2]) as world:
        xs, outs = put(world, [np.ones(8)] * 2), put(world, [np.zeros(8)] * 2)
        for _ in range(2):
            await world.all_reduce(xs, out=outs)
        calls = world._call_number
        with pytest.raises(cb.DeviceMismatch, match=r"all_reduce: xs\[0\] is on cpu:1"):
            world.all_reduce(xs[::-1], out=outs)
        with pytest.raises(cb.ShapeError, match="xs has 1 refs"):
            world.all_reduce(xs[:1], out=outs[:1])
        both = put(world, [np.ones(12)] * 2)
        with pytest.raises(cb.ShapeError, match="shares memory"):
            world.all_reduce([x[:8] for x in both], out=[x[4:] for x in both])
        gone = put(world, [np.ones(8)] * 2)
        gone[1].free()
        with pytest.raises(cb.GpuRefStale, match="freed"):
            world.all_reduce(gone, out=outs)
        assert world._call_number == calls  # no rank has a part of those
        np.testing.assert_array_equal(await (await world.all_reduce(xs, out=outs))[1].get(), np.full(8, 2.0))


async def test_a_collective_that_is_called_again_takes_room_of_all_ranks_or_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")
    async with cb.System("room") as system:
        devices = [await system.device(f"cpu:{r}", max_in_flight=8) for r in range(2)]
        async with cb.world(devices) as world:
            xs = put(world, [np.ones(8)] * 2)
            await asyncio.gather(*xs)
            replies = [world.all_reduce(xs, out=xs) for _ in range(8)]
            with pytest.raises(cb.MailboxFull):
                world.all_reduce(xs, out=xs)
            assert [device._port.in_flight for device in devices] == [8, 8]
            for reply in replies:
                await reply
            await world.all_reduce(xs, out=xs)
            assert world.formation == 1


async def test_every_rank_has_its_part_before_the_replies_are_made(
    devices: list[cb.Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    send, enter = Prepared.send, Prepared.enter

    def sends(self: Prepared, *given: Any) -> Sent:
        steps.append("send")
        return send(self, *given)

    def enters(self: Prepared, *given: Any) -> None:
        steps.append("enter")
        enter(self, *given)

    async with cb.world(devices[:3]) as world:
        xs = put(world, [np.ones(8)] * 3)
        await world.all_reduce(xs, out=xs)
        with monkeypatch.context() as patch:
            patch.setattr(Prepared, "send", sends)
            patch.setattr(Prepared, "enter", enters)
            await world.all_reduce(xs, out=xs)
        np.testing.assert_array_equal(await xs[2].get(), np.full(8, 9.0))
    assert steps == ["send"] * 3 + ["enter"] * 3


async def test_a_part_that_cannot_be_sent_ends_the_call_on_the_ranks_that_have_theirs(
    devices: list[cb.Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Prepared.send

    def sends(self: Prepared, *given: Any) -> Sent:
        if self.port is devices[1]._port:
            raise RuntimeError("no way")
        return send(self, *given)

    async with cb.world(devices[:2]) as world, asyncio.timeout(60):
        xs, generations = put(world, [np.ones(8)] * 2), [device.generation for device in devices]
        await world.all_reduce(xs, out=xs)
        with monkeypatch.context() as patch:
            patch.setattr(Prepared, "send", sends)
            with pytest.raises(RuntimeError, match="no way"):
                world.all_reduce(xs, out=xs)
        await world.ready()
        assert world.formation == 2
        ys = put(world, [np.ones(8)] * 2)
        np.testing.assert_array_equal(await (await world.all_reduce(ys, out=ys))[0].get(), np.full(8, 2.0))
        assert [device.generation for device in devices] == generations  # no host was lost
