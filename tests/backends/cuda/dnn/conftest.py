"""A session on the stand-in for the driver, whose kernels are compiled by g++; cuDNN is not there."""

from collections.abc import Iterator

import pytest
from host_backend import HostSession
from host_compiler import CompiledKernels, CompilingDriver, HostCompiler

from callboard.backends.cuda.dnn import library


class NoCudnn:
    """What serves no op but those of custom kernels."""

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture(scope="package")
def host(compiler: HostCompiler) -> Iterator[HostSession]:
    driver = CompilingDriver()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "Cudnn", NoCudnn)
        with HostSession(driver) as session:
            session.device.kernels = CompiledKernels(driver, compiler)  # type: ignore[attr-defined]
            yield session
