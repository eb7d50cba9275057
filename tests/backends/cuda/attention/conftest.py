"""A session on the stand-in for the driver whose kernels of attention are compiled by g++; cuDNN is not there."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package

from emulation import COMPILER, Emulated, emulated
from host_backend import HostSession
from host_driver import HostDriver

from callboard.backends.cuda.attention import library
from callboard.core.errors import BackendUnavailable


def no_cudnn(*_: Any) -> Any:
    raise BackendUnavailable("cuDNN's frontend is not here")


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where compiled kernels are kept, for all tests of this folder."""
    if COMPILER is None:
        pytest.skip("there is no g++ to compile the kernels with")
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(scope="package")
def session(folder: Path) -> Iterator[HostSession]:
    driver = HostDriver()
    emulated(driver, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "CudnnGraphs", no_cudnn)
        with HostSession(driver) as opened:
            opened.device.kernels = Emulated(driver)  # type: ignore[attr-defined]
            yield opened
