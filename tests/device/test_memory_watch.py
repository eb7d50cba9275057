"""The host tells of device memory when the use of it has changed, and only then."""

from collections.abc import AsyncIterator

import pytest
from tests.multi_device.waiting import until

import callboard as cb
from callboard.device.host.context.blocks import MemoryWatch

pytestmark = pytest.mark.leaves_nothing
MIB = 1 << 20


@pytest.fixture(params=["process", "thread", "loop"])
async def device(request: pytest.FixtureRequest) -> AsyncIterator[cb.Device]:
    how = {"isolation": "thread", "dispatcher": "caller"} if request.param == "loop" else {"isolation": request.param}
    async with cb.device("cpu", standby=None, **how) as made:
        yield made


def test_what_is_told() -> None:
    watch = MemoryWatch(10)
    assert [watch.changed(used) for used in (0, 9, 10, 1, 0, 0, 9, -1, 10)] == [
        *(True, False, True, False, True),
        *(False, False, False, True),
    ]


async def test_told_now_and_when_it_changes(device: cb.Device) -> None:
    told: list[cb.MemoryFigures] = []
    remove = await device.watch_memory(told.append, step=MIB)
    await until(lambda: len(told) == 1)
    assert 0 < told[0].free_bytes <= told[0].total_bytes
    small = device.empty(1000, "f32")
    await small
    await device.stats()
    assert len(told) == 1
    large = device.empty(4 * MIB, "f32")
    await until(lambda: len(told) == 2)
    assert told[1].used_bytes - told[0].used_bytes >= 16 * MIB
    large.free()
    await until(lambda: len(told) == 3)
    assert told[2].used_bytes == told[1].used_bytes - 16 * MIB
    assert told[2].cached_bytes >= 16 * MIB
    more: list[cb.MemoryFigures] = []
    other = await device.watch_memory(more.append, step=1)
    await until(lambda: more)
    await remove()
    count = len(told)
    large = device.empty(4 * MIB, "f32")
    await until(lambda: len(more) > 1)  # before it is freed: a host that receives both at once sees no change
    large.free()
    await other()
    await device.empty(4 * MIB, "f32")
    await device.stats()
    assert len(told) == count
    await remove()
    with pytest.raises(ValueError, match="step is 0; it is at least 1"):
        await device.watch_memory(told.append, step=0)


def test_blocking() -> None:
    told: list[cb.MemoryFigures] = []
    with cb.sync.device("cpu", isolation="thread", standby=None) as cpu:
        remove = cpu.watch_memory(told.append, step=MIB)
        cpu.empty(4 * MIB, "f32").result()
        cpu.stats()
        remove()
    assert told
