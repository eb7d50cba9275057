"""Cost of products with epilogues and of grouped products: callboard's templates, cuBLASLt, and eager torch.

    python benchmarks/cutlass.py --json cutlass.json
    python benchmarks/cutlass.py --quick --device cpu

A product with bias and ReLU, which cuBLASLt has too, is compared with cuBLASLt called directly; a product whose SiLU is
gated by a residual, which only a template fuses, with torch's calls one after the other; groups of rows, as a mixture
of experts has them (many rows in a group, few as in decoding, and with a gate), with ``torch._grouped_mm``. Bars: 0.95
of cuBLASLt, 1.3 of several calls, 1.0 of torch's groups. On the CPU the direct call is NumPy's. On CUDA, compile the
templates before, or there is nothing to choose from: ``callboard cutlass prebuild bf16 bias relu``, ``bf16 silu gate``,
``bf16 --groups``, ``bf16 silu gate --groups``.
"""

from typing import Any

import ml_dtypes
import numpy as np
from _maths import Problem, Run, Subjects, compare

import callboard as cb

BF16 = np.dtype(ml_dtypes.bfloat16)
SHARES = (5, 1, 0, 3, 2, 2, 1, 2)
"""Of the rows, for each of eight groups, in sixteenths."""
FEW = ((8, 1), (8, 16), (32, 4), (64, 1), (64, 16))
"""Groups, and rows of each, as they are when a mixture of experts decodes."""
GROUPED = ("groups", "experts")
TREES = {"bias": cb.EpilogueVisitorTree().bias().relu(), "gated": cb.EpilogueVisitorTree().silu().gate("gate", None)}


def problems(kind: str, quick: bool) -> list[Problem]:
    def one(
        name: str, what: str, m: int, n: int, count: int, bar: float, base: str, k: int = 0, groups: int = 0
    ) -> Problem:
        k = k or n
        work = 2e-12 * m * n * k
        without = ("torch",) if base == "raw" else ("raw",)
        on_cpu = kind == "cpu"
        return Problem(
            f"{name} {m}x{n}x{k} bf16",
            {"form": what, "m": m, "n": n, "k": k, "groups": groups},
            count,
            None if on_cpu else bar,
            work,
            "TFLOP/s",
            None if on_cpu else base,
            () if on_cpu else without,
        )

    if kind == "cpu":
        m = n = 128 if quick else 256
        return [
            one("bias, ReLU", "bias", m, n, 10, 0, ""),
            one("SiLU, gate", "gated", m, n, 10, 0, ""),
            one("groups", "groups", m, n, 10, 0, ""),
            one("groups, SiLU, gate", "experts", m, n, 10, 0, ""),
            one("8 equal groups", "groups", 16, n, 10, 0, "", 2 * n, 8),
        ]
    return [
        one("bias, ReLU", "bias", 4096, 4096, 200, 0.95, "raw"),
        one("SiLU, gate", "gated", 4096, 4096, 200, 1.3, "torch"),
        one("groups", "groups", 16384, 2048, 200, 1.0, "torch"),
        one("groups", "groups", 2048, 2048, 500, 1.0, "torch"),
        one("groups, SiLU, gate", "experts", 16384, 2048, 200, 1.0, "torch"),
        *(
            one(f"{groups} equal groups", "groups", groups * rows, 2048, 500, 1.0, "torch", 4096, groups)
            for groups, rows in FEW
        ),
    ]


