"""Whether a process that owns memory still lives."""

import os
import subprocess
import sys

import pytest

from callboard.device.host.context.admission.exporters import Exporters
from callboard.kernel.ipc.sharing import process_started

pytestmark = pytest.mark.leaves_nothing


def _child() -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


def test_a_process_lives_until_it_ends() -> None:
    exporters = Exporters()
    with _child() as child:
        process = child.pid, process_started(child.pid)
        assert exporters.live(*process)
        assert exporters.live(*process)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is not reaped yet
        assert not exporters.live(*process)
    assert not exporters.live(*process)
    exporters.close()


def test_another_process_of_the_same_id_is_not_taken_for_it() -> None:
    own = os.getpid()
    exporters = Exporters()
    assert not exporters.live(own, process_started(own) + 1)
    assert exporters.live(own, process_started(own))
    exporters.close()


def test_descriptors_of_processes_that_have_ended_are_closed() -> None:
    exporters, own = Exporters(), (os.getpid(), process_started(os.getpid()))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with _child() as child:
            assert exporters.live(child.pid, process_started(child.pid))
            child.kill()
    assert exporters.live(*own)
    assert len(os.listdir("/proc/self/fd")) == before + 1
    exporters.close()
    assert len(os.listdir("/proc/self/fd")) == before
