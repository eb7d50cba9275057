"""``autotune``: which algorithm is taken, by times of a clock that the stand-ins share; and on a GPU, by its own."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from blas_lab import values
from blas_lt_lab import EPILOGUES
from host_cublaslt import HostCublasLt
from host_driver import HostDriver
from lt_products import product
from sessions import opened

from callboard.backends.cuda.blas_lt import cublaslt
from callboard.backends.cuda.blas_lt.tuning import RUNS
from callboard.core.dtype import DTYPES
from callboard.core.errors import LibraryError
from callboard.kernel.blas_lt import Matmul
from callboard.testing.session import LibrarySession

ALGORITHMS = (66, 21, 5)
TIMED = 1 + RUNS
"""Products that an algorithm makes to be timed: one that loads what has to be loaded, and those that count."""


@pytest.fixture
def lt(lt: HostCublasLt) -> HostCublasLt:
    """Proposes three algorithms, the second of which is the fastest; each rounds in its own way."""
    lt.wide = ALGORITHMS
    lt.durations = {66: [3.0], 21: [1.0], 5: [2.0]}
    lt.sums = {21: "f4", 5: "f2"}
    return lt


class Case:
    """A product of f64 on a session: called with settings, it gives the result's bytes."""

    def __init__(self, session: LibrarySession) -> None:
        self._session = session
        self.a, self.b = (session.put(values(DTYPES["f64"], (8, 8), seed)) for seed in (1, 2))

    def __call__(self, **settings: Any) -> bytes:
        return self._session.get(self._session.submit(Matmul(a=self.a, b=self.b, **settings))).tobytes()

    def fetched(self, name: str) -> Any:
        return self._session.get(getattr(self, name))


@pytest.fixture
def case(session: LibrarySession, lt: HostCublasLt) -> Case:
    return Case(session)


@pytest.mark.parametrize("fastest", ALGORITHMS)
def test_the_fastest_multiplies_and_its_bits_are_the_result(case: Case, lt: HostCublasLt, fastest: int) -> None:
    lt.durations = {identity: [0.5 if identity == fastest else 1.0] for identity in ALGORITHMS}
    got = case(autotune=3)
    assert Counter(lt.chosen[:-1]) == dict.fromkeys(ALGORITHMS, TIMED)
    assert lt.chosen[-1] == fastest
    bits = {}
    for identity in ALGORITHMS:
        lt.wide = (identity,)
        bits[identity] = case(workspace_size=identity)  # other settings each time, so other plans
    assert len(set(bits.values())) == len(ALGORITHMS)  # or the next line would show nothing
    assert got == bits[fastest]


def test_the_choice_is_kept_and_timed_no_second_time(case: Case, lt: HostCublasLt, driver: HostDriver) -> None:
    case(autotune=3)
    lt.chosen.clear()
    before, lt.durations[21] = driver.clock, [100.0]  # whoever asked again would take another one
    case(autotune=3)
    case(autotune=3, alpha=2.0)
    case.a = case.b
    case(autotune=3)
    assert lt.chosen == [21, 21, 21]
    assert driver.clock == before + 300


def test_of_several_times_the_smallest_counts_and_the_first_run_does_not(case: Case, lt: HostCublasLt) -> None:
    lt.durations = {66: [0.1, 4.0], 21: [50.0, 9.0, 9.0, 2.0, 9.0, 9.0, 9.0], 5: [3.0]}
    case(autotune=3)
    assert lt.chosen[-1] == 21


@pytest.mark.parametrize("failing", [{21}, {66, 21}])
def test_one_that_fails_is_passed_over(case: Case, lt: HostCublasLt, failing: set[int]) -> None:
    lt.failing = failing
    case(autotune=3)
    assert lt.chosen[-1] == 5
    assert Counter(lt.chosen[:-1]) == {i: 1 if i in failing else TIMED for i in ALGORITHMS}


def test_where_all_fail_the_call_says_so(case: Case, lt: HostCublasLt) -> None:
    lt.failing = set(ALGORITHMS)
    with pytest.raises(LibraryError, match="cublasLtMatmul"):
        case(autotune=3)


@pytest.mark.parametrize("candidates, timed", [(0, 0), (1, 0), (2, 2), (3, 3), (64, 3)])
def test_as_many_candidates_are_timed_as_are_wanted(case: Case, lt: HostCublasLt, candidates: int, timed: int) -> None:
    case(autotune=candidates)
    assert Counter(lt.chosen[:-1]) == dict.fromkeys(ALGORITHMS[:timed], TIMED)


