"""``cb.xp`` and ``dev.xp`` type-check in user code, and wrong code does not, in both checkers."""

import runpy
from pathlib import Path

import pytest
from tests.checkers import CHECKERS, SOURCE, judge

import callboard as cb

GOOD = """
from typing import assert_type

import callboard as cb
import callboard.xp as xp
from callboard.arrays.dtypes import Finfo
from callboard.arrays.introspection.info import Info
from callboard.arrays.linalg.results import SVDResult
from callboard.arrays.namespace import Namespace
from callboard.arrays.ordering.sorting import UniqueCounts
from callboard.core.mode import Blocking


def module(a: cb.sync.Ref, b: cb.GpuRef) -> None:
    assert_type(cb.xp.exp(a), cb.sync.Ref)
    assert_type(cb.xp.exp(b), cb.GpuRef)
    assert_type(cb.xp.add(1, a), cb.sync.Ref)
    assert_type(cb.xp.where(b > 0, b, 0.0), cb.GpuRef)
    assert_type(cb.xp.sum(a, axis=(0, 1), keepdims=True), cb.sync.Ref)
    assert_type(cb.xp.astype(b, cb.xp.float32), cb.GpuRef)
    assert_type(cb.xp.concat([a, a], axis=None), cb.sync.Ref)
    assert_type(cb.xp.meshgrid(a, a, indexing="ij"), tuple[cb.sync.Ref, ...])
    assert_type(cb.xp.unique_counts(b), UniqueCounts)
    assert_type(cb.xp.unique_counts(b).counts, cb.GpuRef)
    assert_type(cb.xp.take(a, cb.xp.asarray([0, 1])), cb.sync.Ref)


def made() -> None:
    assert_type(xp.zeros((3, 4), dtype=xp.int8), cb.sync.Ref)
    assert_type(xp.asarray([1.0, 2.0]), cb.sync.Ref)
    assert_type(xp.fft.fftfreq(8), cb.sync.Ref)
    assert_type(xp.float32, cb.DType)
    assert_type(xp.pi, float)
    assert_type(xp.finfo("f4"), Finfo)
    assert_type(xp.isdtype(xp.bool, "numeric"), bool)
    assert_type(xp.result_type(xp.zeros(3), "f4", 1), cb.DType)
    assert_type(xp.__array_namespace_info__(), Info)
    assert_type(xp.default(), Namespace[Blocking])


def parts(a: cb.sync.Ref, b: cb.GpuRef) -> None:
    assert_type(xp.fft.rfft(b, norm="ortho"), cb.GpuRef)
    assert_type(xp.linalg.svd(a), SVDResult[Blocking])
    assert_type(xp.linalg.svd(b, full_matrices=False).S, cb.GpuRef)
    assert_type(xp.linalg.matrix_rank(a, rtol=a), cb.sync.Ref)


def of_refs(a: cb.sync.Ref, b: cb.GpuRef) -> None:
    of_a, of_b = a.__array_namespace__(), b.__array_namespace__(api_version="2025.12")
    assert_type(of_a, Namespace[Blocking])
    assert_type(of_a.add(a, a), cb.sync.Ref)
    assert_type(of_a.zeros(3), cb.sync.Ref)
    assert_type(of_b.add(b, b), cb.GpuRef)
    assert_type(of_b.zeros(3), cb.GpuRef)
    assert_type(of_b.linalg.inv(b), cb.GpuRef)


def einsums(gpu: cb.Device, a: cb.sync.Ref, b: cb.GpuRef) -> None:
    assert_type(gpu.xp.einsum("ij,jk->ik", b, b), cb.GpuRef)
    assert_type(gpu.xp.einsum(b, [0, 1], b, [1, 2], [0, 2], optimize="dp"), cb.GpuRef)
    assert_type(cb.xp.einsum("ij->ji", a), cb.sync.Ref)
    assert_type(cb.xp.einsum(a, [..., 0], (..., 0)), cb.sync.Ref)
"""

BAD = """
import callboard as cb


def module(a: cb.sync.Ref, b: cb.GpuRef) -> None:
    cb.xp.expo(a)  # E
    cb.xp.exp(3.0)  # E
    cb.xp.add(a, b)  # E
    cb.xp.add(a, "1")  # E
    cb.xp.sum(a, axis=0.5)  # E
    cb.xp.sum(a, dim=0)  # E
    cb.xp.zeros((3, 4), dtype=32)  # E
    cb.xp.zeros("3")  # E
    cb.xp.take(a, b)  # E
    cb.xp.meshgrid(a, indexing="yx")  # E
    cb.xp.unique_counts(a).inverse_indices  # E
    cb.xp.result_type(None)  # E
    cb.xp.fft.fft(a, norm="none")  # E
    cb.xp.linalg.svd(a).U.result().nothing  # E
    cb.xp.linalg.matrix_rank(a, rtol=b)  # E
    text: str = cb.xp.pi  # E
    b.__array_namespace__().expo(b)  # E
    b.__array_namespace__().zeros(3).result().get().nothing  # E


def einsums(gpu: cb.Device, a: cb.sync.Ref, b: cb.GpuRef) -> None:
    gpu.xp.einsum("ij,jk->ik", a, b)  # E
    gpu.xp.einsum(b, "ij")  # E
    gpu.xp.einsum("ij", b, optimize="fast")  # E
    gpu.xp.einsum("ij", 1.0)  # E
    number: float = cb.xp.einsum("i,i->", a, a)  # E
"""


@pytest.mark.typing
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("checker", CHECKERS)
def test_good_passes_and_bad_does_not(tmp_path: Path, checker: str) -> None:
    judge(checker, tmp_path, GOOD, BAD)


def test_the_stub_has_the_names_of_the_module() -> None:
    assert cb.xp.__all__ == ["default"]  # the one name that the script does not take from the namespace
    script = runpy.run_path(str(SOURCE.parent / "scripts" / "xp-stub"))
    assert script["STUB"].read_text("utf-8") == script["stub"](), "run: scripts/xp-stub"
