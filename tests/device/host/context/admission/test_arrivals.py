"""Memory of another process that cannot be opened."""

import subprocess
import sys
import threading
from typing import Any

import pytest

from callboard.core.errors import AccelError, DriverError, OutOfMemory
from callboard.device.host.context.admission import arrivals
from callboard.device.host.context.admission.arrivals import Arrivals
from callboard.device.host.context.blocks import Block
from callboard.device.protocol.messages import Arrived, Expect
from callboard.kernel.ipc.sharing import process_started

pytestmark = pytest.mark.leaves_nothing


class Nothing:
    """No op waits; nothing can be opened."""

    def __init__(self, error: AccelError) -> None:
        self.error = error

    def hold(self, *_: object) -> None: ...
    def release(self, *_: object) -> None: ...

    def address(self, where: object, offset: int) -> int:
        raise self.error


def arrived(error: AccelError, child: "subprocess.Popen[bytes]") -> str:
    """The failure of a buffer in the memory of a process."""
    buffers: dict[int, Block] = {}
    nothing: Any = Nothing(error)
    made = Arrivals(buffers, nothing, nothing)
    made.expect(Expect(7))
    made.arrived(Arrived(7, 64, [b"handle", 0, child.pid, process_started(child.pid)]))
    made.close()
    source = buffers[7].source
    assert source is not None
    assert source.failure is not None
    return source.failure.message


@pytest.mark.parametrize("already", [True, False])
def test_the_memory_of_a_process_that_ends_is_lost(already: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "ENDING", 60.0)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        if already:
            child.kill()
            message = arrived(DriverError("invalid resource handle", 400), child)
        else:  # its driver has taken the memory away, and it is still ending
            ends = threading.Timer(0.0, child.kill)
            ends.start()
            message = arrived(DriverError("invalid resource handle", 400), child)
            ends.join()
    assert message == f"the context that the array was copied from ended while it was copied (process {child.pid})"


def test_another_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "ENDING", 0.0)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert arrived(DriverError("peer access is not supported", 217), child) == "peer access is not supported"
        monkeypatch.setattr(arrivals, "ENDING", 60.0)
        assert arrived(OutOfMemory("no addresses"), child) == "no addresses"
        child.kill()
