"""A recorded step: heat spreads on a plate. The step is called once, and replayed 2,000 times in four messages."""

import asyncio
import sys

import numpy as np

import callboard as cb

N = 64
STEP = 0.2
"""Of the explicit scheme, which is stable up to 0.25."""


def laplacian(n: int) -> np.ndarray:
    """Second differences along one axis; the ends of the plate are kept at 0."""
    return (np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1) - 2 * np.eye(n)).astype("f4")


async def main(device: str) -> None:
    plate = np.zeros((N, N), "f4")
    plate[N // 4 : N // 2, N // 3 : N // 2] = 100.0
    async with cb.device(device) as dev:
        heat, second = dev.put(plate), dev.put(laplacian(N))
        with dev.record(heat=heat) as recording:  # nothing runs yet
            flow = dev.blas.gemm(second, heat)
            flow = dev.blas.gemm(heat, second, c=flow, beta=1.0)
            dev.blas.axpy(flow.reshape(-1), heat.reshape(-1), alpha=STEP)  # heat += STEP * flow
            step = recording.returns(heat)
        print(step)
        for node in step.nodes:
            print(f"  {node.at}: {node.op}, after {list(node.after)}")

        values = plate
        for _ in range(4):
            values = await step.replay(500).get()
            print(f"hottest {values.max():6.2f}, {values.sum() / plate.sum():.0%} of the heat is left")

        expected = plate.astype("f8")
        for _ in range(2000):
            expected += STEP * (laplacian(N) @ expected + expected @ laplacian(N))
        print(f"difference from NumPy in f64: {abs(values - expected).max():.1e}")

        colder = step.replay(500, heat=plate / 2)  # other contents, the same graph
        print(f"half as warm: hottest {(await colder.get()).max():.2f}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
