"""Arguments are read within a call, results when the method returns: both sides may use their buffers again."""

import asyncio
from typing import Any

import numpy as np
import pytest
from tests.device.residents.lab import Gate
from tests.device.residents.taking_lab import Buffers

import callboard as cb

pytestmark = pytest.mark.leaves_nothing

BOUND = 20.0
SIZES = [4, 40_000, 1 << 20]
"""Numbers of f32: inside the message, in shared memory, and copied on a thread."""


def values(found: Any) -> list[float]:
    """The distinct numbers of an array."""
    distinct: list[float] = np.unique(np.asarray(found)).tolist()
    return distinct


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.few(3)
async def test_an_argument_may_be_written_when_the_call_has_returned(
    anywhere: cb.Device, gate: Gate, size: int
) -> None:
    actor = anywhere.actor_of(cb.Props(Buffers))
    async with asyncio.timeout(BOUND):
        array, more = np.ones(size, np.float32), bytearray(b"\x01" * size)
        early = actor.call(Buffers.echo, gate.path, [array, {"a": more}])
        array[:] = 7
        more[:] = b"\x07" * size
        await gate.let_through()
        found, others = await early
        assert values(found) == [1]
        assert values(np.frombuffer(others["a"], np.uint8)) == [1]
        array[:] = 1
        stream = actor.stream(Buffers.repeat, array, 2)
        array[:] = 7
        assert [values(item) async for item in stream] == [[1], [1]]
        assert values(array) == [7]


@pytest.mark.parametrize("own_process", [False, True])
async def test_a_method_may_write_what_it_has_returned(anywhere: cb.Device, own_process: bool) -> None:
    actor = anywhere.actor_of(cb.Props(Buffers), own_process=own_process)
    async with asyncio.timeout(BOUND):
        for size in SIZES:
            for method in (Buffers.fill, Buffers.fill_later):
                replies = [actor.call(method, number, size) for number in range(4)]
                assert [values(await reply) for reply in replies] == [[number] for number in range(4)]
            for generator in (Buffers.fills, Buffers.fills_later):
                items = [values(item) async for item in actor.stream(generator, 6, size)]
                assert items == [[number] for number in range(6)]


async def test_a_result_is_its_callers_own(anywhere: cb.Device) -> None:
    ref = anywhere.put(np.ones(4, np.float32))
    first, second = await ref.get(), await ref.get()
    first[:] = 7
    assert values(second) == values(await ref.get()) == [1]
