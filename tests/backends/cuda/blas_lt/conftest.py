"""cuBLASLt as a stand-in that executes on host memory."""

import sys
from collections.abc import Iterator
from pathlib import Path

import host_cublaslt
import pytest
from host_backend import HostSession
from host_cublas import HostCublas
from host_cublaslt import HostCublasLt
from host_driver import HostDriver

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package
sys.path.insert(0, str(Path(__file__).parents[3] / "conformance"))

from callboard.backends.cuda.blas_lt import cublaslt


@pytest.fixture
def lt(driver: HostDriver, monkeypatch: pytest.MonkeyPatch) -> HostCublasLt:
    """In place of ``nvmath.bindings.cublasLt``."""
    stand_in = HostCublasLt(driver)
    monkeypatch.setattr(cublaslt, "load_cublaslt", lambda: stand_in)
    kernels = {"_epilogue": host_cublaslt.epilogue, "_sums": host_cublaslt.sums}
    for name, kernel in kernels.items():
        monkeypatch.setattr(
            HostDriver, name, lambda self, kind, params, run=kernel: run(kind, params[0]), raising=False
        )
    return stand_in


@pytest.fixture
def session(driver: HostDriver, binding: HostCublas, lt: HostCublasLt) -> Iterator[HostSession]:
    with HostSession(driver) as opened:
        yield opened
