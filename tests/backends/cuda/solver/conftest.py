from collections.abc import Callable, Iterator
from typing import Any

import pytest
from host_backend import HostSession
from host_cudss import CsrKernel, CudssError, HostCudss
from host_cusolver import CusolverError, HostCusolver, HostSolverBlas
from host_driver import HostDriver, HostKernels

from callboard.backends.cuda.blas import cublas
from callboard.backends.cuda.kernels import source_text
from callboard.backends.cuda.solver import cudss as cudss_module
from callboard.backends.cuda.solver import cusolver as module


@pytest.fixture
def scaling(request: pytest.FixtureRequest) -> Callable[[str], Any]:
    """The kernels of ``data/solver_scaling.cu`` by name, compiled for the CPU when the first of them is asked for."""

    def found(name: str) -> Callable[[Any, int, int], None]:
        library = request.getfixturevalue("compiler").library(source_text("solver_scaling").decode())
        run = getattr(library, f"run_{name}")

        def launch(params: Any, blocks: int, threads: int) -> None:
            assert run(params, blocks, 1, threads) == 0

        return launch

    return found


@pytest.fixture
def cusolver(driver: HostDriver, scaling: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> HostCusolver:
    """In place of NVIDIA's bindings of cuSOLVER and cuBLAS, and of the solver's kernels."""
    stand_in, blas, kernels = HostCusolver(driver), HostSolverBlas(driver), {}
    blas.memory = stand_in
    monkeypatch.setattr(cublas, "load_cublas", lambda: blas)
    monkeypatch.setattr(module, "load_cusolver", lambda: (stand_in, CusolverError))
    get, launch = HostKernels.get, HostDriver.launch_kernel

    def found(self: HostKernels, source: str, name: str) -> int:
        handle = get(self, source, name)
        if source == "solver":
            kernels[handle] = CsrKernel(driver, name)
        elif source == "solver_scaling":
            kernels[handle] = scaling(name)
        return handle

    def launched(self: HostDriver, function: int, *arguments: Any) -> int:
        if function not in kernels:
            return launch(self, function, *arguments)
        assert all(n > 0 for n in arguments[:6])
        kernels[function](arguments[8], arguments[0], arguments[3])
        return self._enqueued("kernel", arguments[7])

    monkeypatch.setattr(HostKernels, "get", found)
    monkeypatch.setattr(HostDriver, "launch_kernel", launched)
    return stand_in


@pytest.fixture
def cudss(driver: HostDriver, monkeypatch: pytest.MonkeyPatch) -> HostCudss:
    """In place of NVIDIA's bindings of cuDSS."""
    stand_in = HostCudss(driver)
    monkeypatch.setattr(cudss_module, "load_cudss", lambda: (stand_in, CudssError))
    return stand_in


@pytest.fixture
def session(driver: HostDriver, cusolver: HostCusolver, cudss: HostCudss) -> Iterator[HostSession]:
    with HostSession(driver) as opened:
        yield opened
