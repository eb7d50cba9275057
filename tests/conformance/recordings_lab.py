"""Shared by the suites of recordings: the devices, and how one loses its context."""

import os
import signal
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
import pytest

import callboard as cb
from callboard.core.errors import BackendUnavailable

__all__ = ["DEVICES", "drawn", "lose", "opened", "skip_unless_required"]

DEVICES = [
    pytest.param("thread:cpu", id="cpu-thread"),
    pytest.param("process:cpu", id="cpu-process"),
    pytest.param("process:cuda", id="cuda-process", marks=pytest.mark.gpu),
    pytest.param("thread:cuda", id="cuda-thread", marks=pytest.mark.gpu),
]
Array = np.ndarray[Any, Any]


def skip_unless_required(which: str, error: BackendUnavailable) -> NoReturn:
    """The backend cannot be used here."""
    if os.environ.get("CALLBOARD_REQUIRE") == which:
        pytest.fail(f"CALLBOARD_REQUIRE={which}: {error}")
    pytest.skip(f"backend {which!r} cannot be used: {error}")


def opened(name: str) -> Iterator[cb.sync.Device]:
    isolation, _, which = name.partition(":")
    system = cb.sync.System("recordings")  # of its own: a test that loses contexts shares no device with the others
    try:
        device = system.device(which, isolation=isolation, standby=None, max_restarts=9)  # type: ignore[arg-type]
    except BackendUnavailable as e:
        skip_unless_required(which, e)
    with device:
        yield device


def drawn(*shape: int, seed: int = 0, dtype: str = "f4") -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def lose(dev: cb.sync.Device) -> None:
    pid = dev.health().host_pid
    assert pid is not None
    seen = dev.generation
    os.kill(pid, signal.SIGKILL)
    dev.wait_generation(seen, timeout=60)
