"""Products that cuBLASLt has too, by callboard's templates: fp8 with scales of blocks, TF32, i8, a long inner axis.

    python benchmarks/cutlass_factors.py --json cutlass_factors.json
    python benchmarks/cutlass_factors.py --quick --device cpu

The bars are 0.95 of cuBLASLt called directly, and of torch with ``allow_tf32`` for TF32. On the CPU the direct call is
NumPy's. On CUDA, compile the templates before, or there is nothing to choose from: ``callboard cutlass prebuild
f8_e4m3 --transposed b --scales block_2d``, ``f32 --transposed b``, ``i8 --transposed b``, ``bf16 --long``.
"""

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from _maths import Problem, Run, Subjects, compare

BF16, FP8 = np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn)
BLOCK = 128


class Form(NamedTuple):
    """A kind of product; numbers of cuBLASLt are enumerators of its headers.

    Attributes:
        factor, result: Dtypes.
        turned: ``b`` is column-major.
        types: ``cudaDataType`` of factors and result.
        compute, scale: ``cublasComputeType_t``, and the type of alpha and beta.
        settings: Of ``dev.cutlass.gemm``.
    """

    factor: Any
    result: Any
    turned: bool
    types: tuple[int, int]
    compute: int = 68
    scale: int = 0
    settings: tuple[tuple[str, Any], ...] = ()


FORMS = {
    "fp8, blocks": Form(FP8, BF16, True, (28, 14)),
    "tf32": Form(np.dtype("f4"), np.dtype("f4"), True, (0, 0), 77, settings=(("tf32", True),)),
    "i8": Form(np.dtype("i1"), np.dtype("i4"), True, (3, 10), 72, 10),
    "bf16": Form(BF16, BF16, False, (14, 14)),
}


def problems(kind: str, quick: bool) -> list[Problem]:
    def one(form: str, m: int, n: int, k: int, count: int, base: str, *without: str) -> Problem:
        settings = {"form": form, "m": m, "n": n, "k": k}
        title, work = f"{form} {m}x{n}x{k}", 2e-12 * m * n * k
        if kind == "cpu":
            return Problem(title, settings, count, None, work, "TFLOP/s")
        return Problem(title, settings, count, 0.95, work, "TFLOP/s", base, without)

    if kind == "cpu":
        size = 128 if quick else 256
        return [one(form, size, size, size, 10, "") for form in FORMS]
    return [
        one("fp8, blocks", 4096, 4096, 4096, 300, "raw", "torch"),
        one("fp8, blocks", 2048, 8192, 4096, 300, "raw", "torch"),
        one("tf32", 4096, 4096, 4096, 100, "torch"),
        one("i8", 4096, 4096, 4096, 300, "raw", "torch"),
        one("bf16", 512, 512, 32768, 500, "raw"),
    ]


def operands(form: str, m: int, n: int, k: int) -> list[Any]:
    """``a``, and ``b`` as it lies in memory."""
    rng, dtype = np.random.default_rng(1), FORMS[form].factor
    shapes = (m, k), (n, k) if FORMS[form].turned else (k, n)
    if dtype == np.int8:
        return [rng.integers(-100, 101, shape).astype(dtype) for shape in shapes]
    return [rng.standard_normal(shape, np.float32).astype(dtype) for shape in shapes]


