"""The checks of ``smoke_gpu.py`` on the GPU of this machine."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from callboard.backends.cuda import backend
from callboard.core.errors import BackendUnavailable


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.timeout(600)
def test_smoke(record_property: Callable[[str, object], None]) -> None:
    try:
        backend.devices()
    except BackendUnavailable as e:
        if os.environ.get("CALLBOARD_REQUIRE") == "cuda":
            raise
        pytest.skip(str(e))
    program = Path(__file__).with_name("smoke_gpu.py")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=580, check=False)
    for line in done.stdout.splitlines():
        if "cost of" in line:
            record_property("measured", line)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
