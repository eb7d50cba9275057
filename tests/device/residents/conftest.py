"""A device in each isolation, and gates."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.device.backends import backend
from tests.device.residents.lab import Gate

import callboard as cb
import callboard.device.host.residents.actors

__all__ = ["backend"]

PLACES: dict[str, dict[str, Any]] = {
    "process": {"isolation": "process", "standby": None},
    "thread": {"isolation": "thread"},
    "loop": {"isolation": "thread", "dispatcher": "caller"},
}
"""Where a context may live."""


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> dict[str, Any]:
    return PLACES[request.param]


@pytest.fixture
async def anywhere(backend: str, place: dict[str, Any]) -> AsyncIterator[cb.Device]:
    """A device in each place."""
    async with cb.device(backend, close_timeout=5.0, **place) as device:
        yield device


@pytest.fixture(params=["thread", "process"])
def isolation(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def dev(backend: str, isolation: str) -> AsyncIterator[cb.Device]:
    async with cb.device(backend, isolation=isolation, standby=None, close_timeout=5.0) as device:
        yield device


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path / "gate")
    yield made
    made.open_for_good()


@pytest.fixture
def gates(tmp_path: Path) -> Iterator[Callable[[str], Gate]]:
    made: list[Gate] = []

    def make(name: str) -> Gate:
        made.append(Gate(tmp_path / name))
        return made[-1]

    yield make
    for one in made:
        one.open_for_good()
