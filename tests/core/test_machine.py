"""The number of threads of an op: set by the environment, or the cores available to this process."""

import os

import pytest

from callboard.core.backend.machine import workers


@pytest.mark.parametrize("told, count", [("3", 3), (" 2 ", 2), ("4,2", 4)])
def test_the_environment_says_it(monkeypatch: pytest.MonkeyPatch, told: str, count: int) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", told)
    assert workers() == count


@pytest.mark.parametrize("told", [None, "", "0", "many", "-1"])
def test_else_the_cores_of_this_process(monkeypatch: pytest.MonkeyPatch, told: str | None) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if told is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", told)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 3, 5}, raising=False)
    assert workers() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert workers() == 7
