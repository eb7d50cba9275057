"""What works on macOS and Windows, as far as it can be known on Linux: with what they lack taken away."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PLATFORMS = pytest.mark.parametrize("platform", ["darwin", "win32"])
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulates other systems on Linux")


def run(platform: str, *arguments: str) -> list[str]:
    command = [sys.executable, str(HERE / "elsewhere.py"), platform, str(HERE / "program.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@PLATFORMS
@pytest.mark.timeout(300)
def test_devices_without_a_child_process(platform: str) -> None:
    assert run(platform) == [
        "product [[5.0, 14.0], [14.0, 50.0]]",
        "resident 42.0",
        'process isolation="process" needs the pidfd and memfd of Linux 5.4 or later',
        "journal JournalConflict",
        "served 200",
        "blocking 3.0",
    ]


@PLATFORMS
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_module_is_imported(platform: str) -> None:
    assert run(platform, "modules") == ["modules True"]
