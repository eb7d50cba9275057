"""The conformance suite of contractions on the stand-ins, with each engine."""

from collections.abc import Iterator

import pytest
from host_backend import HostSession
from host_cublas import HostCublas
from host_cutensor import HostCutensor
from host_driver import HostDriver
from test_tensor import *  # noqa: F403 - its tests, with this folder's session


@pytest.fixture
def session(engine: str, cutensor: HostCutensor, driver: HostDriver, binding: HostCublas) -> Iterator[HostSession]:
    with HostSession(driver) as opened:
        yield opened
    assert cutensor.live == {}, "what was created is destroyed"
