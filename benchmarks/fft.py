"""Cost of a Fourier transform: through callboard, called directly, in CuPy and in eager torch.

    python benchmarks/fft.py --json fft.json
    python benchmarks/fft.py --quick --device cpu

Complex and real transforms of one long signal and a batch of short ones, from arrays to arrays made ahead. On the CPU
the direct call is SciPy's, with as many threads; it makes its output. On CUDA it is cuFFT through its bindings, with
a work area of its own.
"""

from typing import Any

import numpy as np
from _maths import Problem, Run, Subjects, compare

COMPLEX = {"c64": (np.complex64, 0, 4), "c128": (np.complex128, 1, 5)}
"""NumPy's type, and cuFFT's codes of the real and of the complex type (``cudaDataType``)."""


def problems(kind: str, quick: bool) -> list[Problem]:
    size = 16 if quick else 20
    if kind == "cpu":
        count = 20
        return [
            Problem(f"fft 2^{size} c128", {"shape": [1 << size], "dtype": "c128"}, count, 0.9),
            Problem(f"fft 2^{size} c64", {"shape": [1 << size], "dtype": "c64"}, count, 0.9),
            Problem(f"rfft 2^{size} f32", {"shape": [1 << size], "dtype": "c64", "real": True}, count),
        ]
    return [
        Problem("fft 2^24 c64", {"shape": [1 << 24], "dtype": "c64"}, 200, 0.97),
        Problem("fft 2^24 c128", {"shape": [1 << 24], "dtype": "c128"}, 100),
        Problem("rfft 2^24 f32", {"shape": [1 << 24], "dtype": "c64", "real": True}, 200),
        Problem("fft 4096 x 1024 c64", {"shape": [4096, 1024], "dtype": "c64"}, 1000),
        Problem("fft 1024 c64", {"shape": [1024], "dtype": "c64"}, 20_000),
    ]


def signal(shape: list[int], dtype: str, real: bool) -> np.ndarray:
    rng = np.random.default_rng(1)
    x = rng.standard_normal(shape)
    kind = np.dtype(COMPLEX[dtype][0])
    return x.astype(kind.char.lower()) if real else (x + 1j * rng.standard_normal(shape)).astype(kind)


async def ours(device: Any, shape: list[int], dtype: str, real: bool = False) -> Run:
    x = device.put(signal(shape, dtype, real))
    transform = device.fft.rfft if real else device.fft.fft
    out = await transform(x)
    return Run(lambda: transform(x, out=out), out.get)


def direct(shape: list[int], dtype: str, real: bool = False) -> Run:
    import scipy.fft

    x, transform = signal(shape, dtype, real), scipy.fft.rfft if real else scipy.fft.fft
    threads = 1 if x.ndim == 1 else -1
    return Run(lambda: transform(x, workers=threads), lambda: transform(x))


def raw(cuda: Any, shape: list[int], dtype: str, real: bool = False) -> Run:
    from nvmath.bindings import cufft

    x = signal(shape, dtype, real)
    kind, real_code, code = COMPLEX[dtype]
    n, batch = shape[-1], x.size // shape[-1]
    kept = n // 2 + 1 if real else n
    plan = cufft.create()
    cufft.set_auto_allocation(plan, 0)
    work = cufft.xt_make_plan_many(
        plan, 1, [n], [n], 1, n, real_code if real else code, [kept], 1, kept, code, batch, code
    )
    cufft.set_work_area(plan, cuda.empty(work))
    cufft.set_stream(plan, cuda.stream)
    src, out = cuda.put(x), cuda.empty(batch * kept * np.dtype(kind).itemsize)
    return Run(lambda: cufft.xt_exec(plan, src, out, -1), lambda: cuda.get(out, (batch, kept), kind))


def cupy(cupy: Any, shape: list[int], dtype: str, real: bool = False) -> Run:
    x, transform = cupy.asarray(signal(shape, dtype, real)), cupy.fft.rfft if real else cupy.fft.fft
    return Run(lambda: transform(x), lambda: transform(x).get())


def torch(torch: Any, shape: list[int], dtype: str, real: bool = False) -> Run:
    x = torch.from_numpy(signal(shape, dtype, real)).cuda()
    transform = torch.fft.rfft if real else torch.fft.fft
    out = transform(x)
    return Run(lambda: transform(x, out=out), lambda: out.cpu().numpy())


if __name__ == "__main__":
    compare(__doc__, "fft", problems, Subjects(ours, direct, raw, cupy, torch))
