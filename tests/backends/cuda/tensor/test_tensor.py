"""Calls of contractions, over stand-ins for the driver and cuBLAS that execute on host memory.

The conformance suites show the numbers on a GPU; here it is what is multiplied as it lies and what is copied, where
scratch memory is, and that everything is given back.
"""

import re
from importlib import resources
from typing import Any

import numpy as np
import pytest
from blas_host import Host
from host_cublas import HostCublas

from callboard.backends.cuda.tensor import elementwise, products
from callboard.backends.cuda.tensor.arguments import BELOW, IRREGULAR, PACKS, SAME_A, SAME_C
from callboard.backends.cuda.tensor.engine import ALIGNMENT, Scratch
from callboard.core.errors import LibraryError
from callboard.kernel.tensor import Contract, Einsum, Permutation, Reduction
from callboard.kernel.tensor.operators import BINARY, UNARY


def run(host: Host, equation: str, *shapes: tuple[int, ...], dtype: str = "f32", **settings: Any) -> list[str]:
    """Compare with NumPy; gives the calls of the driver (kernels, copies) that the second launch made."""
    refs = tuple(host.session.put(host.values(shape, dtype)) for shape in shapes)
    op = Einsum(equation=equation, operands=refs, **settings)
    host.session.submit(op)
    driver = host.session.device.driver  # type: ignore[attr-defined]
    driver.calls.clear()
    got = host.session.submit(op)
    calls = [call for call in driver.calls if call.startswith(("kernel", "memcpy_dtod", "memcpy_2d"))]
    want = np.einsum(equation, *(host.get(x) for x in refs))
    np.testing.assert_allclose(host.get(got), want, rtol=1e-5, atol=1e-5)
    return calls


def names(binding: HostCublas) -> list[str]:
    return [name for name, _ in binding.calls if "gemm" in name]


def test_matrices_that_lie_well_are_multiplied_as_they_lie(host: Host, binding: HostCublas) -> None:
    assert run(host, "ij,jk->ik", (4, 5), (5, 6)) == []
    assert run(host, "ij,kj->ki", (4, 5), (6, 5)) == []
    assert run(host, "bij,bjk->bik", (3, 4, 5), (3, 5, 6)) == []
    assert set(names(binding)) == {"sgemm", "gemm_strided_batched_ex"}


def test_what_does_not_fit_is_copied_by_one_kernel(host: Host) -> None:
    (only,) = run(host, "ijk,jl->ikl", (3, 4, 5), (4, 6))
    assert only.startswith("kernel")


def test_launches_in_place_of_copies(host: Host, binding: HostCublas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "LAUNCH", 1)
    assert run(host, "bqhd,bkhd->bqhk", (2, 3, 4, 5), (2, 6, 4, 5)) == []
    assert names(binding) == ["gemm_strided_batched_ex"] * 4
    assert run(host, "bqd,dk->qbk", (2, 3, 4), (4, 5)) == []


def test_products_without_a_sum_are_one_kernel(host: Host, binding: HostCublas) -> None:
    assert run(host, "i,j->ij", (4,), (5,)) == ["kernel elementwise_f32"]
    assert run(host, "ij,ij->ij", (4, 5), (4, 5)) == ["kernel elementwise_f32"]
    assert names(binding) == []


@pytest.mark.parametrize(
    "equation, shapes, dtype, expected",
    [
        ("i,j->ij", [(6,), (8,)], "f32", SAME_A),
        ("j,i->ij", [(8,), (6,)], "f32", SAME_C),
        ("i,j->ij", [(6,), (10,)], "f32", IRREGULAR),  # rows of two packs and a half
        ("i,j->ij", [(6,), (10,)], "f64", SAME_A),
        ("i,j->ij", [(6,), (3,)], "c128", SAME_A),
        ("ij,i->ij", [(6, 8), (6,)], "f32", SAME_C),
        ("ij,j->ij", [(6, 8), (8,)], "f32", PACKS),
        ("ij,kl->ijkl", [(2, 3), (5, 4)], "f32", SAME_A),
        ("i,->i", [(8,), ()], "f32", IRREGULAR),  # one axis: nothing lies below
    ],
)
def test_how_products_of_all_pairs_are_made(
    host: Host,
    monkeypatch: pytest.MonkeyPatch,
    equation: str,
    shapes: list[tuple[int, ...]],
    dtype: str,
    expected: int,
) -> None:
    made: list[int] = []
    find = elementwise._regular

    def noted(*args: Any) -> int:
        made.append(find(*args))
        return made[-1]

    monkeypatch.setattr(elementwise, "_regular", noted)
    run(host, equation, *shapes, dtype=dtype)
    assert set(made) == {expected}


def test_a_column_in_sums_and_products_only() -> None:
    for join, expected in (("add", SAME_C), ("mul", SAME_C), ("max", IRREGULAR), ("min", IRREGULAR)):
        assert elementwise._regular(4, join, [6, 8], [8, 1], [8, 1], [1, 0]) == expected
        assert elementwise._regular(4, join, [6, 8], [8, 1], [8, 1], [0, 1]) == PACKS
    assert elementwise._regular(4, "add", [6, 8], [9, 1], [8, 1], [1, 0]) == IRREGULAR


def test_integers_are_summed_by_a_kernel(host: Host, binding: HostCublas) -> None:
    assert run(host, "ij,jk->ik", (4, 5), (5, 6), dtype="i32") == ["kernel across_i32"]
    assert names(binding) == []


