"""PageRank of a real graph: a sparse matrix as one value, a hundred products in flight, a product of unknown size.

The graph: who of a karate club's 34 members met outside of it, 78 pairs, as observed by W. W. Zachary ("An Information
Flow Model for Conflict and Fission in Small Groups", Journal of Anthropological Research 33, 1977). Soon afterwards the
club split between its instructor (member 1) and its officer (member 34): the two whom PageRank puts on top.
"""

import asyncio
import sys
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import spsolve

import callboard as cb

MEETS = """1: 2 3 4 5 6 7 8 9 11 12 13 14 18 20 22 32; 2: 3 4 8 14 18 20 22 31; 3: 4 8 9 10 14 28 29 33; 4: 8 13 14;
5: 7 11; 6: 7 11 17; 7: 17; 9: 31 33 34; 10: 34; 14: 34; 15: 33 34; 16: 33 34; 19: 33 34; 20: 34; 21: 33 34; 23: 33 34;
24: 26 28 30 33 34; 25: 26 28 32; 26: 32; 27: 30 34; 28: 34; 29: 32 34; 30: 33 34; 31: 33 34; 32: 33 34; 33: 34"""
DAMPING = 0.85
STEPS = 100


def walk() -> sp.csr_array:
    """How likely a step leads from member j (column) to member i (row)."""
    pairs = [(int(a), int(b)) for a, rest in (line.split(":") for line in MEETS.split(";")) for b in rest.split()]
    rows, cols = np.array(pairs + [(b, a) for a, b in pairs]).T - 1
    meets = sp.csr_array((np.ones(len(rows)), (rows, cols)))
    return sp.csr_array(meets / meets.sum(0))


async def main(name: str) -> None:
    steps: Any = walk()  # SciPy has no types
    n: int = steps.shape[0]
    async with cb.device(name) as gpu:
        matrix = gpu.sparse.from_scipy(steps)
        start = gpu.full(n, (1 - DAMPING) / n, "f64")
        rank = start
        for _ in range(STEPS):  # not one of them waits for the one before
            rank = gpu.sparse.sp_mv(matrix, rank, y=start, alpha=DAMPING, beta=1.0)
        ranks = await rank.get()
        twice = await gpu.sparse.sp_gemm(matrix, matrix)  # how many entries it has is known now

    exact: Any = spsolve(sp.eye_array(n).tocsc() - DAMPING * steps.tocsc(), np.full(n, (1 - DAMPING) / n))
    assert np.allclose(ranks, exact, rtol=1e-6)
    assert twice.nnz == (steps @ steps).nnz

    for member in np.argsort(-ranks)[:10]:
        print(f"{member + 1:>3} {ranks[member]:.4f} {'█' * round(400 * float(ranks[member]))}")
    print(f"{STEPS} steps, as the linear system says to {abs(ranks - exact).max():.0e}")
    print(f"{steps.nnz} pairs are one step apart, {twice.nnz} can be two apart, of {n * n}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
