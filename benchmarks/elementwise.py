"""Cost of expressions and reductions: through callboard, in NumPy, CuPy and eager torch, and of a copy.

    python benchmarks/elementwise.py --json elementwise.json
    python benchmarks/elementwise.py --quick --device cpu

From arrays to an array made ahead (callboard; the others make theirs, but for CuPy's kernels). On the CPU the direct
call is NumPy's own expression, and the bar is 0.9 of its speed, 1.5 for chains of four operations. On CUDA the raw call
is ``cudaMemcpyAsync`` of as many bytes as the expression reads and writes together, where that is a fair measure; CuPy
has ``ElementwiseKernel``, fused, for expressions, and its own functions for reductions. 10⁸ elements of f32 on CUDA.
"""

from typing import Any, NamedTuple

import numpy as np
from _maths import Problem, Run, Subjects, compare

import callboard as cb

PERIOD = 65_521


class Case(NamedTuple):
    """An expression in the words of each subject.

    Attributes:
        text: Callboard's, of ``x`` and ``y``.
        numpy: Of ``np``, ``x`` and ``y``; CuPy and torch read it, too.
        kernel: CuPy's ``ElementwiseKernel`` of ``x``, ``y`` and ``z``; ``""`` for a reduction.
        axis: Of a reduction.
        passes: Elements read and written for each element of ``x``.
    """

    text: str
    numpy: str
    kernel: str = ""
    axis: int | None = None
    passes: int = 3


CASES = {
    "add": Case("x + y", "np.add(x, y)", "z = x + y"),
    "axpy": Case("2.5 * x + y", "2.5 * x + y", "z = 2.5f * x + y"),
    "chain of four": Case(
        "sqrt(x * x + y * y) * 0.5", "np.sqrt(x * x + y * y) * 0.5", "z = sqrtf(x * x + y * y) * 0.5f"
    ),
    "max": Case("2 * x + max(y, 0.5)", "2 * x + y.clip(0.5)", "z = 2 * x + max(y, 0.5f)"),
    "exp": Case("exp(-x) * y", "np.exp(-x) * y", "z = expf(-x) * y"),
    "where": Case("where(x > y, x, y) * 2", "np.where(x > y, x, y) * 2", "z = (x > y ? x : y) * 2"),
    "transposed": Case("x + y", "x + y.T", "z = x + y"),
    "sum": Case("sum(x)", "x.sum()", passes=1),
    "dot": Case("sum(x * y)", "(x * y).sum()", passes=2),
    "sum of columns": Case("sum(x)", "x.sum(0)", axis=0, passes=1),
    "sum of rows": Case("sum(x * x)", "(x * x).sum(1)", axis=1, passes=1),
    "argmax of rows": Case("argmax(x)", "x.argmax(1)", axis=1, passes=1),
}


def problems(kind: str, quick: bool) -> list[Problem]:
    many = 10**6 if quick else 10**7 if kind == "cpu" else 10**8
    side = int(many**0.5)
    found = []
    for name in CASES:
        shape = (
            [many] if name in ("add", "axpy", "chain of four", "max", "exp", "where", "sum", "dot") else [side, side]
        )
        bar = None if quick or kind != "cpu" else 1.5 if name == "chain of four" else 0.9
        found.append(problem(name, shape, kind, 20 if many < 10**8 else 50, bar))
    return [*found, problem("axpy", [1000], kind, 500)]


def problem(name: str, shape: list[int], kind: str, count: int, bar: float | None = None) -> Problem:
    case = CASES[name]
    work = case.passes * 4e-9 * float(np.prod(shape))
    return Problem(
        f"{name}, {'x'.join(map(str, shape))} f32",
        {"name": name, "shape": shape},
        count,
        bar,
        work,
        "GB/s",
        without=("raw",) if case.axis is not None or case.passes < 3 else (),
        base="direct" if kind == "cpu" else "cupy",
    )


def operands(name: str, shape: list[int]) -> list[Any]:
    rng = np.random.default_rng(1)
    # Repeated after a prime number of elements: to draw all of them would take longer than what is measured.
    arrays = [np.resize(rng.random(PERIOD, dtype=np.float32), shape) for _ in "xy"]
    return arrays if "y" in CASES[name].text else arrays[:1]


async def ours(device: Any, name: str, shape: list[int]) -> Run:
    case = CASES[name]
    arrays = [device.put(x) for x in operands(name, shape)]
    if name == "transposed":
        arrays[1] = arrays[1].T
    call: Any = cb.elementwise(case.text) if case.kernel else cb.reduction(case.text, axis=case.axis)
    out = await call(*arrays)
    return Run(lambda: call(*arrays, out=out), out.get)


def evaluated(namespace: Any, case: Case, arrays: list[Any]) -> Any:
    names = {"np": namespace, **dict(zip("xy", arrays, strict=False))}
    code = compile(case.numpy, "benchmark", "eval")
    return lambda: eval(code, names)


def direct(name: str, shape: list[int]) -> Run:
    call = evaluated(np, CASES[name], operands(name, shape))
    return Run(call, call)


def raw(cuda: Any, name: str, shape: list[int]) -> Run:
    from cuda.bindings import runtime

    half = 4 * int(np.prod(shape)) * CASES[name].passes // 2
    src, out = cuda.empty(half), cuda.empty(half)
    kind = runtime.cudaMemcpyKind.cudaMemcpyDeviceToDevice
    return Run(lambda: runtime.cudaMemcpyAsync(out, src, half, kind, cuda.stream))


def cupy(cupy: Any, name: str, shape: list[int]) -> Run:
    case = CASES[name]
    arrays = [cupy.asarray(x) for x in operands(name, shape)]
    if not case.kernel:
        call = evaluated(cupy, case, arrays)
        return Run(call, lambda: call().get())
    if name == "transposed":
        arrays[1] = arrays[1].T
    kernel = cupy.ElementwiseKernel("float32 x, float32 y", "float32 z", case.kernel, "benchmark")
    out = kernel(*arrays)
    return Run(lambda: kernel(*arrays, out), out.get)


def torch(torch: Any, name: str, shape: list[int]) -> Run:
    arrays = [torch.from_numpy(x).cuda() for x in operands(name, shape)]
    case = CASES[name]
    call = evaluated(torch, case, arrays)
    return Run(call, lambda: call().cpu().numpy())


if __name__ == "__main__":
    compare(__doc__, "elementwise", problems, Subjects(ours, direct, raw, cupy, torch))
