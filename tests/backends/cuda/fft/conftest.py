from collections.abc import Iterator

import pytest
from host_backend import HostSession
from host_cufft import HostCufft
from host_driver import HostDriver

from callboard.backends.cuda.fft import cufft as module


@pytest.fixture
def cufft(driver: HostDriver, monkeypatch: pytest.MonkeyPatch) -> HostCufft:
    """In place of ``nvmath.bindings.cufft``."""
    stand_in = HostCufft(driver)
    monkeypatch.setattr(module, "load_cufft", lambda: stand_in)
    return stand_in


@pytest.fixture
def session(driver: HostDriver, cufft: HostCufft) -> Iterator[HostSession]:
    with HostSession(driver) as opened:
        yield opened