def test_the_algorithm_for_vectors_is_not_timed_where_there_is_an_addend(
    session: LibrarySession, lt: HostCublasLt
) -> None:
    lt.wide = (13, 66, 5)
    x = session.put(np.eye(4))
    session.submit(Matmul(a=x, b=x, c=session.put(np.ones((4, 4))), beta=1.0, autotune=3))
    assert Counter(lt.chosen[:-1]) == {66: TIMED, 5: TIMED}


def test_nothing_of_the_timing_stays(case: Case, lt: HostCublasLt, driver: HostDriver) -> None:
    """The operands that were made for it, and its events, are gone; the call's own were not touched."""
    case()
    held, a = driver.blocks.copy(), case.fetched("a")
    case(autotune=3)
    made = [block.nbytes for address, block in driver.blocks.items() if address not in held]
    assert made in ([], [8 * 8 * 8])  # the result at most
    assert not driver.timed
    np.testing.assert_array_equal(case.fetched("a"), a)


@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_products_of_every_kind_can_be_timed(session: LibrarySession, lt: HostCublasLt, epilogue: str) -> None:
    """Whatever a kind reads or writes has memory of its own for it, and numbers are on the host meanwhile."""
    product(session, epilogue, "f32", batch=(3,), factors=(0.5, 1.0), extra={"on device": True}, autotune=3)
    assert lt.chosen == [i for i in ALGORITHMS for _ in range(TIMED)] + [21]


def test_scaled_products_can_be_timed(session: LibrarySession, lt: HostCublasLt) -> None:
    a, b = (session.put(np.ones((16, 16), DTYPES["f8_e4m3"].np)) for _ in "ab")
    two, amax = session.put(np.float32(2)), session.put(np.float32(7))
    op = Matmul(a=a, b=b, scale_a=two, scale_b=two, amax=amax, transpose_b=True, out_dtype="f8_e4m3", autotune=3)
    assert (session.get(session.submit(op)).astype("f4") == 64).all()
    assert session.get(amax) == 64
    assert Counter(lt.chosen[:-1]) == dict.fromkeys(ALGORITHMS, TIMED)


# -- on a GPU ----------------------------------------------------------------------------------------------------------


class Watched:
    """A binding that writes down which algorithm multiplied on which stream."""

    def __init__(self, binding: Any) -> None:
        self._binding = binding
        self.products: list[tuple[int, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._binding, name)

    def matmul(self, *arguments: int) -> None:
        self.products.append((arguments[12], arguments[15]))
        self._binding.matmul(*arguments)


@pytest.fixture
def gpu_session() -> Iterator[Any]:
    yield from opened("library:cuda")


@pytest.mark.gpu
def test_on_a_gpu_the_fastest_of_those_timed_is_taken_and_kept(
    gpu_session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched, driver, times = Watched(cublaslt.load_cublaslt()), gpu_session.device.driver, list[float]()
    monkeypatch.setattr(cublaslt, "load_cublaslt", lambda: watched)
    elapsed = driver.event_elapsed

    def told(out: Any, first: int, last: int) -> None:
        elapsed(out, first, last)
        times.append(out._obj.value)

    monkeypatch.setattr(driver, "event_elapsed", told)
    a, b = (gpu_session.put(values(DTYPES["bf16"], (1000, 1000), seed)) for seed in (1, 2))
    op = Matmul(a=a, b=b, autotune=8)
    first = gpu_session.get(gpu_session.submit(op))
    *timing, (taken, stream) = watched.products
    candidates = list(dict.fromkeys(algorithm for algorithm, _ in timing))
    assert 2 <= len(candidates) <= 8
    assert timing == [(c, timing[0][1]) for c in candidates for _ in range(TIMED)]
    assert timing[0][1] != stream  # beside the work
    assert len(times) == RUNS * len(candidates)
    best = {c: min(times[RUNS * i : RUNS * (i + 1)]) for i, c in enumerate(candidates)}
    assert best[taken] == min(best.values())
    watched.products.clear()
    again = gpu_session.get(gpu_session.submit(op))
    assert watched.products == [(taken, stream)]
    np.testing.assert_array_equal(again, first)
