"""Cost of linear algebra: through callboard, called directly, in CuPy and in eager torch.

    python benchmarks/solver.py --json solver.json
    python benchmarks/solver.py --quick --device cpu
    python benchmarks/solver.py --only "svd 1024 f32"

Singular values, eigenvalues, a Cholesky factor and a solve, from arrays to arrays. On the CPU the direct call is
SciPy's with the same LAPACK driver. On CUDA it is cuSOLVER's routine of the same algorithm through its bindings, which
destroys its input, so the matrix is copied before each call; callboard also looks for NaN and turns row-major into
column-major. CuPy and torch choose their own algorithm, but for torch's SVD, which is told.
"""

from typing import Any

import numpy as np
from _maths import Problem, Run, Subjects, compare

KINDS = {"f32": (np.float32, 0), "f64": (np.float64, 1)}
"""NumPy's type, and cuSOLVER's code (``cudaDataType``)."""


def problems(kind: str, quick: bool) -> list[Problem]:
    if kind == "cpu":
        n = 96 if quick else 512
        return [
            Problem(f"svd {n} f64", {"op": "svd", "n": n, "dtype": "f64"}, 2, 0.9),
            Problem(f"svd {n} f32", {"op": "svd", "n": n, "dtype": "f32"}, 2, 0.9),
            Problem(f"syevd {n} f64", {"op": "syevd", "n": n, "dtype": "f64"}, 2),
            Problem(f"cholesky {n} f64", {"op": "cholesky", "n": n, "dtype": "f64"}, 20),
            Problem(f"solve {n} f64", {"op": "solve", "n": n, "dtype": "f64"}, 20),
        ]
    return [
        Problem("svd 1024 f32", {"op": "svd", "n": 1024, "dtype": "f32"}, 1, 0.97),
        Problem("svd 1024 f64", {"op": "svd", "n": 1024, "dtype": "f64"}, 1, 0.97),
        Problem("syevd 1024 f64", {"op": "syevd", "n": 1024, "dtype": "f64"}, 5),
        Problem("cholesky 4096 f32", {"op": "cholesky", "n": 4096, "dtype": "f32"}, 30),
        Problem("solve 4096 f32", {"op": "solve", "n": 4096, "dtype": "f32"}, 20),
        Problem("cholesky 256 f32", {"op": "cholesky", "n": 256, "dtype": "f32"}, 1000),
    ]


def operands(op: str, n: int, dtype: str) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    a = rng.standard_normal((n, n))
    if op in ("syevd", "cholesky"):
        a = a @ a.T / n + np.eye(n)
    given = [a + n * np.eye(n), rng.standard_normal((n, 1))] if op == "solve" else [a]
    return [x.astype(KINDS[dtype][0]) for x in given]


async def ours(device: Any, op: str, n: int, dtype: str) -> Run:
    solver, refs = device.solver, [device.put(x) for x in operands(op, n, dtype)]
    call = getattr(solver, op)
    last: list[Any] = []

    def enqueue() -> Any:
        made = call(*refs)
        last[:] = made if isinstance(made, tuple) else [made]
        return last[0]

    shown = {"svd": 1, "syevd": 0}.get(op, 0)
    return Run(enqueue, lambda: last[shown].get())  # noqa: PLW0108 - there is none yet


def direct(op: str, n: int, dtype: str) -> Run:
    import scipy.linalg as la

    given = operands(op, n, dtype)
    run = {
        "svd": lambda a: la.svd(a, full_matrices=False, lapack_driver="gesdd")[1],
        "syevd": lambda a: la.eigh(a, driver="evd")[0],
        "cholesky": lambda a: la.cholesky(a, lower=True),
        "solve": lambda a, b: la.lu_solve(la.lu_factor(a), b),
    }[op]
    return Run(lambda: run(*given), lambda: run(*given))


def raw(cuda: Any, op: str, n: int, dtype: str) -> Run:
    from cuda.bindings import runtime
    from nvmath.bindings import cusolverDn

    given, (kind, code) = operands(op, n, dtype), KINDS[dtype]
    sources = [cuda.put(np.asfortranarray(x).T) for x in given]
    a, *others = copies = [cuda.empty(x.nbytes) for x in given]
    handle, params, info = cusolverDn.create(), cusolverDn.create_params(), cuda.empty(4)
    cusolverDn.set_stream(handle, cuda.stream)
    item = np.dtype(kind).itemsize
    u, vt, w, pivots = cuda.empty(n * n * item), cuda.empty(n * n * item), cuda.empty(n * item), cuda.empty(8 * n)
    s = ord("S")
    name, arguments = {
        "svd": ("xgesvd", (s, s, n, n, code, a, n, code, w, code, u, n, code, vt, n, code)),
        "syevd": ("xsyevd", (1, 0, n, code, a, n, code, w, code)),
        "cholesky": ("xpotrf", (0, n, code, a, n, code)),
        "solve": ("xgetrf", (n, n, code, a, n, pivots, code)),
    }[op]
    sizing = (n, n, code, a, n, code) if op == "solve" else arguments
    on_device, on_host = getattr(cusolverDn, f"{name}_buffer_size")(handle, params, *sizing)
    work, host, call = cuda.empty(on_device), np.empty(max(on_host, 1), np.uint8), getattr(cusolverDn, name)

    def enqueue() -> None:
        for source, copy, x in zip(sources, copies, given, strict=True):
            runtime.cudaMemcpyAsync(
                copy, source, x.nbytes, runtime.cudaMemcpyKind.cudaMemcpyDeviceToDevice, cuda.stream
            )
        call(handle, params, *arguments, work, on_device, host.ctypes.data, on_host, info)
        if op == "solve":
            cusolverDn.xgetrs(handle, params, 0, n, 1, code, a, n, pivots, code, others[0], n, info)

    def result() -> Any:
        if op in ("svd", "syevd"):
            return cuda.get(w, n, kind)
        return cuda.get(others[0], (n, 1), kind) if op == "solve" else np.tril(cuda.get(a, (n, n), kind).T)

    return Run(enqueue, result)


def cupy(cupy: Any, op: str, n: int, dtype: str) -> Run:
    given, la = [cupy.asarray(x) for x in operands(op, n, dtype)], cupy.linalg
    run = {
        "svd": lambda a: la.svd(a, full_matrices=False)[1],
        "syevd": lambda a: la.eigh(a)[0],
        "cholesky": la.cholesky,
        "solve": la.solve,
    }[op]
    return Run(lambda: run(*given), lambda: run(*given).get())


def torch(torch: Any, op: str, n: int, dtype: str) -> Run:
    given, la = [torch.from_numpy(x).cuda() for x in operands(op, n, dtype)], torch.linalg
    run = {
        "svd": lambda a: la.svd(a, full_matrices=False, driver="gesvd")[1],
        "syevd": lambda a: la.eigh(a)[0],
        "cholesky": la.cholesky,
        "solve": la.solve,
    }[op]
    return Run(lambda: run(*given), lambda: run(*given).cpu().numpy())


if __name__ == "__main__":
    compare(__doc__, "solver", problems, Subjects(ours, direct, raw, cupy, torch), rounds=5)
