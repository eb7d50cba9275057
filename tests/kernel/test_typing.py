"""The maths APIs and messages type-check in user code, and wrong code does not, in both checkers.

BLAS, the library of the first examples, has its own (``blas/test_typing.py``).
"""

from pathlib import Path

import pytest
from tests.checkers import CHECKERS, judge

GOOD = """
from typing import Any, assert_type

import numpy as np

import callboard as cb
from callboard.kernel.blas import Dot, Gemm
from callboard.kernel.blas_lt import Matmul, MatmulWithAux
from callboard.kernel.fft import Rfft
from callboard.kernel.rng import RngFillNormal
from callboard.kernel.solver import EigResult, Lu, LuResult, Solve, SvdResult, Syevd
from callboard.kernel.sparse import CsrRef, SpGemm, SpMv
from callboard.kernel.tensor import Contract


async def faces(gpu: cb.Device, a: cb.GpuRef, m: CsrRef) -> None:
    assert_type(gpu.blas_lt.matmul(a, a, bias=a, epilogue="gelu_bias"), cb.GpuRef)
    assert_type(gpu.blas_lt.matmul_aux(a, a, epilogue="relu_aux"), MatmulWithAux)
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
    assert_type(m @ a, cb.GpuRef)
    assert_type(a @ m, cb.GpuRef)
    assert_type(m @ m, CsrRef)
    assert_type(await (m + m.T - 2 * m / 3), CsrRef)
    assert_type(gpu.sparse_lt.matmul(gpu.sparse_lt.compress(a), a), cb.GpuRef)
    assert_type(gpu.tensor.einsum("ij,jk->ik", a, a), cb.GpuRef)
    assert_type(gpu.tensor.contract(a, a, "ij", (1, 2), "ik"), cb.GpuRef)


def dtypes(gpu: cb.Device, a: cb.GpuRef, dtype: cb.DTypeLike) -> None:
    for each in ("f16", "float16", np.float16, np.dtype("f2"), cb.as_dtype("f16"), float, dtype):
        gpu.blas_lt.matmul(a, a, out_dtype=each)
        gpu.sparse_lt.matmul(gpu.sparse_lt.compress(a), a, out_dtype=each)
        gpu.tensor.einsum("ij->ji", a, compute=each)
        gpu.sparse.from_dense(a, index=each)
        gpu.rng.philox().normal(3, dtype=each)
        Matmul(a=a, b=a, out_dtype=each)
        gpu.empty(3, each)


async def messages(gpu: cb.Device, a: cb.GpuRef, m: CsrRef) -> None:
    assert_type(gpu.ask(Gemm(a=a, b=a)), cb.GpuRef)
    assert_type(await gpu.ask(Gemm(a=a, b=a)).get(), np.ndarray[Any, Any])
    assert_type(gpu.ask(Dot(x=a, y=a)), cb.Reply[float])
    assert_type(await gpu.ask(Dot(x=a, y=a)), float)
    assert_type(gpu.ask(Solve(a=a, b=a)), cb.GpuRef)
    assert_type(gpu.ask(Lu(a=a)), LuResult)
    assert_type(gpu.ask(Syevd(a=a)), EigResult)
    assert_type(gpu.ask(Matmul(a=a, b=a)), cb.GpuRef)
    assert_type(gpu.ask(Rfft(x=a)), cb.GpuRef)
    assert_type(gpu.ask(RngFillNormal(out=a, seed=1)), cb.GpuRef)
    assert_type(gpu.ask(SpMv(a=m, x=a)), cb.GpuRef)
    assert_type(gpu.ask(SpGemm(a=m, b=m)), CsrRef)
    assert_type(gpu.ask(Contract(a=a, b=a, modes_a="ij", modes_b="jk", modes_out="ik")), cb.GpuRef)


def blocking(gpu: cb.sync.Device, a: cb.sync.Ref) -> None:
    assert_type(gpu.ask(Gemm(a=a, b=a)), cb.sync.Ref)
    assert_type(gpu.ask(Gemm(a=a, b=a)).get(), np.ndarray[Any, Any])
    assert_type(gpu.ask(Dot(x=a, y=a)).result(), float)
"""

BAD = """
import callboard as cb
from callboard.kernel.blas import Dot, Gemm
from callboard.kernel.blas_lt import Matmul
from callboard.kernel.fft import Rfft
from callboard.kernel.rng import RngFillNormal
from callboard.kernel.solver import Lu, Svd, Syevd
from callboard.kernel.sparse import CsrRef, SpMv


class Elsewhere: ...


class Count(cb.Request[Elsewhere, int]):
    text: str


def faces(gpu: cb.Device, a: cb.GpuRef, m: CsrRef) -> None:
    gpu.blas_lt.matmul(a, a, epilogue="tanh")  # E
    gpu.fft.rfft(a, norm="none")  # E
    gpu.fft.rfft(m)  # E
    gpu.rng.philox(seed="1")  # E
    gpu.rng.philox().normal((3, 4), sigma=2.0)  # E
    gpu.solver.svd(a, method="fast")  # E
    gpu.solver.lu(a).u  # E
    gpu.solver.syevdx_range(a)  # E
    gpu.sparse.sp_mv(a, a)  # E
    gpu.sparse.sp_gemm(m, a)  # E
    m @ 2  # E
    m + a  # E
    1 - m  # E
    gpu.sparse_lt.matmul(a, a, activation="tanh")  # E
    gpu.tensor.einsum(a, "ij->ji")  # E
    gpu.tensor.reduction(a, "ij")  # E
    gpu.blas_lt.matmul(a, a, out_dtype=16)  # E
    gpu.tensor.einsum("ij->ji", a, compute=a)  # E
    gpu.sparse.from_dense(a, index=64)  # E
    gpu.rng.philox().normal(3, dtype=64)  # E


async def messages(gpu: cb.Device, a: cb.GpuRef, m: CsrRef) -> None:
    gpu.ask(Count(text="a"))  # E
    number: float = gpu.ask(Dot(x=a, y=a))  # E
    text: str = await gpu.ask(Dot(x=a, y=a))  # E
    rows: CsrRef = gpu.ask(Gemm(a=a, b=a))  # E
    gpu.ask(Svd(a=a)).values  # E
    gpu.ask(Lu(a=m))  # E
    gpu.ask(Syevd(a=a, method="qr"))  # E
    gpu.ask(SpMv(a=a, x=a))  # E
    gpu.ask(Matmul(a=a, b=a, epilogue="bias", bias=1.0))  # E
    gpu.ask(Rfft(a))  # E
    gpu.ask(RngFillNormal(out=a, dtype="f32"))  # E
    gpu.ask(Matmul(a=a, b=a, out_dtype=16))  # E
"""


@pytest.mark.typing
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("checker", CHECKERS)
def test_good_passes_and_bad_does_not(tmp_path: Path, checker: str) -> None:
    judge(checker, tmp_path, GOOD, BAD)
