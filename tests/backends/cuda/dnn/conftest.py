"""A session on the stand-in for the driver, whose kernels are compiled by g++; cuDNN is not there."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "elementwise")]  # tests are no package

from host_backend import HostSession
from on_host import COMPILER, CompiledKernels, CompilingDriver

from callboard.backends.cuda.dnn import library


class NoCudnn:
    """What serves no op but those of custom kernels."""

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture(scope="package")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostSession]:
    if COMPILER is None:
        pytest.skip("there is no g++ to compile the kernels with")
    driver = CompilingDriver()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "Cudnn", NoCudnn)
        with HostSession(driver) as session:
            kernels = CompiledKernels(driver, tmp_path_factory.mktemp("kernels"))
            session.device.kernels = kernels  # type: ignore[attr-defined]
            yield session
