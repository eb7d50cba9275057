"""A session on the stand-in for the driver whose kernels of attention are compiled by g++; cuDNN is not there."""

from collections.abc import Iterator
from typing import Any

import pytest
from host_backend import HostSession
from host_compiler import CompiledKernels, CompilingDriver, HostCompiler

from callboard.backends.cuda.attention import library
from callboard.core.errors import BackendUnavailable


def no_cudnn(*_: Any) -> Any:
    raise BackendUnavailable("cuDNN's frontend is not here")


@pytest.fixture(scope="package")
def session(compiler: HostCompiler) -> Iterator[HostSession]:
    driver = CompilingDriver()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "CudnnGraphs", no_cudnn)
        with HostSession(driver) as opened:
            opened.device.kernels = CompiledKernels(driver, compiler, "attention")  # type: ignore[attr-defined]
            yield opened
