"""Cost of random numbers: through callboard, called directly, in CuPy and in eager torch.

    python benchmarks/rng.py --json rng.json
    python benchmarks/rng.py --quick --device cpu

Arrays made ahead are filled again and again, each time with the numbers that come next. On the CPU the direct call is
NumPy's Generator over its Philox, on one thread as NumPy has it; ``philox64`` is the same generator and, for uniform
numbers, the same numbers. On CUDA it is cuRAND through its bindings; ``philox`` is the same generator.
"""

from typing import Any

import numpy as np
from _maths import Problem, Run, Subjects, compare

CURAND = {"philox": 161, "xorwow": 101, "mrg32k3a": 121, "mt19937": 142}


def problems(kind: str, quick: bool) -> list[Problem]:
    def problem(
        generator: str, law: str, dtype: str, bar: float | None = None, without: tuple[str, ...] = ()
    ) -> Problem:
        settings = {"generator": generator, "law": law, "dtype": dtype, "n": n}
        title = f"{law} {dtype} 10^{len(str(n)) - 1}, {generator}"
        return Problem(title, settings, count, bar, work=n * 1e-9, unit="10^9 numbers per second", without=without)

    if kind == "cpu":
        n, count = (10**6 if quick else 10**7), 3
        return [
            *(problem("philox64", law, dtype, 0.9) for law in ("uniform", "normal") for dtype in ("f64", "f32")),
            problem("philox64", "integers", "i32"),
            problem("philox", "uniform", "f64"),
            problem("philox", "normal", "f32"),
        ]
    n, count, own = 10**8, 50, ("raw", "cupy", "torch")
    return [
        problem("philox", "bits", "u32", 0.97, ("cupy", "torch")),
        problem("philox", "uniform", "f32", 0.97),
        problem("philox", "normal", "f32", 0.97),
        problem("philox", "uniform", "f64", 0.97),
        problem("philox", "normal", "f64", 0.97),
        problem("philox64", "uniform", "f32", None, own),
        problem("xorwow", "bits", "u32", None, ("cupy", "torch")),
        problem("xorwow", "uniform", "f32", None, ("cupy", "torch")),
    ]


async def ours(device: Any, generator: str, law: str, dtype: str, n: int) -> Run:
    out = await device.empty(n, dtype)
    g = device.rng.generator(generator, seed=1)
    if law == "integers":
        return Run(lambda: g.integers(0, 1000, out=out))
    return Run(lambda: getattr(g, law)(out=out))


def direct(generator: str, law: str, dtype: str, n: int) -> Run:
    g = np.random.Generator(np.random.Philox(1))
    kind = {"f32": np.float32, "f64": np.float64, "i32": np.int32}[dtype]
    out = np.empty(n, kind)
    if law == "integers":
        return Run(lambda: g.integers(0, 1000, n, dtype=kind))
    fill = g.random if law == "uniform" else g.standard_normal
    return Run(lambda: fill(dtype=kind, out=out))


def raw(cuda: Any, generator: str, law: str, dtype: str, n: int) -> Run:
    from nvmath.bindings import curand

    handle = curand.create_generator(CURAND[generator])
    curand.set_stream(handle, cuda.stream)
    curand.set_pseudo_random_generator_seed(handle, 1)
    out = cuda.empty(n * (8 if dtype == "f64" else 4))
    if law == "bits":
        return Run(lambda: curand.generate(handle, out, n))
    if law == "uniform":
        fill = curand.generate_uniform_double if dtype == "f64" else curand.generate_uniform
        return Run(lambda: fill(handle, out, n))
    fill = curand.generate_normal_double if dtype == "f64" else curand.generate_normal
    return Run(lambda: fill(handle, out, n, 0.0, 1.0))


def cupy(cupy: Any, generator: str, law: str, dtype: str, n: int) -> Run:
    g = cupy.random.Generator(cupy.random.Philox4x3210(1))
    kind = {"f32": cupy.float32, "f64": cupy.float64}[dtype]
    out = cupy.empty(n, kind)
    fill = g.random if law == "uniform" else g.standard_normal
    return Run(lambda: fill(n, dtype=kind, out=out))


def torch(torch: Any, generator: str, law: str, dtype: str, n: int) -> Run:
    out = torch.empty(n, device="cuda", dtype={"f32": torch.float32, "f64": torch.float64}[dtype])
    return Run(lambda: out.uniform_() if law == "uniform" else out.normal_())


if __name__ == "__main__":
    compare(__doc__, "rng", problems, Subjects(ours, direct, raw, cupy, torch))