def operands(form: str, m: int, n: int, k: int, groups: int) -> tuple[Any, Any, Any]:
    """``a``, ``b`` (one for each group) and the bias or the gate."""
    rng = np.random.default_rng(1)
    a = rng.standard_normal((m, k), np.float32).astype(BF16)
    b = rng.standard_normal((len(SHARES), k, n) if form in GROUPED else (k, n), np.float32).astype(BF16)
    b = np.tile(b, (groups // len(SHARES), 1, 1)) if groups else b
    beside = rng.standard_normal((m, n) if form in ("gated", "experts") else n, np.float32).astype(BF16)
    return a, b, beside


def offsets_of(m: int, groups: int) -> Any:
    """Ragged groups; equal ones if there is a number of them."""
    if groups:
        return np.arange(0, m + 1, m // groups, dtype=np.int32)
    return (np.cumsum([0, *SHARES]) * m // sum(SHARES)).astype(np.int32)


async def ours(device: Any, form: str, m: int, n: int, k: int, groups: int) -> Run:
    a, b, beside = (device.put(x) for x in operands(form, m, n, k, groups))
    out = await device.empty((m, n), "bf16")
    if form in GROUPED:
        offsets = device.put(offsets_of(m, groups))
        gate = {"epilogue": TREES["gated"], "gate": beside} if form == "experts" else {}
        return Run(lambda: device.cutlass.grouped_gemm(a, b, offsets, out=out, **gate), out.get)
    array = {"bias" if form == "bias" else "gate": beside}
    return Run(lambda: device.cutlass.gemm(a, b, epilogue=TREES[form], out=out, engine="cutlass", **array), out.get)


def direct(form: str, m: int, n: int, k: int, groups: int) -> Run:
    a, b, beside = operands(form, m, n, k, groups)
    starts = offsets_of(m, groups)

    def run() -> Any:
        wide = a.astype("f4")
        if form in GROUPED:
            x = np.concatenate([wide[i:j] @ w.astype("f4") for i, j, w in zip(starts, starts[1:], b, strict=False)])
            if form == "groups":
                return x.astype(BF16)
        else:
            x = wide @ b.astype("f4")
        if form == "bias":
            return np.maximum(x + beside.astype("f4"), 0).astype(BF16)
        return (x / (1 + np.exp(-x)) * beside.astype("f4")).astype(BF16)

    return Run(run, run)


def raw(cuda: Any, form: str, m: int, n: int, k: int, groups: int) -> Run:
    from nvmath.bindings import cublasLt

    lt: Any = cublasLt
    a, b, bias = (cuda.put(x.view(np.uint8)) for x in operands(form, m, n, k, groups))
    out = cuda.empty(2 * m * n)
    handle, desc = lt.create(), lt.matmul_desc_create(68, 0)  # sums and factors of f32
    for attribute, value in ((lt.MatmulDescAttribute.EPILOGUE, 6), (lt.MatmulDescAttribute.BIAS_POINTER, bias)):
        cell = np.array([value], lt.get_matmul_desc_attribute_dtype(attribute))
        lt.matmul_desc_set_attribute(desc, attribute, cell.ctypes.data, cell.itemsize)
    weights, left = lt.matrix_layout_create(14, n, n, n), lt.matrix_layout_create(14, n, m, n)
    preference, found = lt.matmul_preference_create(), lt.MatmulHeuristicResult(1)
    limit, count = np.array([32 << 20], np.uint64), np.zeros(1, np.int32)
    lt.matmul_preference_set_attribute(
        preference, lt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES, limit.ctypes.data, limit.itemsize
    )
    lt.matmul_algo_get_heuristic(handle, desc, weights, left, left, left, preference, 1, found.ptr, count.ctypes.data)
    work = cuda.empty(32 << 20)
    numbers = np.array([1, 0], np.float32)
    one, zero = numbers.ctypes.data, numbers.ctypes.data + 4

    def enqueue() -> None:
        lt.matmul(
            handle, desc, one, b, weights, a, left, zero, out, left, out, left, found.ptr, work, 32 << 20, cuda.stream
        )

    enqueue.keeps = numbers, found  # type: ignore[attr-defined] # the call is given their addresses
    return Run(enqueue, lambda: cuda.get(out, (m, n), BF16))


def torch(torch: Any, form: str, m: int, n: int, k: int, groups: int) -> Run:
    given = operands(form, m, n, k, groups)
    a, b, beside = (torch.from_numpy(x.view("i2")).cuda().view(torch.bfloat16) for x in given)
    ends = torch.from_numpy(offsets_of(m, groups)[1:]).cuda()

    def run() -> Any:
        if form == "groups":
            return torch._grouped_mm(a, b, offs=ends)
        if form == "experts":
            return torch.nn.functional.silu(torch._grouped_mm(a, b, offs=ends)) * beside
        if form == "bias":
            return torch.relu(torch.addmm(beside, a, b))
        return torch.nn.functional.silu(a @ b) * beside

    return Run(run, lambda: run().float().cpu().numpy())


if __name__ == "__main__":
    compare(__doc__, "cutlass", problems, Subjects(ours, direct, raw, None, torch))
