"""Hosts that die in the middle of copies, and while ops are parked."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.faults.load import BOUND, signal_host

import callboard as cb
from callboard.device.protocol.messages import Flush
from callboard.testing.faults import open_faulty

pytestmark = [pytest.mark.fault, pytest.mark.leaves_nothing]

N = 5 << 20  # 40 MiB: several chunks


def pattern(k: int) -> np.ndarray:
    return np.arange(k, k + N, dtype=np.float64)


async def put(dev: cb.Device, k: int) -> np.ndarray:
    ref = await dev.put(pattern(k))
    return await small_parts(ref)


async def put_strided(dev: cb.Device, k: int) -> np.ndarray:
    ref = await dev.put(np.stack([pattern(k), pattern(k)], 1)[:, 0])
    return await small_parts(ref)


async def put_non_blocking(dev: cb.Device, k: int) -> np.ndarray:
    ref = await dev.put(pattern(k), non_blocking=True)
    return await small_parts(ref)


async def put_leased(dev: cb.Device, k: int) -> np.ndarray:
    leased = dev.host_empty((N,), "f64")
    leased[...] = pattern(k)
    ref = await dev.put(leased)
    return await small_parts(ref)


async def get(dev: cb.Device, k: int) -> np.ndarray:
    value: np.ndarray = await dev.put(pattern(k)).get()
    return value[:: N // 64].copy()


async def get_into_leased(dev: cb.Device, k: int) -> np.ndarray:
    out = dev.host_empty((N,), "f64")
    await dev.put(pattern(k)).get(out)
    return out[:: N // 64].copy()


async def get_strided(dev: cb.Device, k: int) -> np.ndarray:
    value: np.ndarray = await dev.put(pattern(k))[::2].get()
    return value[:: N // 128].copy()


async def small_parts(ref: cb.GpuRef) -> np.ndarray:
    value: np.ndarray = await ref[:: N // 64].get()
    return value


Transfer = Callable[[cb.Device, int], Any]


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("at", [1, 3, 5])
@pytest.mark.parametrize(
    "transfer", [put, put_strided, put_non_blocking, put_leased, get, get_into_leased, get_strided]
)
async def test_a_host_killed_in_the_middle_of_a_copy(transfer: Transfer, at: int) -> None:
    async with open_faulty("host_killed", at=at, max_restarts=1) as dev:
        lost = 0
        for k in range(3):
            try:
                async with asyncio.timeout(BOUND):
                    value = await transfer(dev, k)
            except cb.ContextLost:
                lost += 1
            else:
                expected = pattern(k)[:: N // 64]
                np.testing.assert_array_equal(value, expected[: len(value)])
        assert lost == 1
        assert dev.health().restarts == 1
        value = await transfer(dev, 7)
        np.testing.assert_array_equal(value, pattern(7)[:: N // 64][: len(value)])
        del value
        assert dev._actor.arenas.stats.quarantined == 0


@pytest.mark.slow
async def test_a_host_killed_while_ops_are_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait for memory that the application never frees, for its answer to the flush does not come."""
    mb = 1 << 18  # elements of f32
    async with cb.device("cpu", isolation="process", standby=None, memory_limit=8 << 20) as dev:
        kept = dev.full((5 * mb,), 1.0)
        await kept
        asked = asyncio.Event()

        def on_answer(message: Any) -> None:
            if isinstance(message, Flush):
                asked.set()

        with monkeypatch.context() as patch:
            patch.setattr(dev._actor, "on_answer", on_answer)
            parked = [dev.full((5 * mb,), float(k)).get() for k in range(20)]
            async with asyncio.timeout(BOUND):
                await asked.wait()
            signal_host(dev, signal.SIGKILL)
            async with asyncio.timeout(BOUND):
                outcomes = await asyncio.gather(*parked, return_exceptions=True)
        assert {type(e) for e in outcomes} == {cb.ContextPoisoned}
        del kept
        async with asyncio.timeout(BOUND):
            assert (await dev.full((5 * mb,), 2.0).get()).sum() == 10 * mb


@pytest.mark.slow
async def test_nothing_is_put_in_dev_shm() -> None:
    """Shared memory has no name anywhere, so a container's 1 MiB of /dev/shm is enough."""
    before = mapped(os.getpid())
    async with cb.device("cpu", isolation="process", standby=None) as dev:
        leased = dev.host_empty((1 << 20,), "f64")
        leased[...] = 3
        assert (await dev.put(leased).get())[-1] == 3
        for files in (mapped(os.getpid()) - before, mapped(dev.health().host_pid)):
            assert any(name.startswith("/memfd:callboard-arena") for name in files)
            assert not [name for name in files if name.startswith("/dev/shm/")]


def mapped(pid: int | None) -> set[str]:
    """Names of what a process has mapped; the folder itself is also that of other programs."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {fields[5] for line in lines if len(fields := line.split()) > 5}
