"""cuBLASLt as a stand-in; kernels of epilogues, groups and patches compiled by g++."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from host_backend import HostSession
from host_compiler import CompiledKernels, CompilingDriver, HostCompiler
from host_cublaslt import HostCublasLt

sys.path.insert(0, str(Path(__file__).parents[3] / "conformance"))

from callboard.backends.cuda.blas_lt import cublaslt


@pytest.fixture(scope="package")
def session(compiler: HostCompiler) -> Iterator[HostSession]:
    driver = CompilingDriver()
    stand_in = HostCublasLt(driver)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cublaslt, "load_cublaslt", lambda: stand_in)
        with HostSession(driver) as opened:
            opened.device.kernels = CompiledKernels(driver, compiler, "cutlass", "blas_lt")  # type: ignore[attr-defined]
            opened.launches_templates = False  # type: ignore[attr-defined]
            yield opened
