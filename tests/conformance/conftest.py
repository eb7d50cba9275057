"""What the conformance suites run over: the fixture ``session``, once for every backend."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from callboard.core.errors import BackendUnavailable
from callboard.testing.device_session import DeviceSession
from callboard.testing.session import LibrarySession

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode has no package to import blas_lab from

SESSIONS = [
    pytest.param("library:cpu", id="library-cpu"),
    pytest.param("thread:cpu", id="cpu-thread"),
    pytest.param("process:cpu", id="cpu-process"),
    pytest.param("library:cuda", id="library-cuda", marks=pytest.mark.gpu),
    pytest.param("graph:cuda", id="graph-cuda", marks=pytest.mark.gpu),
    pytest.param("process:cuda", id="cuda-process", marks=pytest.mark.gpu),
    pytest.param("thread:cuda", id="cuda-thread", marks=pytest.mark.gpu),
]


@pytest.fixture(scope="module", params=SESSIONS)
def session(request: pytest.FixtureRequest) -> Iterator[LibrarySession | DeviceSession]:
    """Methods: ``put``, ``empty``, ``get``, ``submit``, ``why_not``; see :class:`LibrarySession`."""
    kind, _, backend = request.param.partition(":")
    try:
        opened = (
            LibrarySession(backend, capture=kind == "graph")
            if kind in ("library", "graph")
            else DeviceSession(backend, isolation=kind, standby=None, max_restarts=0)
        )
    except BackendUnavailable as e:
        if os.environ.get("CALLBOARD_REQUIRE") == backend:
            pytest.fail(f"CALLBOARD_REQUIRE={backend}: {e}")
        pytest.skip(f"backend {backend!r} cannot be used: {e}")
    with opened:
        yield opened
