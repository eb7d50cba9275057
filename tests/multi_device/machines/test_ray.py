"""Devices on the nodes of a Ray cluster: three nodes on this machine, killed, cut off and orphaned."""

import contextlib
import importlib.util
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

import callboard as cb

ROOT = Path(__file__).parents[3]
LIMIT = 240.0
INSTALLED = importlib.util.find_spec("ray") is not None
SCENARIOS = [
    *("opens", "places_by_resources", "node_killed_under_load", "partition", "agent_killed", "orphan", "over_nodes"),
    *("pool_with_a_loss", "world_with_a_loss", "encrypted", "shared_region", "blocking"),
]


class Program:
    """The scenarios, run one after the other by a program of their own; what it says is read as it comes."""

    def __init__(self) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "disabled",  # else Ray writes a token to the home folder
        }
        command = [sys.executable, str(Path(__file__).parent / "ray_program.py")]
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by `close`
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._log, text=True, env=environment, start_new_session=True
        )
        self._said: dict[str, dict[str, Any]] = {}
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def said(self, name: str) -> dict[str, Any]:
        """What it said of this, when it has."""
        while name not in self._said:
            line = self._lines.get(timeout=LIMIT)
            if not line:
                self._lines.put("")  # for the others that ask
                self._log.seek(0)
                raise AssertionError(f"it has ended before {name}: {self._log.read()[-3000:]}")
            if line.startswith('{"name"'):
                one = json.loads(line)
                self._said[one["name"]] = one
        return self._said[name]

    def close(self) -> None:
        try:
            self._process.wait(LIMIT)
        finally:
            self._process.kill()
            self._reader.join()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._log.close()


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.timeout(len(SCENARIOS) * LIMIT + 30)
@pytest.mark.skipif(not INSTALLED, reason="ray is not installed: pip install 'callboard[ray]'")
def test_on_ray(subtests: pytest.Subtests, record_property: Any) -> None:
    """One case for all scenarios: each worker of xdist that has a case would start three nodes of its own."""
    with contextlib.closing(Program()) as program:
        for scenario in SCENARIOS:
            with subtests.test(scenario):
                assert program.said(scenario)["error"] == ""
        record_property("measured", f"a device back on another node: {program.said('recovery')['seconds']:.2f} s")


@pytest.mark.skipif(INSTALLED, reason="ray is installed")
async def test_without_ray_a_cluster_says_what_to_install() -> None:
    with pytest.raises(cb.BackendUnavailable, match=r"pip install 'callboard\[ray\]'"):
        async with cb.cluster("auto"):
            pass
    with pytest.raises(cb.BackendUnavailable, match=r"callboard\[ray\]"):
        cb.sync.cluster()
