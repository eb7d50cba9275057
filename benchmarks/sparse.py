"""Cost of a product with a sparse matrix: through callboard, called directly, in CuPy and in eager torch.

    python benchmarks/sparse.py --json sparse.json
    python benchmarks/sparse.py --quick --device cpu

CSR with 32-bit indices, 10 entries a row, one in each tenth of the columns at random; vectors and results stay where
they are. On the CPU the direct call is SciPy's ``matrix @ x``, on CUDA ``cusparseSpMV`` through its bindings.
"""

from typing import Any

import numpy as np
from _maths import Problem, Run, Subjects, compare

PER_ROW = 10
KINDS = {"f32": (np.float32, 0), "f64": (np.float64, 1)}
"""NumPy's type, and cuSPARSE's code (``cudaDataType``)."""


def problems(kind: str, quick: bool) -> list[Problem]:
    power, count, bar = (4 if quick else 6, 100, 0.9) if kind == "cpu" else (7, 200, 0.97)
    return [
        Problem(f"spmv 10^{power} nnz {dtype}", {"entries": 10**power, "dtype": dtype}, count, bar) for dtype in KINDS
    ]


def matrix(entries: int, dtype: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Values, columns, row starts, and a vector."""
    rng, n = np.random.default_rng(1), entries // PER_ROW
    tenths = np.arange(PER_ROW, dtype=np.int32) * (n // PER_ROW)  # in order, and none twice
    columns = (rng.integers(0, n // PER_ROW, (n, PER_ROW), np.int32) + tenths).ravel()
    starts = np.arange(0, entries + 1, PER_ROW, dtype=np.int32)
    values = rng.standard_normal(entries).astype(KINDS[dtype][0])
    return values, columns, starts, rng.standard_normal(n).astype(KINDS[dtype][0])


async def ours(device: Any, entries: int, dtype: str) -> Run:
    from callboard.kernel.sparse import CsrRef

    values, columns, starts, x = [await device.put(part) for part in matrix(entries, dtype)]
    n = x.size
    a, out = CsrRef(values, columns, starts, (n, n)), await device.empty(n, dtype)
    return Run(lambda: device.sparse.sp_mv(a, x, out=out), out.get)


def direct(entries: int, dtype: str) -> Run:
    import scipy.sparse as sp

    values, columns, starts, x = matrix(entries, dtype)
    a = sp.csr_array((values, columns, starts), (len(x), len(x)))
    return Run(lambda: a @ x, lambda: a @ x)


def raw(cuda: Any, entries: int, dtype: str) -> Run:
    from nvmath.bindings import cusparse

    parts, (kind, code) = matrix(entries, dtype), KINDS[dtype]
    n = len(parts[-1])
    values, columns, starts, x = (cuda.put(part) for part in parts)
    out = cuda.empty(n * np.dtype(kind).itemsize)
    factors = np.array([1, 0], kind)
    alpha, beta = factors.ctypes.data, factors.ctypes.data + factors.itemsize
    handle = cusparse.create()
    cusparse.set_stream(handle, cuda.stream)
    a = cusparse.create_csr(n, n, entries, starts, columns, values, 2, 2, 0, code)
    right, result = cusparse.create_dn_vec(n, x, code), cusparse.create_dn_vec(n, out, code)
    arguments = (0, alpha, a, right, beta, result, code, 0)
    work = cuda.empty(max(1, cusparse.sp_mv_buffer_size(handle, *arguments)))

    def enqueue() -> Any:
        cusparse.sp_mv(handle, *arguments, work)
        return factors  # the factors live as long as this function

    return Run(enqueue, lambda: cuda.get(out, (n,), kind))


def cupy(cupy: Any, entries: int, dtype: str) -> Run:
    import cupyx.scipy.sparse as sp

    values, columns, starts, x = (cupy.asarray(part) for part in matrix(entries, dtype))
    a = sp.csr_matrix((values, columns, starts), (len(x), len(x)))
    return Run(lambda: a @ x, (a @ x).get)


def torch(torch: Any, entries: int, dtype: str) -> Run:
    values, columns, starts, x = (torch.from_numpy(part).cuda() for part in matrix(entries, dtype))
    a = torch.sparse_csr_tensor(starts, columns, values, (len(x), len(x)))
    return Run(lambda: a @ x, lambda: (a @ x).cpu().numpy())


if __name__ == "__main__":
    compare(__doc__, "sparse", problems, Subjects(ours, direct, raw, cupy, torch))
