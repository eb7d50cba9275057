"""Copies go on where no thread can be started: at a process's limit, and when its main thread has ended."""

import subprocess
import sys
import threading
from unittest import mock

import numpy as np
import pytest

from callboard.actors.loops.threads import Threads
from callboard.device.client.line import copying
from callboard.device.client.line.copying import SLICE, Copier

AFTER_MAIN = """
import threading
import numpy as np
import scipy.sparse
import callboard as cb

n = 1 << 10
device = cb.sync.device("cpu", isolation={isolation!r}, standby=None)
matrix = device.sparse.from_scipy(scipy.sparse.csr_array(np.ones((n, n))))

def work() -> None:
    threading.main_thread().join()
    x = device.put(np.ones(1 << 19))
    print(x.get().sum(), device.put(np.ones(1 << 19), non_blocking=True).get().sum(), flush=True)
    print(device.rng.default_rng(0).standard_normal((1 << 22,)).get().size)
    print((matrix @ device.put(np.ones(n))).get().sum())
    device.close()

threading.Thread(target=work).start()
"""


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_large_array_comes_after_the_main_thread_has_ended(isolation: str) -> None:
    program = AFTER_MAIN.format(isolation=isolation)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)
    assert (done.stdout.split(), done.returncode) == (["524288.0", "524288.0", "4194304", "1048576.0"], 0), done.stderr


@pytest.mark.parametrize("rest", [0, 7])
def test_without_threads_the_caller_copies(rest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "WIDTH", 4)
    source = np.arange(3 * SLICE // 8 + rest, dtype="f8")
    target, later, after = np.zeros_like(source), np.zeros_like(source), list[int]()
    copier = Copier()
    with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("can't start new thread")):
        copier.copy(target, source)
        copier.later(later, source, lambda: after.append(1))
    np.testing.assert_array_equal(target, source)
    np.testing.assert_array_equal(later, source)
    assert after == [1]
    copier.close()


def test_a_call_that_no_thread_can_take_is_not_kept() -> None:
    threads, ran = Threads(2, "callboard-test"), list[int]()
    with (
        mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("can't start new thread")),
        pytest.raises(RuntimeError, match="can't start"),
    ):
        threads.submit(ran.append, 1)
    threads.submit(ran.append, 2).result(20)
    with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("can't start new thread")):
        threads.submit(ran.append, 3).result(20)  # by the thread that there is
    threads.shutdown()
    assert ran == [2, 3]
