"""What the conformance suites run over: the fixture ``session``, once for every backend."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from callboard.core.errors import BackendUnavailable
from callboard.testing.session import LibrarySession

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode has no package to import blas_lab from

SESSIONS = [
    pytest.param("library:cpu", id="library-cpu"),
    pytest.param("library:cuda", id="library-cuda", marks=pytest.mark.gpu),
]


@pytest.fixture(scope="module", params=SESSIONS)
def session(request: pytest.FixtureRequest) -> Iterator[LibrarySession]:
    """Methods: ``put``, ``empty``, ``get``, ``submit``, ``why_not``; see :class:`LibrarySession`."""
    backend = request.param.partition(":")[2]
    try:
        opened = LibrarySession(backend)
    except BackendUnavailable as e:
        if os.environ.get("CALLBOARD_REQUIRE") == backend:
            pytest.fail(f"CALLBOARD_REQUIRE={backend}: {e}")
        pytest.skip(f"backend {backend!r} cannot be used: {e}")
    with opened:
        yield opened
