"""Cost of a product with a structured matrix: through callboard, called directly, and in eager torch.

    python benchmarks/sparse_lt.py --json sparse_lt.json
    python benchmarks/sparse_lt.py --quick --device cpu

``x @ w.T`` in bf16 with a 2:4 ``w`` that was compressed before; and, to compare with, of the same size with a dense
``w``. The speed counts the multiplications of the dense product. On CUDA the direct call is cuSPARSELt through its
bindings, by the algorithm that it takes by itself and by the one that its search finds; torch multiplies by
``to_sparse_semi_structured(w)``. CuPy has none. On the CPU the direct call is NumPy's product with the zeros, in f32.
"""

from typing import Any

import ml_dtypes
import numpy as np
from _maths import Problem, Run, Subjects, compare

BF16 = np.dtype(ml_dtypes.bfloat16)
CODE, COMPUTE_32F, COLUMNS, ROWS = 14, 2, 1, 2  # cudaDataType, cusparseComputeType, cusparseOrder_t
ALIGNMENT = 16
SEARCHED = 4096  # in smaller products the choice of the algorithm makes less of a difference


def problems(kind: str, quick: bool) -> list[Problem]:
    def linear(n: int, form: str, count: int, bar: float | None) -> Problem:
        without = ["raw"] if form == "dense" else ["torch"] if form == "2:4, searched" else []
        settings = {"n": n, "form": form}
        return Problem(f"linear {n} bf16 {form}", settings, count, bar, 2e-12 * n**3, "TFLOP/s", without=without)

    if kind == "cpu":
        return [linear(256 if quick else 512, form, 10, None) for form in ("2:4", "dense")]
    sizes = [(4096, 200)] if quick else [(1024, 1000), (4096, 200), (8192, 50)]
    return [
        linear(n, form, count, None if form == "dense" or n < 4096 else 0.97)
        for n, count in sizes
        for form in ("2:4", "2:4, searched", "dense")
        if n >= SEARCHED or form != "2:4, searched"
    ]


def operands(n: int) -> tuple[Any, Any]:
    """``x``, and ``w`` with the two largest of each four."""
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal((n, n), np.float32) for _ in range(2))
    order = np.argsort(-abs(w.reshape(n, n // 4, 4)), axis=-1)
    np.put_along_axis(w.reshape(n, n // 4, 4), order[..., 2:], 0, axis=-1)
    return x.astype(BF16), w.astype(BF16)


async def ours(device: Any, n: int, form: str) -> Run:
    x, w = (device.put(array) for array in operands(n))
    out = await device.empty((n, n), "bf16")
    if form == "dense":
        return Run(lambda: device.blas_lt.matmul(x, w, out=out, transpose_b=True), out.get)
    layer, autotune = await device.sparse_lt.compress(w), form != "2:4"
    return Run(lambda: device.sparse_lt.linear(x, layer, out=out, autotune=autotune), out.get)


def direct(n: int, form: str) -> Run:
    x, w = operands(n)

    def run() -> Any:
        return (x.astype("f4") @ w.astype("f4").T).astype(BF16)

    return Run(run, run)


def raw(cuda: Any, n: int, form: str) -> Run:
    from nvmath.bindings import cusparseLt

    lt: Any = cusparseLt
    x, w = (cuda.put(array.view(np.uint8)) for array in operands(n))
    out, handle = cuda.empty(2 * n * n), lt.init()
    structured = lt.structured_descriptor_init(handle, n, n, n, ALIGNMENT, CODE, ROWS, 0)
    dense = lt.dense_descriptor_init(handle, n, n, n, ALIGNMENT, CODE, COLUMNS)
    size, buffer = lt.sp_mma_compressed_size2(handle, structured)
    compressed = cuda.empty(size)
    lt.sp_mma_compress2(handle, structured, 1, 0, w, compressed, cuda.empty(buffer), cuda.stream)
    product = lt.matmul_descriptor_init(handle, 0, 0, structured, dense, dense, dense, COMPUTE_32F)
    plan = lt.matmul_plan_init(handle, product, lt.matmul_alg_selection_init(handle, product, 0))
    factors, streams = np.array([1, 0], np.float32), np.array([cuda.stream], np.uint64)
    one, where = factors.ctypes.data, streams.ctypes.data
    work = cuda.empty(max(1, lt.matmul_get_workspace(handle, plan)))
    first = (handle, plan, one, compressed, x, one + 4, out, out)
    if form != "2:4":
        lt.matmul_search(*first, work, where, 1)
        work = cuda.empty(max(1, lt.matmul_get_workspace(handle, plan)))

    def enqueue() -> None:
        lt.matmul(*first, work, where, 1)

    enqueue.keeps = factors, streams  # type: ignore[attr-defined] # the call is given their addresses
    return Run(enqueue, lambda: cuda.get(out, (n, n), BF16))


def torch(torch: Any, n: int, form: str) -> Run:
    x, w = (torch.from_numpy(array.view(np.int16)).cuda().view(torch.bfloat16) for array in operands(n))
    layer = w if form == "dense" else torch.sparse.to_sparse_semi_structured(w)

    def run() -> Any:
        return torch.nn.functional.linear(x, layer)

    return Run(run, lambda: run().float().cpu().numpy())


if __name__ == "__main__":
    compare(__doc__, "sparse_lt", problems, Subjects(ours, direct, raw, None, torch))
