"""Whether a process that owns memory has ended."""

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
        assert not exporters.ended(*process)
        assert not exporters.ended(*process)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is not reaped yet
        assert exporters.ended(*process)
    assert exporters.ended(*process)
    exporters.close()


def test_another_process_of_the_same_id_is_not_taken_for_it() -> None:
    own = os.getpid()
    exporters = Exporters()
    assert exporters.ended(own, process_started(own) + 1)
    assert not exporters.ended(own, process_started(own))
    exporters.close()


def test_descriptors_of_processes_that_have_ended_are_closed() -> None:
    exporters, own = Exporters(), (os.getpid(), process_started(os.getpid()))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with _child() as child:
            assert not exporters.ended(child.pid, process_started(child.pid))
            child.kill()
    assert not exporters.ended(*own)
    assert len(os.listdir("/proc/self/fd")) == before + 1
    exporters.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_process_that_was_never_found_has_ended() -> None:
    assert Exporters().ended(-1, -1)


def test_without_a_descriptor_the_start_time_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(pid: int) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", refused)
    own = os.getpid()
    assert not Exporters().ended(own, process_started(own))
    assert Exporters().ended(own, process_started(own) + 1)