@pytest.mark.parametrize("conj", [("conj", "identity"), ("identity", "conj"), ("conj", "conj")])
@pytest.mark.parametrize("modes", [("ij", "jk", "ik"), ("ji", "kj", "ik"), ("ij", "kj", "ki"), ("bij", "bjk", "bki")])
def test_conjugates(host: Host, modes: tuple[str, str, str], conj: tuple[str, str]) -> None:
    """cuBLAS conjugates what it transposes; the rest is conjugated while it is copied."""
    sizes = dict(zip("bijk", (2, 3, 4, 5), strict=True))
    a, b = (host.session.put(host.values(tuple(sizes[x] for x in m), "c64")) for m in modes[:2])
    op = Contract(a=a, b=b, modes_a=modes[0], modes_b=modes[1], modes_out=modes[2], op_a=conj[0], op_b=conj[1])
    x, y = (host.get(v).conj() if how == "conj" else host.get(v) for v, how in zip((a, b), conj, strict=True))
    want = np.einsum(f"{modes[0]},{modes[1]}->{modes[2]}", x, y)
    np.testing.assert_allclose(host.get(host.session.submit(op)), want, rtol=1e-5, atol=1e-5)


def test_coarser_factors_are_asked_of_cublas(host: Host, binding: HostCublas) -> None:
    for compute, code in (("tf32", 77), ("bf16", 75), ("f16", 74)):
        run(host, "ij,jk->ik", (4, 5), (5, 6), compute=compute)
        name, arguments = [call for call in binding.calls if "gemm" in call[0]][-1]
        assert (name, arguments[-2]) == ("gemm_ex", code)


def test_autotune_tries_every_way_and_keeps_one(host: Host, binding: HostCublas) -> None:
    run(host, "bqhd,bkhd->bhqk", (2, 3, 4, 5), (2, 6, 4, 5), autotune=True)
    tried = len(names(binding))
    run(host, "bqhd,bkhd->bhqk", (2, 3, 4, 5), (2, 6, 4, 5), autotune=True)
    assert tried > 8  # launches of several ways, and then
    assert len(names(binding)) - tried <= 2  # the one of each op: the plan was there


def test_a_long_reduction_is_done_in_parts(host: Host) -> None:
    assert run(host, "ij->", (300, 400)) == ["kernel along_f32", "kernel parts_f32"]
    assert run(host, "ij->j", (5000, 4)) == ["kernel across_f32", "kernel parts_f32"]
    assert run(host, "ij->i", (4, 5)) == ["kernel along_f32"]


def test_what_lies_across_the_result_is_transposed_first(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elementwise, "LARGE", 1)
    assert run(host, "ji,ij->ij", (30, 20), (20, 30)) == ["kernel transpose_4", "kernel elementwise_f32"]
    assert run(host, "ij,ij->ij", (20, 30), (20, 30)) == ["kernel elementwise_f32"]
    assert run(host, "i,ij->ij", (20,), (20, 30)) == ["kernel elementwise_f32"]


def test_a_permutation_without_arithmetic_is_a_copy(host: Host) -> None:
    a = host.session.put(host.values((20, 30), "f32"))
    driver = host.session.device.driver  # type: ignore[attr-defined]
    host.session.submit(Permutation(a=a, modes_a="ij", modes_out="ji"))
    assert driver.calls[-2:] != []
    assert "kernel transpose_4" in driver.calls
    assert not any("elementwise" in call for call in driver.calls)


def test_scratch_memory_is_shared_by_plans_and_given_back(host: Host, driver: Any) -> None:
    a = host.session.put(host.values((300, 400), "f64"))
    for modes_out in ("", "i", "j"):
        host.session.submit(Reduction(a=a, modes_a="ij", modes_out=modes_out))
    run(host, "ij,jk,kl->il", (20, 30), (30, 40), (40, 50))
    host.session.close()
    assert not driver.blocks or all(block.nbytes <= 1 << 20 for block in driver.blocks.values())


def test_a_failed_call_is_a_library_error(host: Host, binding: HostCublas) -> None:
    binding.fails["gemm_strided_batched_ex"] = 13
    with pytest.raises(LibraryError, match="einsum: status 13"):
        run(host, "bij,bjk->bik", (3, 4, 5), (3, 5, 6))


def test_places_overlap_only_when_they_may() -> None:
    scratch = Scratch()
    first, second = scratch.take(100), scratch.take(1000)
    assert (first, second) == (0, ALIGNMENT)
    scratch.give(first)
    assert scratch.take(ALIGNMENT) == 0
    third = scratch.take(2 * ALIGNMENT)
    assert third == second + 1024
    scratch.give(second)
    assert scratch.take(1024) == second
    assert scratch.size == third + 2 * ALIGNMENT


def test_the_kernels_count_operators_as_the_messages_do() -> None:
    source = (resources.files("callboard.backends.cuda") / "data" / "tensor_numbers.cuh").read_text("utf-8")
    for kind, names in (("Unary", UNARY), ("Binary", BINARY)):
        found = re.search(rf"enum {kind} \{{(.*?)\}};", source, re.DOTALL)
        assert found is not None
        assert [name.strip().lower() for name in found[1].split(",")] == list(names)


def test_the_kernels_count_kinds_of_layout_as_their_arguments_do() -> None:
    source = (resources.files("callboard.backends.cuda") / "data" / "tensor_elements.cu").read_text("utf-8")
    assert "enum Regular { IRREGULAR, PACKS, SAME_A, SAME_C };" in source
    assert (IRREGULAR, PACKS, SAME_A, SAME_C) == (0, 1, 2, 3)
    assert f"const int BELOW = {BELOW};" in source
