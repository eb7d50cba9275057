"""Memory of a device that has been closed, under thread isolation: it stays as long as someone holds it."""

import sys
from pathlib import Path

import pytest
from tests.faults.programs import Program

pytestmark = [pytest.mark.fault, pytest.mark.timeout(90)]

SCRIPT = str(Path(__file__).parent / "held_memory.py")
ADDRESSES = ["address", "address of a view"]
VIEWS = ["host_view", "dlpack", "managed", "leased", "resident"]
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="memory of several processes needs memfd")


@pytest.mark.few(1)
@pytest.mark.parametrize("way", [*ADDRESSES, *VIEWS, pytest.param("shared", marks=LINUX)])
def test_memory_stays_as_long_as_it_is_held(way: str) -> None:
    with Program(SCRIPT, way) as program:
        assert program.line("values") == "True"
        if way not in VIEWS:
            assert program.line("goes") == "True"
        assert program.end() == 0
