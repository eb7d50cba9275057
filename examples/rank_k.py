"""A photograph in few numbers: its best approximations of low rank, by singular values.

The first ``k`` singular values and vectors of a picture hold ``k * (height + width + 1)`` numbers. No matrix of rank
``k`` is closer to it, and the distance is the root of the sum of squares of the values left out (Eckart and Young, "The
approximation of one matrix by another of lower rank", Psychometrika 1, 1936): checked here against NumPy's values.
"""

import asyncio
import sys

import numpy as np
from _photo import draw, photo

import callboard as cb

RANKS = (4, 16, 64)


async def main(name: str) -> None:
    picture = photo()
    want = np.linalg.svd(picture.astype(np.float64), compute_uv=False)
    norm = np.linalg.norm(want)
    async with cb.device(name) as gpu:
        a = gpu.put(picture)
        u, s, vt = gpu.solver.svd(a)
        scaled = gpu.blas.gemm(u, gpu.put(np.diag(await s.get())))  # u * s
        best = {k: gpu.blas.gemm(scaled[:, :k], vt[:k]) for k in RANKS}  # views of what is still being computed
        shown = {}
        for k, ref in best.items():
            shown[k] = await ref.get()
            error = np.linalg.norm(picture - shown[k].astype(np.float64))
            assert np.isclose(error, np.linalg.norm(want[k:]), rtol=1e-3), (k, error)
            kept = k * (sum(picture.shape) + 1) / picture.size
            print(f"rank {k:3}: {kept:6.1%} of the numbers, error {error / norm:6.2%} of the picture, as it must be")
        assert np.allclose(await s.get(), want, atol=1e-4 * want[0])
    print(draw(shown[RANKS[0]], shown[RANKS[-1]], columns=48))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
