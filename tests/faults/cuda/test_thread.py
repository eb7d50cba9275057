"""A poisoned context in a thread of the application: the device stops, and nothing hangs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.cuda.lab import needs

from callboard.core import registry
from callboard.core.errors import BackendUnavailable

pytestmark = [pytest.mark.gpu, pytest.mark.fault, pytest.mark.leaves_nothing, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("dispatcher, beside", [("own", "alone"), ("own", "torch"), ("caller", "alone")])
def test_a_poisoned_context_is_closed(dispatcher: str, beside: str) -> None:
    """In a process of its own, which is of no use afterwards."""
    try:
        registry.resolve("cuda")
    except BackendUnavailable as e:
        if os.environ.get("CALLBOARD_REQUIRE") == "cuda":
            pytest.fail(f"CALLBOARD_REQUIRE=cuda, and it cannot be used: {e}")
        pytest.skip(f"cuda cannot be used: {e}")
    if beside == "torch":
        needs("torch")
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.cuda.thread_program", dispatcher, beside],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    expected = ["stopped", "closed", *(["torch is told, too"] if beside == "torch" else []), "done"]
    assert [line for line in done.stdout.split("\n") if line in expected] == expected, done.stdout + done.stderr
