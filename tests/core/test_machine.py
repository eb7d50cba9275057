"""The number of threads of an op: set by the environment, or the cores available to this process."""

import os
from pathlib import Path

import pytest

from callboard.core.backend import machine
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
    monkeypatch.setattr(machine, "CGROUPS", Path("/nowhere"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 3, 5}, raising=False)
    assert workers() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert workers() == 7


@pytest.mark.parametrize(
    "files, expected",
    [
        ({}, None),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "nonsense"}, None),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "0\n"}, None),
    ],
)
def test_a_container_may_have_a_part_of_the_cores(
    files: dict[str, str], expected: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert machine._quota(tmp_path) == expected
    monkeypatch.setattr(machine, "CGROUPS", tmp_path)
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    assert machine.cores() == (bound if expected is None else min(bound, 2 if expected > 1 else 1))
