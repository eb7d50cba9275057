"""A run on one device is recorded, and replayed on the CPU: the first op that does something else is named.

The journal has each op with its arguments, the arrays from the host, and the results. The replay runs the program
again, and compares; results of another backend may differ by the tolerance of their dtype.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

import numpy as np

import callboard as cb


async def train(system: cb.System, device: str, rate: float = 0.5) -> float:
    """Fit a line by gradient descent; the loss."""
    gpu = await system.device(device)
    rng = np.random.default_rng(1)
    x = rng.standard_normal((64, 3)).astype("f4")
    wanted = gpu.put(x @ np.array([[1.0], [-2.0], [0.5]], "f4"))
    inputs, weights = gpu.put(x), gpu.zeros((3, 1))
    for step in range(4):
        error = gpu.blas.gemm(inputs, weights) - wanted
        slope = gpu.blas.gemm(inputs, error, alpha=1 / 64, transpose_a=True)
        weights = gpu.blas.axpy(slope, weights, alpha=-rate if step == 2 else -0.5)
    rest = gpu.blas.gemm(inputs, weights) - wanted
    return float(await gpu.xp.mean(rest * rest).get())


async def main(device: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal = cb.SqliteJournal(Path(folder) / "run.db")
        async with cb.ReplayHarness("record", journal) as harness:
            async with cb.System("train", recorder=harness) as system:
                print(f"recorded: loss {await train(system, device):.4f}")

        for rate in (0.5, 0.4):
            async with cb.ReplayHarness("replay", journal) as harness:
                async with cb.System("train", recorder=harness) as system:
                    print(f"replayed with rate {rate}: loss {await train(system, 'cpu', rate):.4f}")
                report = harness.report
                print(f"  {report.device_ops} ops and {report.device_results} results compared")
                print(f"  {report.first or 'no difference'}")
                assert (report.first is None) is (rate == 0.5)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
