"""Refs of tokens: the state of the ref that the token was made of, and tokens that no ref has."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.device.residents.lab import Gate
from tests.multi_device.copies_lab import BOUND, Slow

import callboard as cb

pytestmark = pytest.mark.leaves_nothing


@pytest.fixture(params=["thread", "process"])
async def cpu(request: pytest.FixtureRequest) -> AsyncIterator[cb.Device]:
    async with cb.device("cpu", isolation=request.param, standby=None) as device, asyncio.timeout(BOUND):
        yield device


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.open_for_good()


async def test_the_token_of_a_pending_op_is_pending(cpu: cb.Device, gate: Gate) -> None:
    slow = cpu.actor_of(cb.Props(Slow))
    x = await cpu.zeros(4)
    filled = slow.call(Slow.fill, x, 3.0, gate.path)
    y = cpu.copy(x)
    same, part = cpu.resolve(y.token()), cpu.resolve(y[1:3].token())
    waits = asyncio.ensure_future(same)
    await gate.reached()
    assert not any(each.done() for each in (y, same, part, waits))
    token = y.token()
    del y
    again = cpu.resolve(token)
    assert not again.done()
    await gate.let_through()
    await filled
    assert await waits is same
    assert (await part).done()
    np.testing.assert_array_equal(await again.get(), np.full(4, 3.0))
    assert cpu.resolve(token).done()


async def test_the_token_of_a_failed_op_has_failed(cpu: cb.Device) -> None:
    bad = cpu.solver.cholesky(cpu.put(-np.eye(3, dtype="f4")))
    early = bad.token()
    pending = cpu.resolve(early)
    with pytest.raises(cb.NumericalError):
        await bad
    for ref in (pending, cpu.resolve(early), cpu.resolve(bad.token()), cpu.resolve(bad[0].token())):
        assert isinstance(ref.exception(), cb.NumericalError)
        with pytest.raises(cb.NumericalError):
            await ref
    written = await cpu.fill(bad, 1.0)
    assert cpu.resolve(written.token()).exception() is None


@pytest.mark.parametrize(
    "change, error, says",
    [
        ({"offset": 2}, cb.ShapeError, "offset 2 .* not a multiple of 4 bytes"),
        ({"offset": -4}, cb.ShapeError, "reaches bytes -4"),
        ({"offset": 40}, cb.ShapeError, "reaches bytes 40 to 104"),
        ({"offset": 1 << 80}, cb.ShapeError, "reaches bytes"),
        ({"shape": (4, 5)}, cb.ShapeError, "reaches bytes 0 to 68"),
        ({"strides": (4, 2)}, cb.ShapeError, "reaches bytes"),
        ({"strides": (-4, 1)}, cb.ShapeError, "reaches bytes -48"),
        ({"strides": (1,)}, cb.ShapeError, "has 2 axes"),
        ({"shape": (-1, 4)}, cb.ShapeError, "shape"),
        ({"shape": (4.0, 4)}, cb.ShapeError, "shape"),
        ({"shape": 4}, cb.ShapeError, "not of an array"),
        ({"dtype": 99}, cb.ShapeError, "dtype code 99"),
        ({"dtype": -1}, cb.ShapeError, "dtype code -1"),
        ({"offset": "0"}, TypeError, "token.offset is '0'"),
        ({"buffer": 1.0}, TypeError, "token.buffer"),
        ({"generation": None}, TypeError, "token.generation"),
        ({"op": True}, TypeError, "token.op"),
        ({"buffer": 1 << 60}, cb.GpuRefStale, "freed"),
        ({"generation": 1}, cb.GpuRefStale, "context rebuilt"),
        ({"device": "CPU-9"}, cb.DeviceMismatch, "CPU-9"),
    ],
)
async def test_a_token_that_no_ref_has_is_refused(change: dict[str, Any], error: type[Exception], says: str) -> None:
    async with cb.device("cpu", isolation="thread", standby=None) as cpu:
        ref = await cpu.zeros((4, 4))
        with pytest.raises(error, match=says):
            cpu.resolve(msgspec.structs.replace(ref.token(), **change))
        assert cpu.resolve(ref.token()).shape == (4, 4)


async def test_a_dtype_of_another_size_is_aligned_to_its_own() -> None:
    async with cb.device("cpu", isolation="thread", standby=None) as cpu:
        octets = await cpu.zeros(64, "u1")
        part = octets[8:24].reinterpret("f64")
        assert (await cpu.resolve(part.token()).get()).dtype == np.float64
        with pytest.raises(cb.ShapeError, match="offset 4 of f64"):
            cpu.resolve(msgspec.structs.replace(part.token(), offset=4))


async def test_the_state_of_a_ref_and_what_it_tells_after_the_end() -> None:
    async with cb.device("cpu", isolation="thread", standby=None) as cpu:
        never = await cpu.empty(3)
        assert never.last_write_stream is None
        written = await cpu.fill(cpu.empty(3), 1.0)
        assert written.last_write_stream is not None
        written.free()
        again = await cpu.empty(3)  # perhaps the same memory, which was written
        assert again.last_write_stream is None
        with pytest.raises(cb.GpuRefStale, match="freed"):
            assert written.last_write_stream
        assert repr(never) == "<GpuRef f32[3] on cpu:0, generation 1, ready>"
        uuid = never.device_id
        assert uuid == cpu.uuid
    with pytest.raises(cb.GpuRefStale, match="shutting down"):
        assert never.last_write_stream
    assert never.device_id == uuid
    assert never.device == "cpu:0"
    assert repr(never) == "<GpuRef f32[3] on cpu:0, generation 1, stale: device shutting down>"


def test_a_blocking_ref_tells_the_same() -> None:
    with cb.sync.device("cpu", isolation="process", standby=None) as cpu:
        ref = cpu.zeros(3)
        ref.result()
        assert repr(ref) == "array([0., 0., 0.], dtype=float32, device='cpu:0')"
        assert ref.last_write_stream is None, "it is not of this process"
        assert cpu.resolve(ref.token()).result().get().sum() == 0.0
    with pytest.raises(cb.GpuRefStale, match="shutting down"):
        assert ref.last_write_stream
