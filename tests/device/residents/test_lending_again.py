"""Memory that is lent more than once, in whole or in part: all its refs are one buffer, whose users run in order."""

import asyncio
import gc
from typing import Any

import numpy as np
import pytest
from tests.device.residents.lab import Gate, enter, local, made, wait_at

import callboard as cb
from callboard.device.host.residents.lending import Lendings

pytestmark = pytest.mark.leaves_nothing

TIME = 20.0


class Lending(cb.ResidentActor):
    """Lends one array of its own, again and again."""

    def setup(self, ctx: cb.HostContext) -> None:
        self.ctx = enter(ctx)
        self.own = made(ctx, np.zeros(8))

    def part(self, begin: int, end: int) -> Any:
        return self.ctx.ref(self.own[begin:end])

    def parts(self) -> Any:
        return [self.ctx.ref(self.own[:6]), self.ctx.ref(self.own[2:])]

    def write(self, gate: str, array: Any) -> None:
        wait_at(gate)
        local(array)[...] += 1.0


async def test_an_op_on_one_part_waits_for_a_call_that_writes_another(dev: cb.Device, gate: Gate) -> None:
    actor = dev.actor_of(cb.Props(Lending))
    low, high = await actor.call(Lending.parts)
    again = await actor.call(Lending.part, 0, 8)
    writing = actor.call(Lending.write, gate.path, low)
    copies = [dev.copy(high), dev.copy(again)]
    async with asyncio.timeout(TIME):
        await gate.reached()
        while (await dev.stats()).parked < 2:
            pass
        assert not any(copy.done() for copy in copies)
        await gate.let_through()
        await writing
        np.testing.assert_array_equal(await copies[0].get(), [1.0] * 4 + [0.0] * 2)
        np.testing.assert_array_equal(await copies[1].get(), [1.0] * 6 + [0.0] * 2)


@pytest.mark.slow
async def test_each_ref_is_freed_for_itself(dev: cb.Device) -> None:
    actor = dev.actor_of(cb.Props(Lending))
    async with asyncio.timeout(TIME):
        for n in range(1, 4):
            first = await actor.call(Lending.part, 0, 4)
            second = await actor.call(Lending.part, 2, 8)
            del first
            gc.collect()
            dev.fill(second, float(n))
            np.testing.assert_array_equal(await (await actor.call(Lending.part, 0, 4)).get(), [0.0, 0.0, n, n])
            del second
            gc.collect()
        while (await dev.stats()).buffers:
            pass


async def test_what_is_lent_while_ops_write_it_is_read_behind_them(dev: cb.Device) -> None:
    actor = dev.actor_of(cb.Props(Lending))
    whole = await actor.call(Lending.part, 0, 8)
    async with asyncio.timeout(TIME):
        for n in range(1, 51):
            dev.fill(whole, float(n))
            again = actor.call(Lending.part, 4, 8)
            np.testing.assert_array_equal(await dev.copy(await again).get(), np.full(4, float(n)))


class TestLendings:
    def lendings(self) -> Lendings:
        return Lendings(lambda block: None)

    def test_views_of_one_array_are_one_buffer(self) -> None:
        lendings, array = self.lendings(), np.zeros((4, 6))
        whole = lendings.adopt(array, on_host=True)
        row, turned = lendings.adopt(array[2], on_host=True), lendings.adopt(array.T[1:, ::-1], on_host=True)
        assert row.block is whole.block is turned.block
        assert (row.offset, row.layout.shape) == (2 * 6 * 8, (6,))
        assert turned.layout.shape == (5, 4)
        assert whole.block.nbytes == array.nbytes

    def test_other_arrays_are_others(self) -> None:
        lendings = self.lendings()
        a, b = np.zeros(4), np.zeros(4)
        assert lendings.adopt(a, on_host=True).block is not lendings.adopt(b, on_host=True).block

    def test_an_array_that_is_gone_leaves_nothing(self) -> None:
        lendings = self.lendings()
        lent = lendings.adopt(np.zeros(4), on_host=True)
        assert len(lendings._blocks) == 1
        del lent
        gc.collect()
        assert len(lendings._blocks) == 0

    def test_an_empty_array(self) -> None:
        lendings = self.lendings()
        assert lendings.adopt(np.zeros((0, 3)), on_host=True).layout.shape == (0, 3)
        assert lendings.adopt(np.zeros(4)[2:2], on_host=True).layout.shape == (0,)
