"""Cost of array namespace calls in user code: callboard, NumPy, CuPy and eager torch.

    python benchmarks/arrays.py --json arrays.json
    python benchmarks/arrays.py --quick --device cpu

Every subject makes its result anew. The calls of one expression are fused by callboard (``fuse``), so the raw call on
CUDA is a copy of as many bytes as one kernel has to move that reads the operands once and writes the result once;
softmax reads its operand three times. On CUDA the bars are 0.9 of that copy for ``a * x + y`` and softmax over rows,
twice eager torch for the chain of four, and CuPy's calls per second for 1,000 elements; on the CPU 1.15 times NumPy's
time, and 1.5 times its speed for the chain of four.
"""

from typing import Any, NamedTuple

import numpy as np
from _maths import Problem, Run, Subjects, compare

PERIOD = 65_521


class Case(NamedTuple):
    """Calls in the words of the standard, of ``xp``, ``x`` and ``y``; torch has its own where those differ.

    Attributes:
        text: In the standard's words.
        torch: In torch's, where they differ.
        passes: Arrays of the size of ``x`` that are read and written at least.
    """

    text: str
    torch: str = ""
    passes: int = 3


SOFTMAX = "(lambda e: e / xp.sum(e, axis=1, keepdims=True))(xp.exp(x - xp.max(x, axis=1, keepdims=True)))"
SOFTMAX_TORCH = "(lambda e: e / e.sum(1, keepdim=True))((x - x.amax(1, keepdim=True)).exp())"
CASES = {
    "a * x + y": Case("2.5 * x + y"),
    "chain of four": Case("xp.sqrt(x * x + y * y) * 0.5"),
    "softmax": Case(SOFTMAX, SOFTMAX_TORCH, passes=4),
    "sum of squares": Case("xp.sum((x - y) * (x - y))", "((x - y) * (x - y)).sum()", passes=2),
    "add": Case("x + y"),
}


def problems(kind: str, quick: bool) -> list[Problem]:
    side = 1000 if quick else 3162 if kind == "cpu" else 8192
    cpu = {
        "a * x + y": 1 / 1.15,
        "chain of four": 1.5,
        "softmax": 1 / 1.15,
        "sum of squares": 1 / 1.15,
        "add": 1 / 1.15,
    }
    cuda = {"a * x + y": ("raw", 0.9), "softmax": ("raw", 0.9), "chain of four": ("torch", 2.0)}
    found = []
    for name in CASES:
        base, bar = ("direct", cpu[name]) if kind == "cpu" else cuda.get(name, ("cupy", None))
        found.append(problem(name, [side, side], 20 if kind == "cpu" else 50, base, None if quick else bar))
    small = None if quick or kind == "cpu" else 1.0
    base = "direct" if kind == "cpu" else "cupy"
    return [*found, *(problem(name, [1000], 1000, base, small) for name in ("add", "chain of four"))]


def problem(name: str, shape: list[int], count: int, base: str, bar: float | None) -> Problem:
    work = CASES[name].passes * 4e-9 * float(np.prod(shape))
    without = () if len(shape) > 1 else ("raw",)
    title = f"{name}, {'x'.join(map(str, shape))} f32"
    return Problem(title, {"name": name, "shape": shape}, count, bar, work, "GB/s", base=base, without=without)


def operands(shape: list[int]) -> list[Any]:
    rng = np.random.default_rng(1)
    # Repeated after a prime number of elements: to draw all of them would take longer than what is measured.
    return [np.resize(rng.random(PERIOD, dtype=np.float32) + 0.5, shape) for _ in "xy"]


def evaluated(text: str, xp: Any, arrays: list[Any]) -> Any:
    code = compile(text, "benchmark", "eval")
    names = {"xp": xp, **dict(zip("xy", arrays, strict=True))}
    return lambda: eval(code, names)


async def ours(device: Any, name: str, shape: list[int]) -> Run:
    call = evaluated(CASES[name].text, device.xp, [device.put(x) for x in operands(shape)])
    found = await call()

    def run() -> Any:
        made = call()
        made.done()  # has it computed: dropped as it is, it would not be
        return made

    return Run(run, found.get)


def direct(name: str, shape: list[int]) -> Run:
    call = evaluated(CASES[name].text, np, operands(shape))
    return Run(call, call)


def raw(cuda: Any, name: str, shape: list[int]) -> Run:
    from cuda.bindings import runtime

    half = 4 * int(np.prod(shape)) * CASES[name].passes // 2
    src, out = cuda.empty(half), cuda.empty(half)
    kind = runtime.cudaMemcpyKind.cudaMemcpyDeviceToDevice
    return Run(lambda: runtime.cudaMemcpyAsync(out, src, half, kind, cuda.stream))


def cupy(cupy: Any, name: str, shape: list[int]) -> Run:
    call = evaluated(CASES[name].text, cupy, [cupy.asarray(x) for x in operands(shape)])
    return Run(call, lambda: call().get())


def torch(torch: Any, name: str, shape: list[int]) -> Run:
    case = CASES[name]
    arrays = [torch.from_numpy(x).cuda() for x in operands(shape)]
    call = evaluated(case.torch or case.text, torch, arrays)
    return Run(call, lambda: call().cpu().numpy())


if __name__ == "__main__":
    compare(__doc__, "elementwise", problems, Subjects(ours, direct, raw, cupy, torch), name="arrays")
