"""Cost of a convolution with bias and ReLU: by CUTLASS's template, by patches, by ``dev.dnn``, and by eager torch.

    python benchmarks/cutlass_convolutions.py --json cutlass_convolutions.json
    python benchmarks/cutlass_convolutions.py --quick --device cpu

torch's two calls are cuDNN's, in NHWC. Bar: the template takes no longer. On the CPU the direct call is NumPy's. On
CUDA, compile the templates before: ``callboard cutlass prebuild bf16 bias relu --conv fprop``.
"""

from typing import Any

import ml_dtypes
import numpy as np
from _maths import Problem, Run, Subjects, compare

import callboard as cb

BF16 = np.dtype(ml_dtypes.bfloat16)
SIDE = 56
"""Height and width of the images."""
TREE = cb.EpilogueVisitorTree().bias().relu()


def problems(kind: str, quick: bool) -> list[Problem]:
    if kind == "cpu":
        return [convolution("template", 2, 16, 10, None)]
    return [
        convolution("template", 32, 128, 500, 1.0),
        convolution("patches", 32, 128, 100, None),
        convolution("dnn", 32, 128, 500, None),
    ]


def convolution(form: str, m: int, n: int, count: int, bar: float | None) -> Problem:
    """``m`` images with ``n`` channels, and as many filters."""
    title = f"convolution, bias, ReLU {m}x{SIDE}x{SIDE}x{n}, {n} of 3x3 bf16, {form}"
    work = 2e-12 * m * SIDE * SIDE * 9 * n * n
    given = {"form": form, "m": m, "n": n}
    return Problem(title, given, count, bar, work, "TFLOP/s", "torch" if bar else None, ("raw",))


def operands(m: int, n: int) -> tuple[Any, Any, Any]:
    """Images, filters and the bias."""
    rng = np.random.default_rng(1)
    shapes = (m, SIDE, SIDE, n), (n, 3, 3, n), (n,)
    x, w, bias = (rng.standard_normal(shape, np.float32).astype(BF16) for shape in shapes)
    return x, w, bias


async def ours(device: Any, form: str, m: int, n: int) -> Run:
    x, w, bias = (device.put(each) for each in operands(m, n))
    out = await device.empty((m, SIDE, SIDE, n), "bf16")
    if form == "dnn":
        settings: Any = {"padding": 1, "bias": bias, "activation": "relu", "layout": "NHWC", "autotune": True}
        return Run(lambda: device.dnn.conv(x, w, out=out, **settings), out.get)
    settings = {"padding": 1, "bias": bias, "epilogue": TREE}
    settings["engine"] = "cutlass" if form == "template" else "vendor"
    return Run(lambda: device.cutlass.conv(x, w, out=out, **settings), out.get)


def direct(form: str, m: int, n: int) -> Run:
    x, w, bias = operands(m, n)

    def run() -> Any:
        padded = np.pad(x.astype("f4"), ((0, 0), (1, 1), (1, 1), (0, 0)))
        places = [(r, s) for r in range(3) for s in range(3)]
        sums = sum(padded[:, r : r + SIDE, s : s + SIDE] @ w[:, r, s].astype("f4").T for r, s in places)
        return np.maximum(sums + bias.astype("f4"), 0).astype(BF16)

    return Run(run, run)


def torch(torch: Any, form: str, m: int, n: int) -> Run:
    torch.backends.cudnn.benchmark = True
    a, b, bias = (torch.from_numpy(each.view("i2")).cuda().view(torch.bfloat16) for each in operands(m, n))
    x, w = (one.permute(0, 3, 1, 2) for one in (a, b))  # channels_last

    def run() -> Any:
        return torch.relu(torch.nn.functional.conv2d(x, w, bias, padding=1))

    return Run(run, lambda: run().permute(0, 2, 3, 1).float().cpu().numpy())


def raw(cuda: Any, form: str, m: int, n: int) -> Run:
    raise NotImplementedError("cuDNN is called by dev.dnn and by torch")


if __name__ == "__main__":
    compare(__doc__, "cutlass", problems, Subjects(ours, direct, raw, None, torch), name="cutlass_convolutions")
