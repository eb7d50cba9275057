"""The kernels of ``data/solver_scaling.cu``, compiled for the CPU."""

import ctypes
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent / "attention"))  # tests are no package

from emulation import COMPILER, HERE

from callboard.backends.cuda.kernels import source_text

__all__ = ["scaling_kernel"]

WORKS = ("extents", "equilibrate", "centre", "centre_factors", "uncentre", "restore", "determinant")
REST_OF_CUDA = """
#define __grid_constant__
template <typename X> static X atomicAdd(X* at, X n) { const X old = *at; *at += n; return old; }
template <typename X> static X atomicMax(X* at, X n) { const X old = *at; *at = std::max(old, n); return old; }
template <typename X> static X atomicMin(X* at, X n) { const X old = *at; *at = std::min(old, n); return old; }
static double __longlong_as_double(long long x) { double f; std::memcpy(&f, &x, 8); return f; }
static long long __double_as_longlong(double f) { long long x; std::memcpy(&x, &f, 8); return x; }
static int __syncthreads_or(int x) { return x; }
"""


def scaling_kernel(name: str) -> Any:
    """``run(params, blocks, threads)`` of a kernel by its name; skips the test where there is no compiler."""
    run = getattr(_compiled(), f"run_{name}")
    return lambda params, blocks, threads: run(ctypes.c_void_p(params[0]), blocks, threads)


@cache
def _compiled() -> ctypes.CDLL:
    if COMPILER is None:
        pytest.skip("there is no g++")
    text = (HERE / "emulation.hpp").read_text() + REST_OF_CUDA + source_text("solver_scaling").decode()
    for name in (f"{work}_{dtype}" for work in WORKS for dtype in ("f32", "f64", "c64", "c128")):
        text += f'\nextern "C" void run_{name}(void* a, unsigned blocks, unsigned threads) '
        text += f"{{ run([a] {{ {name}(*(SolverArgs*)a); }}, blocks, threads); }}"
    with tempfile.TemporaryDirectory() as folder:
        path, library = Path(folder) / "solver.cpp", Path(folder) / "solver.so"
        path.write_text(text)
        options = ["-std=c++17", "-O1", "-w", "-fno-strict-aliasing", "-shared", "-fPIC"]
        subprocess.run([COMPILER, *options, "-o", library, path], check=True, timeout=300)
        return ctypes.CDLL(str(library))
