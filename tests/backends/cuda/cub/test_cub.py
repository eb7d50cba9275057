"""``CudaCub`` over stand-ins for driver, kernels and ``cuda.compute``: the conformance suite, and what is CUDA's own."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from host_backend import HostSession
from host_cccl import HostCompute
from host_cub import CubDriver, compiled
from host_driver import HostKernels

from callboard.backends.cuda.cub import cccl

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
        patch.setattr(cccl, "cache_folder", lambda: folder)
        patch.setattr(HostKernels, "compile", compiled)
        with HostSession(driver) as opened:
            yield opened


def suite(name: str) -> dict[str, Any]:
    """The tests of a conformance suite."""
    spec = importlib.util.spec_from_file_location(f"host_{name}", SUITES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {f"{test}_of_{name}": found for test, found in vars(module).items() if test.startswith("test_")}


for _name in ("test_cub", "test_cub_sorting", "test_cub_selection"):
    globals().update(suite(_name))
del globals()["test_a_text_that_is_none_of_test_cub"]  # the stand-in compiles everything
