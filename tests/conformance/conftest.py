"""The fixture ``session`` of the conformance suites, once for every backend and isolation."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode has no package to import blas_lab from

from sessions import SESSIONS, opened

from callboard.testing.device_session import DeviceSession
from callboard.testing.session import LibrarySession


@pytest.fixture(scope="module", params=SESSIONS)
def session(request: pytest.FixtureRequest) -> Iterator[LibrarySession | DeviceSession]:
    """Methods: ``put``, ``empty``, ``get``, ``submit``, ``why_not``; see :class:`LibrarySession`."""
    yield from opened(request.param)
