"""What the conformance suites run over: the sessions of every backend, and how one is opened."""

import os
from collections.abc import Iterator

import pytest

from callboard.core.errors import BackendUnavailable
from callboard.testing.device_session import DeviceSession
from callboard.testing.session import LibrarySession

CPU = [
    pytest.param("library:cpu", id="library-cpu"),
    pytest.param("thread:cpu", id="cpu-thread"),
    pytest.param("process:cpu", id="cpu-process"),
]
HOSTS = [
    pytest.param("process:cuda", id="cuda-process", marks=pytest.mark.gpu),
    pytest.param("thread:cuda", id="cuda-thread", marks=pytest.mark.gpu),
]
SESSIONS = [
    *CPU,
    pytest.param("recorded:cpu", id="cpu-recorded"),
    pytest.param("library:cuda", id="library-cuda", marks=pytest.mark.gpu),
    pytest.param("graph:cuda", id="graph-cuda", marks=pytest.mark.gpu),
    *HOSTS,
    pytest.param("recorded:cuda", id="cuda-recorded", marks=pytest.mark.gpu),
]


def opened(name: str) -> Iterator[LibrarySession | DeviceSession]:
    """The session of a name of :data:`SESSIONS`."""
    kind, _, backend = name.partition(":")
    try:
        session = (
            # CUDA itself refuses what a launch must not do, while it records.
            LibrarySession(backend, capture=kind == "graph", pure=backend == "cpu")
            if kind in ("library", "graph")
            else DeviceSession(
                backend,
                recorded=kind == "recorded",
                isolation="thread" if kind == "recorded" else kind,
                standby=None,
                max_restarts=0,
            )
        )
    except BackendUnavailable as e:
        if os.environ.get("CALLBOARD_REQUIRE") == backend:
            pytest.fail(f"CALLBOARD_REQUIRE={backend}: {e}")
        pytest.skip(f"backend {backend!r} cannot be used: {e}")
    with session:
        yield session
