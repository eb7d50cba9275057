"""Cost of products with epilogues and of grouped products: callboard's templates, cuBLASLt, and eager torch.

    python benchmarks/cutlass.py --json cutlass.json
    python benchmarks/cutlass.py --quick --device cpu

A product with bias and ReLU, which cuBLASLt has too, is compared with cuBLASLt called directly; a product whose SiLU is
gated by a residual, which only a template fuses, with torch's calls one after the other; groups of rows, as a mixture
of experts has them, with ``torch._grouped_mm``; a convolution with bias and ReLU, by its template, by patches and by
``dev.dnn``, with torch's two calls, which are cuDNN's, in NHWC. Bars: 0.95 of cuBLASLt, 1.3 of several calls, 1.0 of
torch's groups and convolutions. On the CPU the direct call is NumPy's. On CUDA, compile the templates before, or there
is nothing to choose from: ``callboard cutlass prebuild bf16 bias relu``, ``bf16 silu gate``, ``bf16 --groups``,
``bf16 bias relu --conv fprop``.
"""

from typing import Any

import ml_dtypes
import numpy as np
from _maths import Problem, Run, Subjects, compare

import callboard as cb

BF16 = np.dtype(ml_dtypes.bfloat16)
SHARES = (5, 1, 0, 3, 2, 2, 1, 2)
"""Of the rows, for each of eight groups, in sixteenths."""
SIDE = 56
"""Height and width of the images of a convolution."""
CONVOLUTIONS = ("conv", "patches", "dnn")
"""Forms that are the same convolution, by the template, by patches, by ``dev.dnn``."""
TREES = {"bias": cb.EpilogueVisitorTree().bias().relu(), "gated": cb.EpilogueVisitorTree().silu().gate("gate", None)}


def problems(kind: str, quick: bool) -> list[Problem]:
    def one(name: str, what: str, m: int, n: int, count: int, bar: float, base: str) -> Problem:
        work = 2e-12 * m * n * n
        without = ("torch",) if base == "raw" else ("raw",)
        on_cpu = kind == "cpu"
        return Problem(
            f"{name} {m}x{n}x{n} bf16",
            {"form": what, "m": m, "n": n},
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
            convolution("template", "conv", 2, 16, 10, None),
        ]
    return [
        one("bias, ReLU", "bias", 4096, 4096, 200, 0.95, "raw"),
        one("SiLU, gate", "gated", 4096, 4096, 200, 1.3, "torch"),
        one("groups", "groups", 16384, 2048, 200, 1.0, "torch"),
        one("groups", "groups", 2048, 2048, 500, 1.0, "torch"),
        convolution("template", "conv", 32, 128, 500, 1.0),
        convolution("patches", "patches", 32, 128, 100, None),
        convolution("dev.dnn", "dnn", 32, 128, 500, None),
    ]


def convolution(name: str, form: str, m: int, n: int, count: int, bar: float | None) -> Problem:
    """``m`` images with ``n`` channels, and as many filters."""
    title = f"convolution, bias, ReLU {m}x{SIDE}x{SIDE}x{n}, {n} of 3x3 bf16, {name}"
    work = 2e-12 * m * SIDE * SIDE * 9 * n * n
    return Problem(
        title, {"form": form, "m": m, "n": n}, count, bar, work, "TFLOP/s", "torch" if bar else None, ("raw",)
    )


def operands(form: str, m: int, n: int) -> tuple[Any, Any, Any]:
    """``a``, ``b`` (one for each group) and the bias or the gate."""
    rng = np.random.default_rng(1)
    if form in CONVOLUTIONS:
        shapes = (m, SIDE, SIDE, n), (n, 3, 3, n), (n,)
        x, w, bias = (rng.standard_normal(shape, np.float32).astype(BF16) for shape in shapes)
        return x, w, bias
    a = rng.standard_normal((m, n), np.float32).astype(BF16)
    b = rng.standard_normal((len(SHARES), n, n) if form == "groups" else (n, n), np.float32).astype(BF16)
    beside = rng.standard_normal((m, n) if form == "gated" else n, np.float32).astype(BF16)
    return a, b, beside


