"""Subject: SciPy's BLAS (what callboard's CPU backend calls) or NumPy, called directly; and memcpy."""

import statistics
import sys
import time

import numpy as np
from _worker import serve
from scipy.linalg.blas import sgemm

clock = time.perf_counter


def _matrices(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    # Column-major, as the Fortran routine takes it without a copy.
    a, b, out = (np.asfortranarray(rng.random((n, n), np.float32)) for _ in range(3))
    return a, b, out


def _product_scipy(a: np.ndarray, b: np.ndarray, out: np.ndarray, alpha: float = 1.0) -> None:
    sgemm(alpha, a, b, 0.0, out, overwrite_c=1)


def _product_numpy(a: np.ndarray, b: np.ndarray, out: np.ndarray, alpha: float = 1.0) -> None:
    np.matmul(a, b, out=out)
    if alpha != 1.0:
        np.multiply(out, alpha, out=out)


product = _product_numpy if sys.argv[1:] == ["numpy"] else _product_scipy


def ask(n: int, count: int) -> float:
    """Median seconds of one product."""
    return _asks(n, count, 0.0)


def ask_unlike(n: int, count: int) -> float:
    """The same, with another factor each time."""
    return _asks(n, count, 1e-6)


def _asks(n: int, count: int, step: float) -> float:
    a, b, out = _matrices(n)
    times = []
    for i in range(count + 20):
        alpha = 1.0 + i * step
        start = clock()
        product(a, b, out, alpha)
        times.append(clock() - start)
    return statistics.median(times[20:])


def pipelined(n: int, count: int) -> float:
    """Seconds per product, one after the other."""
    a, b, out = _matrices(n)
    product(a, b, out)
    start = clock()
    for _ in range(count):
        product(a, b, out)
    return (clock() - start) / count


_arrays: dict[int, tuple[np.ndarray, np.ndarray]] = {}


def memcpy(nbytes: int) -> float:
    """Seconds of one thread's copy between two arrays that have been touched before."""
    if nbytes not in _arrays:
        _arrays[nbytes] = np.full(nbytes // 4, 0.5, np.float32), np.zeros(nbytes // 4, np.float32)
    source, target = _arrays[nbytes]
    start = clock()
    np.copyto(target, source)
    return clock() - start


if __name__ == "__main__":
    serve({"ask": ask, "ask_unlike": ask_unlike, "pipelined": pipelined, "memcpy": memcpy})
