"""Cost of contractions: through callboard, called directly, in CuPy and in eager torch.

    python benchmarks/tensor.py --json tensor.json
    python benchmarks/tensor.py --quick --device cpu

Attention scores with the heads before and between the rows, a chain of three matrices, a contraction whose modes are
scattered in memory, sums, products element by element and of all pairs, a transposition; from arrays to an array made
ahead (callboard and cuBLAS; the others make theirs, CuPy by its cheapest path). Callboard uses cuTENSOR where it is
installed, unless ``CALLBOARD_TENSOR_ENGINE`` says otherwise. On the CPU the direct call is opt_einsum's, with the path
found before. On CUDA the raw call is cuBLAS through its bindings, where one call does it; elsewhere the ratio is to
``torch.einsum``. There is no bar.
"""

import math
from functools import partial
from typing import Any

import numpy as np
from _maths import Problem, Run, Subjects, compare

PERIOD = 65_521
SCORES = "bhqd,bhkd->bhqk"


def problems(kind: str, quick: bool) -> list[Problem]:
    if kind == "cpu":
        n = 64 if quick else 256
        return [
            problem("scores", SCORES, [[2, 8, n, 64], [2, 8, n, 64]], "f4", 20, None),
            problem("scores, heads inside", "bqhd,bkhd->bhqk", [[2, n, 8, 64], [2, n, 8, 64]], "f4", 20, None),
            problem("chain", "ij,jk,kl->il", [[2 * n, 2 * n], [2 * n, 2 * n], [2 * n, 16]], "f8", 20, None),
            problem("scattered", "abcd,ebfd->aecf", [[16, 16, 16, 16], [16, 16, 16, 16]], "f4", 20, None),
        ]
    heads, size = [8, 16, 512, 64], 1 << 12
    return [
        problem("scores", SCORES, [heads, heads], "f2", 200, None),
        problem("scores, heads inside", "bqhd,bkhd->bhqk", [[8, 512, 16, 64]] * 2, "f2", 200),
        problem("chain", "ij,jk,kl->il", [[size, size], [size, size], [size, 64]], "f4", 200),
        problem("scattered", "abcd,ebfd->aecf", [[48, 32, 48, 32], [48, 32, 48, 32]], "f4", 100),
        problem(
            "scattered, autotune", "abcd,ebfd->aecf", [[48, 32, 48, 32], [48, 32, 48, 32]], "f4", 100, autotune=True
        ),
        problem("sum of columns", "ij->j", [[size, 2 * size]], "f4", 200),
        problem("sum of rows", "ij->i", [[size, 2 * size]], "f4", 200),
        problem("sum of short rows", "ij->i", [[1 << 19, 64]], "f4", 200),
        # without CuPy, which may add up halves in halves
        problem("sum of columns, halves", "ij->j", [[2 * size, 2 * size]], "f2", 200, without=("raw", "cupy")),
        problem("outer product", "i,j->ij", [[size], [size]], "f4", 200),
        problem("outer product of 1 GiB", "i,j->ij", [[4 * size], [4 * size]], "f4", 100),
        problem("rows by a column", "ij,i->ij", [[size, size], [size]], "f4", 200),
        problem("turned round", "ijk->kji", [[256, 256, 256]], "f4", 100),
        problem("element by element", "ij,ij->ij", [[size, size]] * 2, "f4", 200),
        problem("small", "ij,jk->ik", [[64, 64], [64, 64]], "f4", 2000),
    ]


def problem(
    name: str,
    equation: str,
    shapes: list[list[int]],
    dtype: str,
    count: int,
    base: str | None = "torch",
    without: tuple[str, ...] = ("raw",),
    **settings: Any,
) -> Problem:
    title = f"{name} {equation} {'·'.join('x'.join(map(str, shape)) for shape in shapes)} {dtype}"
    settings |= {"equation": equation, "shapes": shapes, "dtype": dtype}
    return Problem(title, settings, count, base=base, without=without if base == "torch" else ())


def operands(shapes: list[list[int]], dtype: str) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    # Repeated after a prime number of elements: to draw all of them would take longer than what is measured.
    return [np.resize(rng.uniform(0, 1 / math.sqrt(shape[-1]), PERIOD).astype(dtype), shape) for shape in shapes]


async def ours(device: Any, equation: str, shapes: list[list[int]], dtype: str, autotune: bool = False) -> Run:
    arrays = [device.put(x) for x in operands(shapes, dtype)]
    out = await device.tensor.einsum(equation, *arrays)
    return Run(lambda: device.tensor.einsum(equation, *arrays, out=out, autotune=autotune), out.get)


def direct(equation: str, shapes: list[list[int]], dtype: str) -> Run:
    import opt_einsum

    arrays = operands(shapes, dtype)
    contract = opt_einsum.contract_expression(equation, *map(tuple, shapes))
    return Run(lambda: contract(*arrays), lambda: contract(*arrays))


def raw(cuda: Any, equation: str, shapes: list[list[int]], dtype: str) -> Run:
    from nvmath.bindings import cublas

    assert (equation, dtype) == (SCORES, "f2")
    (b, h, q, d), (_, _, k, _) = shapes
    at_a, at_b = (cuda.put(x) for x in operands(shapes, dtype))
    out = cuda.empty(2 * b * h * q * k)
    handle = cublas.create()
    cublas.set_stream(handle, cuda.stream)
    one, zero = np.ones(1, "f4"), np.zeros(1, "f4")
    half, f32 = 2, 68  # cudaDataType, cublasComputeType_t

    def multiply() -> None:  # column-major: out.T = b @ a.T, one for each batch and head
        cublas.gemm_strided_batched_ex(
            *(handle, 1, 0, k, q, d, one.ctypes.data, at_b, half, d, k * d, at_a, half, d, q * d),
            *(zero.ctypes.data, out, half, k, q * k, b * h, f32, -1),
        )

    return Run(multiply, lambda: cuda.get(out, (b, h, q, k), np.float16))


def cupy(cupy: Any, equation: str, shapes: list[list[int]], dtype: str, autotune: bool = False) -> Run:
    arrays = [cupy.asarray(x) for x in operands(shapes, dtype)]
    contract = partial(cupy.einsum, equation, *arrays, optimize=True)
    return Run(lambda: cupy.ascontiguousarray(contract()), lambda: contract().get())


def torch(torch: Any, equation: str, shapes: list[list[int]], dtype: str, autotune: bool = False) -> Run:
    arrays = [torch.from_numpy(x).cuda() for x in operands(shapes, dtype)]
    return Run(
        lambda: torch.einsum(equation, *arrays).contiguous(),  # a transposition alone would be a view
        lambda: torch.einsum(equation, *arrays).cpu().numpy(),
    )


if __name__ == "__main__":
    compare(__doc__, "tensor", problems, Subjects(ours, direct, raw, cupy, torch))
