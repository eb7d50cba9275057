"""A context on the caller's loop."""

import asyncio
from typing import Any

import numpy as np

import callboard as cb
from callboard.device.host.context.blocks import size_class

N = 1024
SMALL = size_class(4 * N)


def test_memory_is_asked_for_behind_every_free_made_before() -> None:
    """Also where the loop does not run, and the calls are launched but their frees wait for it."""
    loop = asyncio.new_event_loop()

    async def opened() -> tuple[cb.System, cb.Device]:
        system = await cb.System("frees").start()
        return system, await system.device("cpu", dispatcher="caller", memory_limit=6 * SMALL)

    def run(work: Any) -> Any:
        return loop.run_until_complete(asyncio.wait_for(work, 20))

    async def got(ref: cb.GpuRef) -> np.ndarray:
        return await ref.get()

    system, dev = run(opened())
    made = []
    for k, times in enumerate((1, 1, 2)):  # the last one is short of memory until what was passed is given back
        passing = dev.fill(dev.empty((times * N,), "f32"), k)
        made.append(dev.copy(passing))
        del passing
    made.append(dev.copy(made[0]))  # short, too, unless the last free came before it
    for ref, value in zip(made, (0, 1, 2, 0), strict=True):
        np.testing.assert_array_equal(run(got(ref)), np.full(ref.shape, value, np.float32))
    run(system.stop())
    loop.close()
