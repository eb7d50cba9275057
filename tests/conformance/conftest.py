"""The fixture ``session`` of the conformance suites, once for every backend and isolation."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from tests import thorough

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode has no package to import blas_lab from

from sessions import SESSIONS, opened

from callboard.core import registry
from callboard.core.errors import UnsupportedOp
from callboard.testing.device_session import DeviceSession
from callboard.testing.session import LibrarySession


def shared_by(fixture_name: str, config: pytest.Config) -> Literal["package", "module"]:
    """A plain run starts a host for all suites: for most of them it would execute a case or two."""
    return "package" if thorough.is_plain(config) else "module"


@pytest.fixture(scope=shared_by, params=SESSIONS)
def session(request: pytest.FixtureRequest) -> Iterator[LibrarySession | DeviceSession]:
    """Methods: ``put``, ``empty``, ``get``, ``submit``, ``why_not``; see :class:`LibrarySession`."""
    if ":torch:" in request.param and (missing := missing_library(request.path.stem)):
        pytest.skip(f"refused: torch:cpu has no {missing}")  # at once: Hypothesis would look for a simpler refusal
    yield from opened(request.param)


def missing_library(module: str) -> str | None:
    """The library of a suite that PyTorch's backend does not have, by the suite's name; None if it has it."""
    names = [name for name in registry.backend("cpu").libraries() if f"{module}_".startswith(f"test_{name}_")]
    library = max(names, key=len, default=None)
    return None if library in registry.backend("torch:cpu").libraries() else library


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[object]:
    """A case with an op that PyTorch's backend refuses is left out; ``tests/backends/torch`` has the list of those."""
    try:
        return (yield)
    except UnsupportedOp as e:
        callspec = getattr(pyfuncitem, "callspec", None)
        if callspec is None or ":torch:" not in str(callspec.params.get("session")):
            raise
        pytest.skip(f"refused: {e}")
