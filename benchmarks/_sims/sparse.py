"""Products of a sparse matrix of 200,000 rows and 2 million entries beside SciPy, torch, and CuPy's cuSPARSE."""

from typing import Any

import numpy as np
import scipy.sparse

import callboard as cb
from _sims.bench import Bench, Section, faster

PER = 20


def section(bench: Bench) -> Section:
    """With a vector of the host, and with one on the device; new values for all entries, and a product."""
    n = bench.size(200_000, 200_000)
    rng = np.random.default_rng(0)
    rows, cols = rng.integers(0, n, (2, 10 * n))
    values, x = rng.random(10 * n, "f4"), rng.random(n, "f4")
    structure = cb.GpuSparseStructureActor(bench.gpu, n, n)
    structure.set_entries(rows, cols, values)
    gpu, matrix = bench.gpu, bench.done(structure.matrix)
    sent = bench.done(lambda: gpu.put(x))

    async def updated() -> Any:
        structure.update(rows, cols, values)
        return await structure.spmv(x)

    csr = scipy.sparse.coo_array((values, (rows, cols)), (n, n)).tocsr()
    subjects = {
        "callboard": bench.wait(lambda: structure.spmv(x)),
        "on the device": bench.enqueue(lambda: gpu.sparse.sp_mv(matrix, sent), PER),
        "updated": bench.wait(updated),
        "SciPy": bench.call(lambda: csr @ x),
        "SciPy, updated": bench.call(lambda: scipy.sparse.coo_array((values, (rows, cols)), (n, n)).tocsr() @ x),
    }
    wrong = float(np.abs(bench.done(lambda: structure.spmv(x)) - csr @ x).max() / np.abs(csr @ x).max())
    if torch := bench.peer("torch"):
        where = bench.torch_device
        parts = (torch.from_numpy(one.astype("i4")).to(where) for one in (csr.indptr, csr.indices))
        a = torch.sparse_csr_tensor(*parts, torch.from_numpy(csr.data).to(where), size=(n, n), check_invariants=False)
        b = torch.from_numpy(x).to(where)
        subjects["torch"] = bench.launch(torch, lambda: a @ b, PER)
    if cupy := bench.peer("cupy"):
        c, d = bench.peer("cupyx.scipy.sparse").csr_matrix(csr), cupy.asarray(x)
        subjects["CuPy"] = bench.launch(cupy, lambda: c @ d, PER)

    def bars(found: Any) -> list[Any]:
        if bench.cuda:
            return [faster(found, "CuPy", "on the device", 0.95)]
        return [faster(found, "SciPy", "callboard", 0.95), faster(found, "SciPy, updated", "updated", 0.95)]

    return Section(f"{n} rows, {csr.nnz} entries, times a vector", subjects, "callboard", bars, {"error": wrong})
