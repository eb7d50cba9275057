"""Devices on the nodes of a Ray cluster: three nodes on this machine, killed, cut off and orphaned."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import callboard as cb

ROOT = Path(__file__).parents[3]
LIMIT = 600.0
INSTALLED = importlib.util.find_spec("ray") is not None
SCENARIOS = [
    *("opens", "places_by_resources", "node_killed_under_load", "partition", "agent_killed", "orphan", "over_nodes"),
    *("pool_with_a_loss", "world_with_a_loss", "encrypted", "blocking"),
]


@pytest.fixture(scope="module")
def ends() -> dict[str, Any]:
    """How each scenario has ended."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",  # else Ray writes a token to the home folder
    }
    program = str(Path(__file__).parent / "ray_program.py")
    done = subprocess.run(
        [sys.executable, program], env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"name"')]
    found = {one["name"]: one for one in said}
    assert found, done.stdout[-2000:] + done.stderr[-2000:]
    return found


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.skipif(not INSTALLED, reason="ray is not installed: pip install 'callboard[ray]'")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_on_ray(ends: dict[str, Any], scenario: str, record_property: Any) -> None:
    assert scenario in ends, "the program has not come that far"
    assert ends[scenario]["error"] == ""
    if scenario == "node_killed_under_load":
        record_property("measured", f"a device back on another node: {ends['recovery']['seconds']:.2f} s")


@pytest.mark.skipif(INSTALLED, reason="ray is installed")
async def test_without_ray_a_cluster_says_what_to_install() -> None:
    with pytest.raises(cb.BackendUnavailable, match=r"pip install 'callboard\[ray\]'"):
        async with cb.cluster("auto"):
            pass
    with pytest.raises(cb.BackendUnavailable, match=r"callboard\[ray\]"):
        cb.sync.cluster()
