"""Random programs on two streams that are delayed by seed: the result is that of the program's order, every time."""

import asyncio
import random

import numpy as np
import pytest
from tests.faults.load import BOUND

import callboard as cb

pytestmark = [pytest.mark.fault, pytest.mark.leaves_nothing]

N = 8
ARRAYS = 6
STEPS = 150


async def outcome(dev: cb.Device, seed: int) -> list[str]:
    """Run a program of fills, copies, products and in-place updates that share arrays and reuse each other's memory.

    Returns:
        What differs from NumPy, by array; empty when all is right. Values stay small integers, so they are exact.
    """
    draw = random.Random(seed)
    arrays = [np.full((N, N), k, np.float64) for k in range(ARRAYS)]
    refs = [dev.put(a) for a in arrays]
    permutation = np.eye(N)[::-1].copy()
    flip = dev.put(permutation)
    for _ in range(STEPS):
        i, j = draw.sample(range(ARRAYS), 2)
        match draw.randrange(6):
            case 0:
                value = float(draw.randrange(100))
                dev.fill(refs[i], value)
                arrays[i] = np.full((N, N), value)
            case 1:
                row = draw.randrange(N)
                dev.fill(refs[i][row], float(row))
                arrays[i] = arrays[i].copy()
                arrays[i][row] = row
            case 2:
                refs[i] = dev.copy(refs[j])
                arrays[i] = arrays[j].copy()
            case 3:
                refs[i] = dev.blas.gemm(flip, refs[j])
                arrays[i] = permutation @ arrays[j]
            case 4:
                dev.copy(refs[j].T, refs[i])
                arrays[i] = arrays[j].T.copy()
            case 5:
                refs[i] = dev.put(np.full((N, N), 7.0))  # into memory that was just given back
                arrays[i] = np.full((N, N), 7.0)
    replies = [ref.get() for ref in refs]
    wrong = []
    for k, (reply, array) in enumerate(zip(replies, arrays, strict=True)):
        async with asyncio.timeout(BOUND):
            if not np.array_equal(await reply, array):
                wrong.append(f"array {k} of program {seed}")
    return wrong


@pytest.mark.parametrize("isolation", ["thread", "process"])
async def test_delays_change_no_value(isolation: str) -> None:
    for seed in range(4):
        async with cb.device(f"faulty+cpu?seed={seed}&delay=0.001", isolation=isolation, standby=None) as dev:
            assert await outcome(dev, seed) == []


@pytest.mark.parametrize("streams", ["single", "pooled"])
@pytest.mark.parametrize("completion", ["polled", "host_fn", "sync"])
async def test_stream_allocators_and_completions_change_no_value(streams: str, completion: str) -> None:
    options = {"streams": streams, "pooled_streams": 2, "completion": completion, "isolation": "thread"}
    async with cb.device("faulty+cpu?seed=5&delay=0.0005", **options) as dev:
        assert await outcome(dev, 5) == []


async def test_without_waits_between_streams_values_are_wrong() -> None:
    wrong: list[str] = []
    for seed in range(4):
        async with cb.device(f"faulty+cpu?seed={seed}&delay=0.002&drop_waits=1", isolation="thread") as dev:
            wrong += await outcome(dev, seed)
    assert wrong
