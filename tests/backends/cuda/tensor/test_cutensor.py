"""Calls of cuTENSOR, over stand-ins for the driver, cuBLAS and cuTENSOR that execute on host memory."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from blas_host import Host
from host_backend import HostSession
from host_cublas import HostCublas
from host_cutensor import HostCutensor
from host_driver import HostDriver

from callboard.backends.cuda.tensor import choice
from callboard.backends.cuda.tensor.choice import VARIABLE, Choice
from callboard.core.errors import BackendUnavailable, LibraryError, OutOfMemory
from callboard.kernel.tensor import Contract, Einsum, ElementwiseBinary, ElementwiseTrinary, Permutation, Reduction


@pytest.fixture
def cutensor(driver: HostDriver, monkeypatch: pytest.MonkeyPatch) -> HostCutensor:
    """In place of ``nvmath.bindings.cutensor``; asked for all that it takes."""
    stand_in = HostCutensor(driver)
    monkeypatch.setattr(choice, "load_cutensor", lambda: (stand_in, 20801))
    monkeypatch.setenv(VARIABLE, "cutensor")
    return stand_in


@pytest.fixture
def session(cutensor: HostCutensor, driver: HostDriver, binding: HostCublas) -> Iterator[HostSession]:
    with HostSession(driver) as opened:
        yield opened
    assert cutensor.live == {}, "what was created is destroyed"


def close(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def contract(host: Host, modes: tuple[str, str, str], dtype: str = "f32", **settings: Any) -> Any:
    sizes = dict(zip("bijkl", (2, 3, 4, 5, 6), strict=True))
    a, b = (host.session.put(host.values(tuple(sizes[x] for x in m), dtype)) for m in modes[:2])
    op = Contract(a=a, b=b, modes_a=modes[0], modes_b=modes[1], modes_out=modes[2], **settings)
    got = host.get(host.session.submit(op))
    return got, np.einsum(f"{modes[0]},{modes[1]}->{modes[2]}", host.get(a), host.get(b)), host.session.engine_of(op)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "c64", "c128"])
def test_contractions(host: Host, cutensor: HostCutensor, binding: HostCublas, dtype: str) -> None:
    got, want, engine = contract(host, ("ibk", "kjb", "bij"), dtype, alpha=0.5)
    np.testing.assert_allclose(got, 0.5 * want, rtol=2e-2, atol=2e-2)
    assert (cutensor.calls, engine) == (["contract"], "cutensor")
    assert not any("gemm" in name for name, _ in binding.calls)


def test_integers_and_factors_on_the_device_are_not_its_own(host: Host, cutensor: HostCutensor) -> None:
    for dtype, settings in (("i32", {}), ("f32", {"alpha": host.scalar(2, "f32")})):
        got, want, engine = contract(host, ("ik", "kj", "ij"), dtype, **settings)
        close(got, 2 * want if settings else want)
        assert (cutensor.calls, engine) == ([], "builtin")


def test_what_a_version_refuses_another_engine_does(host: Host, cutensor: HostCutensor) -> None:
    for status in (7, 8, 14, 15):
        cutensor.fails = {"create_contraction": status}
        got, want, engine = contract(host, ("ik", "kj", "ij"), alpha=1.0 + status)
        close(got, (1.0 + status) * want)
        assert engine == "builtin"


def test_what_fails_is_an_error(host: Host, cutensor: HostCutensor) -> None:
    cutensor.fails = {"contract": 13}
    with pytest.raises(LibraryError, match="cutensorContract: status 13"):
        contract(host, ("ik", "kj", "ij"))
    cutensor.fails = {"create_plan": 13}
    with pytest.raises(LibraryError, match="cutensorCreatePlan: status 13"):
        contract(host, ("ik", "jk", "ij"))
    cutensor.fails = {"create_plan": 3}
    with pytest.raises(OutOfMemory):
        contract(host, ("ki", "kj", "ij"))


def test_steps_backward_and_repeated_operands(host: Host, cutensor: HostCutensor) -> None:
    a, b = host.session.put(host.values((4, 5), "f32")), host.session.put(host.values((5, 6), "f32"))
    got = host.session.submit(Contract(a=a[::-1], b=b, modes_a="ik", modes_b="kj", modes_out="ij"))
    close(host.get(got), host.get(a)[::-1] @ host.get(b))
    assert cutensor.calls == []
    row = host.session.put(host.values((1, 5), "f32"))
    got = host.session.submit(Einsum(equation="ik,ij->kj", operands=(row, b[:4])))
    close(host.get(got), np.einsum("k,ij->kj", host.get(row)[0], host.get(b)[:4]))


@pytest.mark.parametrize("offset", [0, 1])
def test_addresses_that_are_less_aligned_have_their_plan(host: Host, cutensor: HostCutensor, offset: int) -> None:
    a, b = host.session.put(host.values((21,), "f32")), host.session.put(host.values((4, 5), "f32"))
    for start in (offset, 1 - offset):  # equal layouts: one plan of ours
        got = host.session.submit(Einsum(equation="k,jk->j", operands=(a[start : start + 5], b)))
        close(host.get(got), host.get(b) @ host.get(a)[start : start + 5])
    assert cutensor.calls == ["contract", "contract"]


@pytest.mark.parametrize("unknown, asked", [((), [-2, 0]), ((0, 1), [-2, 2])])
def test_contractions_at_such_addresses_are_asked_by_number(
    host: Host, cutensor: HostCutensor, unknown: tuple[int, ...], asked: list[int]
) -> None:
    cutensor.unknown = {*unknown}
    got, want, _ = contract(host, ("ik", "kj", "ij"))
    close(got, want)
    assert cutensor.algorithms == asked


def test_another_engine_contracts_where_none_is_left_for_such_addresses(host: Host, cutensor: HostCutensor) -> None:
    cutensor.unknown = {0, 1, 2, 3}
    got, want, engine = contract(host, ("ik", "kj", "ij"))
    close(got, want)
    assert engine == "builtin"


@pytest.mark.parametrize("same", [False, True])
def test_what_is_added_is_brought_where_it_lies_in_another_way(
    host: Host, cutensor: HostCutensor, driver: HostDriver, same: bool
) -> None:
    a, b = (host.session.put(host.values(shape, "c64")) for shape in ((4, 5), (5, 6)))
    c = host.session.put(host.values((4, 6), "c64")) if same else host.session.put(host.values((6, 4), "c64")).T
    for beta in (0.0, 2.0):
        op = Contract(a=a, b=b, c=c, modes_a="ik", modes_b="kj", modes_out="ij", beta=beta, op_b="conj", op_c="conj")
        want = host.get(a) @ host.get(b).conj() + beta * host.get(c).conj()
        close(host.get(host.session.submit(op)), want)
    assert cutensor.calls.count("contract") == 2


def test_reductions(host: Host, cutensor: HostCutensor) -> None:
    a, c = host.session.put(host.values((4, 5, 6), "f64")), host.session.put(host.values((6, 4), "f64"))
    for join, reduce in (("add", np.sum), ("max", np.max)):
        op = Reduction(a=a, c=c, modes_a="ijk", modes_out="ki", op_reduce=join, op_a="exp", alpha=0.5, beta=2.0)
        close(host.get(host.session.submit(op)), 0.5 * reduce(np.exp(host.get(a)), axis=1).T + 2 * host.get(c))
    assert cutensor.calls == ["reduce", "reduce"]


def test_permutations_and_elementwise(host: Host, cutensor: HostCutensor) -> None:
    a, b, c = (host.session.put(host.values(shape, "f32")) for shape in ((4, 5), (5,), (5, 4)))
    x, y, z = map(host.get, (a, b, c))
    ops: list[tuple[Any, Any]] = [
        (Permutation(a=a, modes_a="ij", modes_out="ji", alpha=3.0, op_a="neg"), -3 * x.T),
        (ElementwiseBinary(a=b, c=c, modes_a="i", modes_out="ij", op_ac="max"), np.maximum(y[:, None], z)),
        (
            ElementwiseTrinary(
                a=a, b=b, c=c, modes_a="ji", modes_b="i", modes_out="ij", op_ab="mul", alpha=2.0, gamma=-1.0
            ),
            2 * x.T * y[:, None] - z,
        ),
    ]
    for op, want in ops:
        close(host.get(host.session.submit(op)), want)
        assert host.session.engine_of(op) == "cutensor"
    assert cutensor.calls == ["permute", "binary", "trinary"]


def test_what_0_multiplies_is_read_by_nobody(host: Host, cutensor: HostCutensor) -> None:
    a, nan = host.session.put(host.values((4, 5), "f32")), host.session.put(np.full((4, 5), np.nan, "f4"))
    op = ElementwiseBinary(a=a, c=nan, modes_a="ij", modes_out="ij", gamma=0.0)
    close(host.get(host.session.submit(op)), host.get(a))
    close(host.get(host.session.submit(Reduction(a=nan, modes_a="ij", modes_out="i", alpha=0.0))), np.zeros(4))
    assert cutensor.calls == []


def test_autotune_asks_every_algorithm_and_keeps_one(host: Host, cutensor: HostCutensor) -> None:
    before = len(cutensor.live)
    got, want, _ = contract(host, ("ibk", "kjb", "bij"), autotune=True)
    close(got, want)
    assert set(cutensor.algorithms) == {0, -1, -2, -3, -4, -6}
    assert len(cutensor.live) - before <= 3  # a handle, and two plans if it is the fastest


def test_auto_uses_it_for_what_it_is_better_at(
    driver: HostDriver, binding: HostCublas, cutensor: HostCutensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "auto")
    with HostSession(driver) as session:
        host = Host(session, 1)
        assert contract(host, ("ik", "kj", "ij"))[2] == "builtin"
        assert cutensor.live == {}, "no handle is made where none is needed"
        a = session.put(host.values((64, 64, 512), "f32"))
        op = Einsum(equation="abc,adc->bd", operands=(a, a))
        got = session.submit(op)
        assert session.engine_of(op) == "cutensor"
        close(host.get(got), np.einsum("abc,adc->bd", host.get(a), host.get(a)))
        monkeypatch.setattr(choice, "HUGE", 1)
        for modes_out, engine in (("ab", "builtin"), ("bc", "cutensor")):
            sums = Reduction(a=a, modes_a="abc", modes_out=modes_out)
            session.submit(sums)
            assert session.engine_of(sums) == engine
    assert cutensor.live == {}


def test_settings(monkeypatch: pytest.MonkeyPatch, driver: HostDriver) -> None:
    def missing() -> Any:
        raise BackendUnavailable("not here")

    monkeypatch.setattr(choice, "load_cutensor", missing)
    assert "without cuTENSOR (not here)" in Choice("auto").detail
    assert "as CALLBOARD_TENSOR_ENGINE says" in Choice("builtin").detail
    with pytest.raises(BackendUnavailable, match="not here"):
        Choice("cutensor")
    monkeypatch.setenv(VARIABLE, "fast")
    with pytest.raises(BackendUnavailable, match="CALLBOARD_TENSOR_ENGINE is 'fast'; it is one of auto, cutensor"):
        Choice()
    monkeypatch.setattr(choice, "load_cutensor", lambda: (HostCutensor(driver), 20801))
    assert Choice("auto").detail == "cuTENSOR 2.8.1 for what it is better at"
