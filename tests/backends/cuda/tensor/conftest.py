"""Sessions on the stand-ins for cuBLAS and cuTENSOR: with our own kernels alone, and with cuTENSOR."""

import sys
from pathlib import Path

import pytest
from host_cutensor import HostCutensor
from host_driver import HostDriver

from callboard.backends.cuda.tensor import choice

sys.path.insert(0, str(Path(__file__).parents[3] / "conformance"))  # tests are no package


@pytest.fixture
def cutensor(driver: HostDriver, monkeypatch: pytest.MonkeyPatch) -> HostCutensor:
    """In place of ``nvmath.bindings.cutensor``; asked for all that it takes."""
    stand_in = HostCutensor(driver)
    monkeypatch.setattr(choice, "load_cutensor", lambda: (stand_in, 20801))
    monkeypatch.setenv(choice.VARIABLE, "cutensor")
    return stand_in


@pytest.fixture(params=["builtin", "cutensor"])
def engine(request: pytest.FixtureRequest, cutensor: HostCutensor, monkeypatch: pytest.MonkeyPatch) -> str:
    """The engine that serves what it can."""
    name: str = request.param
    monkeypatch.setenv(choice.VARIABLE, name)
    return name
