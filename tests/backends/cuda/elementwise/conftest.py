"""A session on the stand-in for the driver, whose kernels are compiled by g++."""

from collections.abc import Iterator

import pytest
from host_backend import HostSession
from host_compiler import CompiledKernels, CompilingDriver, HostCompiler


@pytest.fixture(scope="package")
def host(compiler: HostCompiler) -> Iterator[HostSession]:
    driver = CompilingDriver()
    with HostSession(driver) as session:
        session.device.kernels = CompiledKernels(driver, compiler)  # type: ignore[attr-defined]
        yield session
