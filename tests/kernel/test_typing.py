"""The faces and messages of the maths type-check as users write them, and what is wrong does not, in both checkers.

BLAS, the library of the first examples, has its own (``blas/test_typing.py``).
"""

from pathlib import Path

import pytest
from tests.kernel.blas.test_typing import CHECKERS, SOURCE, check

GOOD = """
from typing import Any, assert_type

import callboard as cb
from callboard.kernel.blas_lt import Matmul, MatmulAuxResult
from callboard.kernel.fft import Rfft
from callboard.kernel.rng import RngFillNormal
from callboard.kernel.solver import EigResult, Lu, LuResult, Solve, SvdResult, Syevd
from callboard.kernel.sparse import CsrRef, SpGemm, SpMv
from callboard.kernel.tensor import Contract


async def faces(gpu: cb.Device, a: cb.GpuRef, m: CsrRef) -> None:
    assert_type(gpu.blas_lt.matmul(a, a, bias=a, epilogue="gelu_bias"), cb.GpuRef)
    assert_type(gpu.blas_lt.matmul_aux(a, a, epilogue="relu_aux"), MatmulAuxResult)
    assert_type(gpu.fft.rfft(a, norm="ortho"), cb.GpuRef)
    assert_type(gpu.rng.philox(seed=1).normal((3, 4), dtype="f64"), cb.GpuRef)
    assert_type(gpu.solver.svd(a), SvdResult)
    u, s, vt = gpu.solver.svd(a)
    assert_type(await s, cb.GpuRef)
    assert_type(gpu.solver.lu(a), LuResult)
    assert_type(gpu.solver.syevd(a, lower=False).w, cb.GpuRef)
    assert_type(gpu.sparse.sp_mv(m, a, alpha=0.5), cb.GpuRef)
    assert_type(gpu.sparse.sp_gemm(m, m), CsrRef)
    assert_type(await gpu.sparse.sp_gemm(m, m), CsrRef)
    assert_type(gpu.sparse_lt.matmul(gpu.sparse_lt.compress(a), a), cb.GpuRef)
    assert_type(gpu.tensor.einsum("ij,jk->ik", a, a), cb.GpuRef)
    assert_type(gpu.tensor.contract(a, "ij", a, (1, 2), "ik"), cb.GpuRef)


async def messages(gpu: cb.Device, a: cb.GpuRef, m: CsrRef) -> None:
    assert_type(gpu.ask(Solve(a=a, b=a)), cb.GpuRef)
    assert_type(gpu.ask(Lu(a=a)), LuResult)
    assert_type(gpu.ask(Syevd(a=a)), EigResult)
    assert_type(gpu.ask(Matmul(a=a, b=a)), cb.GpuRef)
    assert_type(gpu.ask(Rfft(x=a)), cb.GpuRef)
    assert_type(gpu.ask(RngFillNormal(out=a, seed=1)), cb.GpuRef)
    assert_type(gpu.ask(SpMv(a=m, x=a)), cb.GpuRef)
    assert_type(gpu.ask(SpGemm(a=m, b=m)), CsrRef)
    assert_type(gpu.ask(Contract(a=a, b=a, modes_a="ij", modes_b="jk", modes_out="ik")), cb.GpuRef)
"""
