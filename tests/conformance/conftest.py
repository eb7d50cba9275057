"""The fixture ``session`` of the conformance suites, once for every backend and isolation."""

import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from tests import thorough

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode has no package to import blas_lab from

from sessions import SESSIONS, opened

from callboard.testing.device_session import DeviceSession
from callboard.testing.session import LibrarySession


@pytest.fixture(scope="module", params=SESSIONS)
def session(request: pytest.FixtureRequest) -> Iterator[LibrarySession | DeviceSession]:
    """Methods: ``put``, ``empty``, ``get``, ``submit``, ``why_not``; see :class:`LibrarySession`."""
    yield from opened(request.param)


SETTINGS = "_hypothesis_internal_use_settings"
"""Where hypothesis keeps the settings of a test; there is no public way to change them for one of its sessions."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A third of the examples where a session repeats another's numbers: what it adds is the way there and back.

    Half of them elsewhere, in a plain run.
    """
    test = getattr(item, "function", None)
    settings: hypothesis.settings | None = getattr(test, SETTINGS, None)
    callspec = getattr(item, "callspec", None)
    session = None if callspec is None else callspec.params.get("session")
    part = 3 if session in thorough.REPEATS else 2 if thorough.is_plain(item.config) else 1
    if settings is None or session is None or part == 1:
        return (yield)
    setattr(test, SETTINGS, hypothesis.settings(settings, max_examples=-(-settings.max_examples // part)))
    try:
        return (yield)
    finally:
        setattr(test, SETTINGS, settings)
