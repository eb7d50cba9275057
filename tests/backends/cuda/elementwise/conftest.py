"""A session on the stand-in for the driver, whose kernels are compiled by g++."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package

from host_backend import HostSession
from on_host import COMPILER, CompiledKernels, CompilingDriver


@pytest.fixture(scope="package")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostSession]:
    if COMPILER is None:
        pytest.skip("there is no g++ to compile the generated kernels with")
    driver = CompilingDriver()
    with HostSession(driver) as session:
        session.device.kernels = CompiledKernels(driver, tmp_path_factory.mktemp("kernels"))  # type: ignore[attr-defined]
        yield session
