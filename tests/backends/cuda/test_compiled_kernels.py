"""What the stand-in for a GPU's threads must notice, and what it keeps."""

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from host_compiler import HostCompiler

TEXT = """
extern "C" __global__ void sums(const int* x, int* out, int n) {
    __shared__ int total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    if (threadIdx.x < n) atomicAdd(&total, x[threadIdx.x]);
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}
extern "C" __global__ void stuck(int n) {
    if (threadIdx.x < n) __syncthreads();
}
"""


def launch(compiler: HostCompiler, name: str, *arguments: Any) -> int:
    at = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
    code: int = getattr(compiler.library(TEXT), f"run_{name}")(at, 2, 1, 48)
    return code


def test_a_barrier_that_not_all_threads_reach_ends_the_launch(compiler: HostCompiler) -> None:
    x, out = np.arange(40, dtype="i4"), np.zeros(96, "i4")
    given = ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(out.ctypes.data), ctypes.c_int(40)
    for n, code in ((0, 0), (47, 719), (48, 0), (1, 719)):
        assert launch(compiler, "stuck", ctypes.c_int(n)) == code
        out[:] = 0
        assert launch(compiler, "sums", *given) == 0
        assert out.tolist() == 96 * [x.sum()]


def test_a_text_is_compiled_once(compiler: HostCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    HostCompiler(tmp_path).library(TEXT)
    kept = {path.name for path in tmp_path.iterdir() if path.suffix != ".lock"}
    assert len(kept) == 3  # the header, the names of the kernels, the library
    monkeypatch.setattr("subprocess.run", None)
    assert HostCompiler(tmp_path).library(TEXT).run_sums
    assert {path.name for path in tmp_path.iterdir() if path.suffix != ".lock"} == kept
