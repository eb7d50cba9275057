"""User code type-checks, and wrong code does not, in mypy and in pyright alike."""

from pathlib import Path

import pytest
from tests.checkers import CHECKERS, judge

GOOD = """
from typing import TypeVar, assert_type

from callboard.actors.messages import Request
from callboard.core.ref import GpuRef
from callboard.core.reply import Reply
from callboard.kernel.blas import BlasActor, Dot, Dotc, Gemm, GemmGrouped, Iamax, Rot, VectorPair
from callboard.kernel.blas.api import BlasApi

R = TypeVar("R")


def ask(message: Request[BlasActor, R]) -> R:
    raise NotImplementedError


def faces(blas: BlasApi, a: GpuRef, s: GpuRef) -> None:
    assert_type(blas.gemm(a, a), GpuRef)
    assert_type(blas.gemm(a, a, c=a, alpha=0.5, beta=s, transpose_a=True, tf32=True), GpuRef)
    assert_type(blas.gemm(a, a, alpha=2, beta=1j), GpuRef)
    assert_type(blas.gemm_batched([a, a], (a, a)), GpuRef)
    assert_type(blas.gemm_grouped([a], [a], [a]), tuple[GpuRef, ...])
    assert_type(blas.dot(a, a), Reply[float])
    assert_type(blas.dot(a, a, out=s), GpuRef)
    assert_type(blas.dotc(a, a), Reply[complex])
    assert_type(blas.iamax(a), Reply[int])
    assert_type(blas.iamin(a, out=s), GpuRef)
    assert_type(blas.swap(a, a), VectorPair)
    x, y = blas.rot(a, a, c=0.6, s=0.8)
    assert_type(x, GpuRef)
    assert_type(blas.trsm(a, a, left=False, unit_diagonal=True), GpuRef)


async def replies(blas: BlasApi, a: GpuRef) -> None:
    assert_type(await blas.nrm2(a), float)
    assert_type(await blas.iamax(a), int)
    assert_type(await blas.gemv(a, a), GpuRef)


def messages(a: GpuRef) -> None:
    assert_type(ask(Gemm(a=a, b=a, alpha=a)), GpuRef)
    assert_type(ask(Dot(x=a, y=a)), float)
    assert_type(ask(Dotc(x=a, y=a)), complex)
    assert_type(ask(Iamax(x=a)), int)
    assert_type(ask(Rot(x=a, y=a, c=1, s=0)), VectorPair)
    assert_type(ask(GemmGrouped(a=(a,), b=(a,), c=(a,))), tuple[GpuRef, ...])
"""

BAD = """
from typing import TypeVar

import numpy as np

from callboard.actors.messages import Request
from callboard.core.ref import GpuRef
from callboard.kernel.blas import Dot, Gemm, GemmBatched, Scal
from callboard.kernel.blas.api import BlasApi

R = TypeVar("R")


class OtherActor: ...


def ask_other(message: Request[OtherActor, R]) -> R:
    raise NotImplementedError


def wrong(blas: BlasApi, a: GpuRef) -> None:
    blas.gemm(a)  # E
    blas.gemm(a, np.ones((3, 3)))  # E
    blas.gemm(a, a, a)  # E
    blas.gemm(a, a, transposed=True)  # E
    blas.gemm(a, a, alpha="2")  # E
    blas.gemm(a, a, tf32="yes")  # E
    blas.gemm_grouped(1, 2, 3)  # E
    blas.scal(a)  # E
    blas.dot(a, a, out=1.0)  # E
    number: float = blas.dot(a, a)  # E
    string: str = blas.iamax(a)  # E
    Gemm(a, a)  # E
    Gemm(a=a)  # E
    Gemm(a=a, b=None)  # E
    Gemm(a=a, b=a, lda=3)  # E
    Gemm(a=a, b=a).alpha = 2.0  # E
    GemmBatched(a=a, b=a)  # E
    Scal(x=a, alpha=None)  # E
    ask_other(Dot(x=a, y=a))  # E
"""


@pytest.mark.typing
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("checker", CHECKERS)
def test_good_passes_and_bad_does_not(tmp_path: Path, checker: str) -> None:
    judge(checker, tmp_path, GOOD, BAD)
