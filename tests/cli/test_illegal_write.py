"""The kernel needs a GPU; that it would be launched, and how a driver without one is met, does not."""

import ctypes
from typing import Any

import pytest

from callboard.cli.demo import illegal_write


class Driver:
    """Counts calls; ``status`` is what loading answers."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.launched: list[tuple[Any, ...]] = []

    def cuModuleLoadData(self, *args: Any) -> int:  # noqa: N802 - the driver's name
        return self.status

    def cuModuleGetFunction(self, *args: Any) -> int:  # noqa: N802 - likewise
        return 0

    def cuLaunchKernel(self, *args: Any) -> int:  # noqa: N802 - likewise
        self.launched.append(args)
        return 0


def test_it_is_loaded_ahead_and_launched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    launch = illegal_write.load_illegal_write()
    assert driver.launched == []
    launch(7)
    assert len(driver.launched) == 1
    assert len(driver.launched[0]) == 11
    assert driver.launched[0][8].value == 7


def test_a_refusal_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver(218))
    with pytest.raises(RuntimeError, match="cuModuleLoadData answered 218"):
        illegal_write.load_illegal_write()
