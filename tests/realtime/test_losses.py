"""A device that is lost in the middle of its simulations costs time, and nothing else."""

import asyncio
import os
import signal

import numpy as np
import pytest
from tests.realtime.scenarios import SCENARIOS

import callboard as cb


@pytest.mark.timeout(180)  # Numba and OpenCV, where they are installed, are loaded in three processes
async def test_a_lost_device_costs_at_most_the_steps_since_the_snapshot() -> None:
    async def quiet() -> None: ...

    async with cb.device("cpu", isolation=None) as gpu:
        undisturbed = await asyncio.gather(*(scenario(gpu, quiet) for scenario in SCENARIOS))
    async with cb.device("cpu", isolation="process") as gpu:
        lost = asyncio.Barrier(len(SCENARIOS))

        async def lose() -> None:
            if await lost.wait() == 0:  # all are in the middle of theirs
                pid = gpu.health().host_pid
                assert pid is not None
                os.kill(pid, signal.SIGKILL)

        found = await asyncio.gather(*(scenario(gpu, lose) for scenario in SCENARIOS))
    for name, one, other in zip(SCENARIOS, found, undisturbed, strict=True):
        for key, array in other.arrays.items():
            np.testing.assert_array_equal(one.arrays[key], array, err_msg=f"{name.__name__}: {key}")
        if one.stats is not None and other.stats is not None:
            assert one.stats.losses == 1, name
            assert 0 < one.stats.lost_frames <= one.every, name
            assert other.stats.losses == 0, name


async def test_what_the_caller_writes_after_a_call_is_not_in_the_repeat() -> None:
    frame = np.ones((6, 6), "f4")
    async with cb.device("cpu", isolation="process") as gpu:
        matrix = cb.GpuSparseStructureActor(gpu, 6, 6)
        matrix.set_entries(range(6), range(6), np.ones(6))
        pipe = cb.ImageFilterPipeline(gpu, np.ones((1, 1)))
        analysis = cb.MultiPassAnalysisActor(gpu, {"sum": lambda gpu, one: gpu.xp.sum(one)})
        calls = (
            lambda: matrix.spmm(frame),
            lambda: pipe.process(frame),
            lambda: analysis.analyze(frame),
            lambda: cb.ReductionAnalysisActor(gpu).reduce("sum", frame),
        )
        for call in calls:  # what they load is loaded before the loss
            await call()
        pid = gpu.health().host_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        begun = [asyncio.ensure_future(call()) for call in calls]
        await asyncio.sleep(0)
        frame[:] = 9.0
        product, image, sums, total = await asyncio.gather(*begun)
    assert product.tolist() == image.tolist() == np.ones((6, 6)).tolist()
    assert sums == {"sum": 36.0}
    assert total == 36.0
