"""The CUDA backend on stand-ins for driver and cuBLAS that execute on host memory."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package

from blas_host import Host
from host_backend import INFO, HostCudaBackend, HostSession
from host_compiler import COMPILER, HostCompiler
from host_cublas import HostCublas
from host_driver import HostDriver

from callboard.backends.cuda.blas import cublas
from callboard.backends.cuda.device import CudaDevice


@pytest.fixture(scope="session")
def compiler(pytestconfig: pytest.Config) -> HostCompiler:
    if COMPILER is None:
        pytest.skip("there is no g++ to compile the kernels with")
    return HostCompiler(pytestconfig.cache.mkdir("kernels"))


@pytest.fixture
def driver() -> HostDriver:
    return HostDriver()


@pytest.fixture
def binding(driver: HostDriver, monkeypatch: pytest.MonkeyPatch) -> HostCublas:
    """In place of ``nvmath.bindings.cublas``."""
    stand_in = HostCublas(driver)
    monkeypatch.setattr(cublas, "load_cublas", lambda: stand_in)
    return stand_in


@pytest.fixture
def device(driver: HostDriver) -> Iterator[CudaDevice]:
    opened = HostCudaBackend(driver).open(INFO)
    yield opened
    opened.close()


@pytest.fixture
def session(driver: HostDriver, binding: HostCublas) -> Iterator[HostSession]:
    with HostSession(driver) as opened:
        yield opened


@pytest.fixture
def idle_session(driver: HostDriver, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostSession]:
    """One whose kernels compute nothing; with the stand-ins of ``host_idle``."""

    def launch(self: HostDriver, function: int, *arguments: Any) -> int:
        return self._enqueued("kernel", arguments[7])

    monkeypatch.setattr(HostDriver, "launch_kernel", launch)
    driver.fresh = 0  # what is counted on the device is 0
    with HostSession(driver) as opened:
        yield opened


@pytest.fixture
def anything() -> Any:
    """Stands for an argument that a stand-in ignores."""
    return object()


@pytest.fixture
def host(session: HostSession) -> Host:
    return Host(session, 5)