def scales(m: int, n: int, k: int) -> list[Any]:
    """Of 1x128 elements of ``a`` as ``[k / 128, m]``, and of 128x128 of ``b`` as ``[n / 128, k / 128]``."""
    rng, blocks = np.random.default_rng(2), k // BLOCK
    return [rng.uniform(0.5, 1.5, shape).astype(np.float32) for shape in ((blocks, m), (n // BLOCK, blocks))]


async def ours(device: Any, form: str, m: int, n: int, k: int) -> Run:
    chosen = FORMS[form]
    a, b = (device.put(x) for x in operands(form, m, n, k))
    given: dict[str, Any] = dict(chosen.settings)
    if form == "fp8, blocks":
        given["scale_a"], given["scale_b"] = (device.put(x).T for x in scales(m, n, k))
    factor = b.T if chosen.turned else b
    out = await device.empty((m, n), chosen.result)
    return Run(lambda: device.cutlass.gemm(a, factor, out=out, engine="cutlass", **given), out.get)


def direct(form: str, m: int, n: int, k: int) -> Run:
    a, b = operands(form, m, n, k)
    chosen = FORMS[form]

    def run() -> Any:
        wide = np.float64 if chosen.factor == np.int8 else np.float32
        x, y = a.astype(wide), (b.T if chosen.turned else b).astype(wide)
        if form == "fp8, blocks":
            of_a, of_b = scales(m, n, k)
            x = x * np.repeat(of_a.T, BLOCK, axis=1)
            y = y * np.repeat(np.repeat(of_b.T, BLOCK, axis=0), BLOCK, axis=1)
        return (x @ y).astype(chosen.result)

    return Run(run, run)


def raw(cuda: Any, form: str, m: int, n: int, k: int) -> Run:
    from nvmath.bindings import cublasLt

    lt: Any = cublasLt
    chosen = FORMS[form]
    a, b = (cuda.put(x.view(np.uint8)) for x in operands(form, m, n, k))
    out = cuda.empty(chosen.result.itemsize * m * n)
    handle, desc = lt.create(), lt.matmul_desc_create(chosen.compute, chosen.scale)
    attributes = [("TRANSA", int(chosen.turned))]
    if form == "fp8, blocks":
        of_a, of_b = (cuda.put(x.view(np.uint8)) for x in scales(m, n, k))
        attributes += [("A_SCALE_MODE", 5), ("B_SCALE_MODE", 4)]  # its A is b: it computes the transposed product
        attributes += [("A_SCALE_POINTER", of_b), ("B_SCALE_POINTER", of_a)]
    for name, value in attributes:
        attribute = lt.MatmulDescAttribute[name]
        cell = np.array([value], lt.get_matmul_desc_attribute_dtype(attribute))
        lt.matmul_desc_set_attribute(desc, attribute, cell.ctypes.data, cell.itemsize)
    factor, result = chosen.types
    weights = lt.matrix_layout_create(factor, *((k, n, k) if chosen.turned else (n, k, n)))
    left, product = lt.matrix_layout_create(factor, k, m, k), lt.matrix_layout_create(result, n, m, n)
    preference, found = lt.matmul_preference_create(), lt.MatmulHeuristicResult(1)
    limit, count = np.array([32 << 20], np.uint64), np.zeros(1, np.int32)
    lt.matmul_preference_set_attribute(
        preference, lt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES, limit.ctypes.data, limit.itemsize
    )
    lt.matmul_algo_get_heuristic(
        handle, desc, weights, left, product, product, preference, 1, found.ptr, count.ctypes.data
    )
    if not count[0]:
        raise RuntimeError(f"cuBLASLt has no algorithm for {form}")
    work = cuda.empty(32 << 20)
    numbers = np.array([1, 0], np.int32 if chosen.scale else np.float32)
    one, zero = numbers.ctypes.data, numbers.ctypes.data + 4

    def enqueue() -> None:
        lt.matmul(
            *(handle, desc, one, b, weights, a, left, zero, out, product, out, product),
            *(found.ptr, work, 32 << 20, cuda.stream),
        )

    enqueue.keeps = numbers, found  # type: ignore[attr-defined] # the call is given their addresses
    return Run(enqueue, lambda: cuda.get(out, (m, n), chosen.result))


def torch(torch: Any, form: str, m: int, n: int, k: int) -> Run:
    torch.backends.cuda.matmul.allow_tf32 = True
    given = operands(form, m, n, k)
    if form == "bf16":
        a, b = (torch.from_numpy(x.view("i2")).cuda().view(torch.bfloat16) for x in given)
    else:
        a, b = (torch.from_numpy(x).cuda() for x in given)
    factor = b.T if FORMS[form].turned else b
    return Run(lambda: a @ factor, lambda: (a @ factor).float().cpu().numpy())


if __name__ == "__main__":
    compare(__doc__, "cutlass", problems, Subjects(ours, direct, raw, None, torch), name="cutlass_factors")
