"""Packages get the actor's stream once, as soon as their import is complete."""

import sys
import types
from typing import Any

import pytest

from callboard.device.host.residents.thread import currents
from callboard.device.host.residents.thread.currents import Currents


class Stream:
    native = 7


def package(name: str, *, complete: bool = True) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__spec__ = types.SimpleNamespace(_initializing=not complete)  # type: ignore[assignment]
    return module


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What has been made current; no package is loaded at first."""
    found: list[str] = []
    for name in ("torch", "cupy", "warp"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.setattr(currents, f"_{name}", lambda module, native, ordinal: found.append(module.__name__))
    return found


def test_a_package_that_is_loaded_later_gets_it_once(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    stream: Any = Stream()
    streams = Currents(stream, 0)
    streams.make()
    assert made == []
    monkeypatch.setitem(sys.modules, "torch", package("torch"))
    for _ in range(3):
        streams.make()
    assert made == ["torch"]
    monkeypatch.setitem(sys.modules, "cupy", package("cupy"))
    streams.make()
    assert made == ["torch", "cupy"]


def test_a_package_gets_it_when_its_import_is_complete(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    stream: Any = Stream()
    streams = Currents(stream, 0)
    loading = package("torch", complete=False)
    monkeypatch.setitem(sys.modules, "torch", loading)
    for _ in range(3):
        streams.make()
    assert made == []
    spec: Any = loading.__spec__
    spec._initializing = False  # no module has been added
    streams.make()
    assert made == ["torch"]


def test_nothing_is_made_current_on_a_cpu(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    stream: Any = Stream()
    monkeypatch.setitem(sys.modules, "torch", package("torch"))
    Currents(stream, None).make()
    assert made == []
