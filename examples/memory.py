"""Streaming frames through a device: pinned buffers, copies of rows, the device's time, memory of two processes.

Run: python examples/memory.py [cpu|cuda|auto]
"""

import asyncio
import subprocess
import sys

import numpy as np

import callboard as cb

SIDE, TILE, FRAMES = 512, 128, 24
READER = """
import sys, callboard as cb
with cb.sync.device(sys.argv[1], isolation="process", standby=None) as gpu:
    total = gpu.ipc.open(bytes.fromhex(sys.argv[2]))
    gpu.event.open(bytes.fromhex(sys.argv[3])).wait(total)
    print(gpu.copy(total).get().sum())
"""


async def frame(gpu: cb.Device, pool: cb.PinnedBufferPool, total: cb.GpuRef, number: int) -> None:
    """Add a tile of a frame to the total; waits here while all buffers are on loan."""
    with await pool.acquire((SIDE, SIDE), timeout=60) as image:
        image[...] = np.random.default_rng(number).random((SIDE, SIDE), np.float32)
        tile = gpu.empty((TILE, TILE))
        gpu.memcpy(tile, image[64 : 64 + TILE, 200 : 200 + TILE])  # rows at a pitch, straight from the buffer
        gpu.blas.axpy(tile.reshape(-1), total.reshape(-1))


async def main(which: str) -> None:
    async with cb.device(which, isolation="process") as gpu:
        total = gpu.fill(gpu.ipc.empty((TILE, TILE)), 0.0)
        pool = gpu.pinned_pool(max_buffers=4)
        with gpu.time() as t:
            await asyncio.gather(*(frame(gpu, pool, total, number) for number in range(FRAMES)))
        print(
            f"{FRAMES} frames: {await t * 1e3:.2f} ms of the device's time, {pool.stats().waited} waited for a buffer"
        )

        done = gpu.event.create(timing=False, interprocess=True).record(total)
        handles = [(await gpu.ipc.export(total)).as_bytes().hex(), (await done.export()).as_bytes().hex()]
        reader = [sys.executable, "-c", READER, gpu.backend, *handles]
        there = float(await asyncio.to_thread(subprocess.check_output, reader, text=True))
        print(f"their sum, as another process sees it: {there:.6g}; here {(await total.get()).sum():.6g}")

        del total
        stats = await gpu.pool_stats()
        print(f"device memory: {stats.used_bytes} bytes in use, {stats.cached_bytes} kept, {stats.hits} blocks reused")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
