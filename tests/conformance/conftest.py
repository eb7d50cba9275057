"""The fixture ``session`` of the conformance suites, once for every backend and isolation."""

import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode has no package to import blas_lab from

from sessions import SESSIONS, opened

from callboard.testing.device_session import DeviceSession
from callboard.testing.session import LibrarySession


@pytest.fixture(scope="module", params=SESSIONS)
def session(request: pytest.FixtureRequest) -> Iterator[LibrarySession | DeviceSession]:
    """Methods: ``put``, ``empty``, ``get``, ``submit``, ``why_not``; see :class:`LibrarySession`."""
    yield from opened(request.param)


REPEATS = ("thread:cpu", "process:cpu")
"""They compute on the CPU what ``library:cpu`` does, behind a host and a wire."""
SETTINGS = "_hypothesis_internal_use_settings"
"""Where hypothesis keeps the settings of a test; there is no public way to change them for one of its sessions."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A third of the examples where a session repeats another's numbers: what it adds is the way there and back."""
    test = getattr(item, "function", None)
    settings: hypothesis.settings | None = getattr(test, SETTINGS, None)
    callspec = getattr(item, "callspec", None)
    if settings is None or callspec is None or callspec.params.get("session") not in REPEATS:
        return (yield)
    setattr(test, SETTINGS, hypothesis.settings(settings, max_examples=-(-settings.max_examples // 3)))
    try:
        return (yield)
    finally:
        setattr(test, SETTINGS, settings)
