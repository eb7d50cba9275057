"""Cost of a fused matrix product: through callboard, called directly, in CuPy and in eager torch.

    python benchmarks/blas_lt.py --json blas_lt.json
    python benchmarks/blas_lt.py --quick --device cpu

A product with bias and GELU in bf16, and one of fp8 factors with scales; the speed is in TFLOP/s, and for fp8 the peak
of an H200 is 1979 (dense). On CUDA the direct call is cuBLASLt through its bindings, with the first algorithm that it
proposes, which is what callboard takes. Extents of 1000, which no tile divides, come twice: with that algorithm, and
with the fastest of eight, which callboard finds when it first meets them (``autotune=8``). CuPy has neither. In torch
the first is ``addmm`` and ``gelu``, one after the other, and the second ``_scaled_mm``. On the CPU the direct call is
NumPy's, epilogue and all.
"""

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
from _maths import Problem, Run, Subjects, compare

BF16, FP8 = np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn)
WORKSPACE = 32 << 20
COMPUTE_32F, REAL_32F = 68, 0  # cublasComputeType_t, cudaDataType
CODES = {BF16: 14, FP8: 28}
GELU_BIAS, TRANSPOSED = 36, 1


def problems(kind: str, quick: bool) -> list[Problem]:
    def gelu(n: int, count: int, bar: float | None, autotune: int = 0) -> Problem:
        work, timed = 2e-12 * n**3, f", autotune {autotune}" if autotune else ""
        settings = {"n": n, "fp8": False, "autotune": autotune}
        return Problem(f"matmul, bias, GELU {n} bf16{timed}", settings, count, bar, work, "TFLOP/s")

    def scaled(n: int, count: int, bar: float | None) -> Problem:
        return Problem(f"matmul {n} fp8", {"n": n, "fp8": True}, count, bar, 2e-12 * n**3, "TFLOP/s")

    if kind == "cpu":
        n = 256 if quick else 512
        return [gelu(n, 10, None), scaled(n, 10, None)]
    odd = [gelu(1000, 2000, None), gelu(1000, 2000, None, autotune=8)]
    return [gelu(4096, 200, 0.97), gelu(1024, 2000, None), *odd, gelu(128, 20_000, None), scaled(8192, 50, 0.97)]


def operands(n: int, fp8: bool) -> tuple[Any, Any, Any]:
    """``a``, ``b`` (transposed where it is fp8, as the tensor cores want it) and a bias."""
    rng = np.random.default_rng(1)
    kind = FP8 if fp8 else BF16
    a, b = (rng.standard_normal((n, n), np.float32).astype(kind) for _ in range(2))
    return a, b, rng.standard_normal(n, np.float32).astype(BF16)


async def ours(device: Any, n: int, fp8: bool, autotune: int = 0) -> Run:
    a, b, bias = (device.put(x) for x in operands(n, fp8))
    out = await device.empty((n, n), "bf16")
    if fp8:
        scale = device.put(np.float32(0.125))
        return Run(lambda: device.blas_lt.matmul(a, b.T, scale_a=scale, scale_b=scale, out=out), out.get)
    return Run(
        lambda: device.blas_lt.matmul(a, b, bias=bias, out=out, epilogue="gelu_bias", autotune=autotune), out.get
    )


def direct(n: int, fp8: bool, autotune: int = 0) -> Run:
    a, b, bias = operands(n, fp8)

    def plain() -> Any:
        return (a.astype("f4") @ b.T.astype("f4") / 64).astype(BF16)

    def fused() -> Any:
        x = a.astype("f4") @ b.astype("f4") + bias.astype("f4")
        return (x / 2 * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x**3)))).astype(BF16)

    run = plain if fp8 else fused
    return Run(run, run)


def raw(cuda: Any, n: int, fp8: bool, autotune: int = 0) -> Run:
    from nvmath.bindings import cublasLt

    lt: Any = cublasLt

    kind = FP8 if fp8 else BF16
    arrays = operands(n, fp8)
    a, b, bias = (cuda.put(x.view(np.uint8)) for x in arrays)
    scale, out = cuda.put(np.full(1, 0.125, np.float32)), cuda.empty(2 * n * n)
    handle, desc = lt.create(), lt.matmul_desc_create(COMPUTE_32F, REAL_32F)
    which = lt.MatmulDescAttribute
    settings = (
        [(which.TRANSA, TRANSPOSED), (which.A_SCALE_POINTER, scale), (which.B_SCALE_POINTER, scale)]
        if fp8
        else [(which.EPILOGUE, GELU_BIAS), (which.BIAS_POINTER, bias)]
    )
    for attribute, value in settings:
        cell = np.array([value], lt.get_matmul_desc_attribute_dtype(attribute))
        lt.matmul_desc_set_attribute(desc, attribute, cell.ctypes.data, cell.itemsize)
    factor = lt.matrix_layout_create(CODES[kind], n, n, n)
    result = lt.matrix_layout_create(CODES[BF16], n, n, n)
    preference, found = lt.matmul_preference_create(), lt.MatmulHeuristicResult(1)
    limit, count = np.array([WORKSPACE], np.uint64), np.zeros(1, np.int32)
    lt.matmul_preference_set_attribute(
        preference, lt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES, limit.ctypes.data, limit.itemsize
    )
    lt.matmul_algo_get_heuristic(
        handle, desc, factor, factor, result, result, preference, 1, found.ptr, count.ctypes.data
    )
    work = cuda.empty(WORKSPACE)
    numbers = (ctypes.c_float * 2)(1.0, 0.0)
    one = ctypes.addressof(numbers)
    first = (handle, desc, one, b, factor, a, factor, one + 4, out, result, out, result, found.ptr)

    def enqueue() -> None:
        lt.matmul(*first, work, WORKSPACE, cuda.stream)

    enqueue.keeps = numbers, found  # type: ignore[attr-defined] # the call is given their addresses
    return Run(enqueue, lambda: cuda.get(out, (n, n), BF16))


def torch(torch: Any, n: int, fp8: bool, autotune: int = 0) -> Run:
    kinds = (torch.float8_e4m3fn if fp8 else torch.bfloat16,) * 2 + (torch.bfloat16,)
    a, b, bias = (
        torch.from_numpy(x.view(f"i{x.itemsize}")).cuda().view(k) for x, k in zip(operands(n, fp8), kinds, strict=True)
    )
    scale = torch.tensor(0.125, device="cuda")

    def run() -> Any:
        if fp8:
            return torch._scaled_mm(a, b.t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)
        return torch.nn.functional.gelu(torch.addmm(bias, a, b), approximate="tanh")

    return Run(run, lambda: run().float().cpu().numpy())


if __name__ == "__main__":
    compare(__doc__, "blas_lt", problems, Subjects(ours, direct, raw, None, torch))