def offsets_of(m: int) -> Any:
    return (np.cumsum([0, *SHARES]) * m // sum(SHARES)).astype(np.int32)


async def ours(device: Any, form: str, m: int, n: int) -> Run:
    a, b, beside = (device.put(x) for x in operands(form, m, n))
    if form in CONVOLUTIONS:
        out = await device.empty((m, SIDE, SIDE, n), "bf16")
        if form == "dnn":
            settings: Any = {"padding": 1, "bias": beside, "activation": "relu", "layout": "NHWC", "autotune": True}
            return Run(lambda: device.dnn.conv(a, b, out=out, **settings), out.get)
        settings = {"padding": 1, "bias": beside, "epilogue": TREES["bias"]}
        settings["engine"] = "cutlass" if form == "conv" else "vendor"
        return Run(lambda: device.cutlass.conv(a, b, out=out, **settings), out.get)
    out = await device.empty((m, n), "bf16")
    if form == "groups":
        offsets = device.put(offsets_of(m))
        return Run(lambda: device.cutlass.grouped_gemm(a, b, offsets, out=out, engine="cutlass"), out.get)
    array = {"bias" if form == "bias" else "gate": beside}
    return Run(lambda: device.cutlass.gemm(a, b, epilogue=TREES[form], out=out, engine="cutlass", **array), out.get)


def direct(form: str, m: int, n: int) -> Run:
    a, b, beside = operands(form, m, n)
    starts = offsets_of(m)

    def run() -> Any:
        wide = a.astype("f4")
        if form in CONVOLUTIONS:
            padded = np.pad(wide, ((0, 0), (1, 1), (1, 1), (0, 0)))
            places = [(r, s) for r in range(3) for s in range(3)]
            sums = sum(padded[:, r : r + SIDE, s : s + SIDE] @ b[:, r, s].astype("f4").T for r, s in places)
            return np.maximum(sums + beside.astype("f4"), 0).astype(BF16)
        if form == "groups":
            parts = [wide[i:j] @ w.astype("f4") for i, j, w in zip(starts, starts[1:], b, strict=False)]
            return np.concatenate(parts).astype(BF16)
        x = wide @ b.astype("f4")
        if form == "bias":
            return np.maximum(x + beside.astype("f4"), 0).astype(BF16)
        return (x / (1 + np.exp(-x)) * beside.astype("f4")).astype(BF16)

    return Run(run, run)


def raw(cuda: Any, form: str, m: int, n: int) -> Run:
    from nvmath.bindings import cublasLt

    lt: Any = cublasLt
    a, b, bias = (cuda.put(x.view(np.uint8)) for x in operands(form, m, n))
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


def torch(torch: Any, form: str, m: int, n: int) -> Run:
    a, b, beside = (torch.from_numpy(x.view("i2")).cuda().view(torch.bfloat16) for x in operands(form, m, n))
    ends = torch.from_numpy(offsets_of(m)[1:]).cuda()
    if form in CONVOLUTIONS:
        torch.backends.cudnn.benchmark = True
        x, w = (one.permute(0, 3, 1, 2) for one in (a, b))  # channels_last

        def convolve() -> Any:
            return torch.relu(torch.nn.functional.conv2d(x, w, beside, padding=1))

        return Run(convolve, lambda: convolve().permute(0, 2, 3, 1).float().cpu().numpy())

    def run() -> Any:
        if form == "groups":
            return torch._grouped_mm(a, b, offs=ends)
        if form == "bias":
            return torch.relu(torch.addmm(beside, a, b))
        return torch.nn.functional.silu(a @ b) * beside

    return Run(run, lambda: run().float().cpu().numpy())


if __name__ == "__main__":
    compare(__doc__, "cutlass", problems, Subjects(ours, direct, raw, None, torch))
