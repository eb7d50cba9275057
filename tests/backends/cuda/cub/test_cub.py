"""``CudaCub`` over stand-ins for driver, kernels and ``cuda.compute``: conformance suite, and CUDA specifics."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis
import numpy as np
import pytest
from host_backend import HostSession
from host_cccl import Algorithm, HostCompute
from host_cub import CubDriver, compiled
from host_driver import HostKernels

from callboard.backends.cuda.cub import cccl
from callboard.backends.cuda.kernelcache import KernelCache
from callboard.backends.cuda.plans import PlanMemory, Span
from callboard.core.errors import BackendUnavailable, LibraryError
from callboard.kernel import cub

SETTINGS = "_hypothesis_internal_use_settings"
"""Where hypothesis keeps the settings of a test."""
SUITES = Path(__file__).parents[3] / "conformance"
sys.path.insert(0, str(SUITES))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def compute() -> list[HostCompute]:
    return []


@pytest.fixture(scope="module")
def session(folder: Path, compute: list[HostCompute]) -> Iterator[HostSession]:
    driver = CubDriver()
    stand_in = HostCompute(driver)
    compute.append(stand_in)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cccl, "load_compute", lambda: stand_in)
        patch.setattr(cccl, "versions", lambda: "1")
        patch.setattr(cccl, "KernelCache", lambda: KernelCache(folder))
        patch.setattr(HostKernels, "compile", compiled)
        with HostSession(driver) as opened:
            yield opened


LOAD = cccl.load_compute
EXAMPLES = 3
"""Drawn for each test of the suites, which draw more on the CPU."""


def suite(name: str) -> dict[str, Any]:
    """The tests of a conformance suite."""
    spec = importlib.util.spec_from_file_location(f"host_{name}", SUITES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tests = {f"{test}_of_{name}": found for test, found in vars(module).items() if test.startswith("test_")}
    for test in tests.values():
        if hasattr(test, SETTINGS):
            setattr(test, SETTINGS, hypothesis.settings(getattr(test, SETTINGS), max_examples=EXAMPLES))
    return tests


for _name in ("test_cub", "test_cub_sorting", "test_cub_selection"):
    globals().update(suite(_name))
del globals()["test_a_text_that_is_none_of_test_cub"]  # the stand-in compiles everything
del globals()["test_more_elements_than_a_block_of_partial_results_takes_of_test_cub"]  # it has no such blocks


# -- builds ------------------------------------------------------------------------------------------------------------


def test_an_algorithm_is_compiled_once_and_read_from_disk_by_the_next(
    session: HostSession, compute: list[HostCompute], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = compute[0].made
    x = session.put(np.arange(7, dtype=np.uint16))
    for n in (7, 5):
        assert int(session.get(session.submit(cub.Reduce(x=x[:n], operation="max")))) == n - 1
    before, files = len(made), sorted(folder.glob("cub_reduce_into-*.bin"))
    assert files
    other = cccl.Cccl(session.device)  # type: ignore[arg-type]
    spans = {"d_in": Span(np.uint16), "d_out": Span(np.uint16), "h_init": np.zeros(1, np.uint16)}
    settings = {"determinism": compute[0].Determinism.RUN_TO_RUN}
    memory = PlanMemory(other)
    other.step(memory, "reduce_into", settings, {"num_items": 7}, op=compute[0].OpKind.MAXIMUM, **spans)
    assert len(made) == before
    other.step(memory, "reduce_into", settings, {"num_items": 7}, op=compute[0].OpKind.MINIMUM, **spans)
    assert len(made) == before + 1
    for file in folder.glob("cub_reduce_into-*.bin"):
        file.write_bytes(b"broken")
    again = cccl.Cccl(session.device)  # type: ignore[arg-type]
    again.step(memory, "reduce_into", settings, {"num_items": 7}, op=compute[0].OpKind.MAXIMUM, **spans)
    assert len(made) == before + 2, "a broken file is compiled again"
    for one in (other, again):
        one.close()


def test_what_the_binding_raises_is_an_error_of_the_library(
    session: HostSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Algorithm, **arguments: Any) -> None:
        raise RuntimeError("Failed executing reduce, error code: 7")

    x = session.put(np.ones(3, np.float32))
    session.submit(cub.Reduce(x=x))
    monkeypatch.setattr(Algorithm, "reduce_into", fails)
    with pytest.raises(LibraryError, match=r"cuda\.compute reduce_into: Failed executing reduce, error code: 7"):
        session.submit(cub.Reduce(x=x))


def test_without_the_package_the_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (None, SimpleNamespace()):  # not installed; installed, but without a driver
        monkeypatch.setitem(sys.modules, "cuda.compute", module)
        with pytest.raises(BackendUnavailable, match=r'CUB cannot be used: .*pip install "callboard\[cub13\]"'):
            LOAD()


def test_plans_share_one_workspace_and_give_it_back(session: HostSession) -> None:
    x = session.put(np.arange(1000, dtype=np.float32))
    session.submit(cub.Sort(keys=x))
    library: Any = session._libraries["cub"]
    workspace = library.cccl.workspace
    before = sum(room.plans for room in workspace._rooms)
    plan = library.prepare(cub.SortPairs(keys=x, values=x))
    assert sum(room.plans for room in workspace._rooms) == before + 1
    plan.close()
    assert sum(room.plans for room in workspace._rooms) == before
