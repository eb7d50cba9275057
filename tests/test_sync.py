"""The blocking twin: from plain code, from threads, under a running loop, at the end of a program, after a fork."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.together import together

import callboard as cb

pytestmark = pytest.mark.leaves_nothing

A = np.arange(16, dtype="f4").reshape(4, 4)
BOTH = pytest.mark.parametrize("isolation", ["thread", "process"])


def open_cpu(**options: Any) -> cb.sync.Device:
    return cb.sync.device("cpu", **{"isolation": "thread", "standby": None, **options})


def program(text: str, *arguments: str, stdin: bool = False) -> "subprocess.Popen[str]":
    command = [sys.executable, "-u", *(["-"] if stdin else ["-c", text]), *arguments]
    source = str(Path(cb.__file__).parents[1])
    path = os.pathsep.join([source, os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else [source])
    started = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    if stdin:
        assert started.stdin is not None
        started.stdin.write(text)
        started.stdin.close()
        started.stdin = None
    return started


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"  # whoever adopted it has not waited for it yet


# -- values ------------------------------------------------------------------------------------------------------------


@BOTH
def test_a_chain_blocks_only_where_its_value_is_taken(isolation: str) -> None:
    with open_cpu(isolation=isolation) as cpu:
        a = cpu.put(A)
        c = cpu.blas.gemm(cpu.blas.gemm(a, a), a, alpha=0.5)
        got = c.get()
        assert isinstance(got, np.ndarray)
        np.testing.assert_allclose(got, 0.5 * A @ A @ A)
        assert c[1:, 0].get().tolist() == got[1:, 0].tolist()
        assert c.result() is c
        out = cpu.host_empty((4, 4))
        assert a.T.get(out=out) is out
        np.testing.assert_array_equal(out, A.T)
        assert cpu.blas.dot(a[0], a[1]).result() == A[0] @ A[1]
        assert cpu.view(cpu.zeros(4), (2, 2), "i32").get().tolist() == [[0, 0], [0, 0]]
        assert cpu.resolve(a.token()).get()[3, 3] == 15


@BOTH
def test_extents_that_depend_on_data_are_waited_for(isolation: str) -> None:
    """There is nothing to await here: what asks for them waits."""
    dense = np.array([[0, 2, 0], [3, 0, 4]], "f4")
    with open_cpu(isolation=isolation) as cpu:

        def made() -> Any:
            return cpu.sparse.from_dense(cpu.put(dense), format="csr")

        assert made().values.shape == (3,)
        assert len(made().values) == 3
        np.testing.assert_array_equal(made().values[1:].get(), [3, 4])
        np.testing.assert_array_equal(made().values.get(), [2, 3, 4])
        np.testing.assert_array_equal(cpu.copy(made().values).get(), [2, 3, 4])
        np.testing.assert_array_equal(cpu.sparse.to_dense(made()).get(), dense)


def test_extents_of_a_failed_op_raise_its_error() -> None:
    with open_cpu() as cpu:
        singular = cpu.solver.cholesky(cpu.put(-np.eye(2, dtype="f4")))
        sparse = cpu.sparse.from_dense(singular, format="csr")
        for use in (lambda: sparse.values.shape, lambda: cpu.copy(sparse.values), sparse.values.get):
            with pytest.raises(cb.NumericalError, match="positive"):
                use()


def test_what_the_device_tells(tmp_path: Path) -> None:
    with open_cpu() as cpu:
        ref = cpu.full((2, 3), 7.0)
        ref.get()
        assert repr(ref) == "array([[7., 7., 7.],\n       [7., 7., 7.]], dtype=float32, device='cpu:0')"
        assert repr(cpu) == "<Device cpu:0 (thread), ready, generation 1>"
        norm = cpu.blas.nrm2(ref[0])
        assert norm.result() == pytest.approx(7 * 3**0.5)
        assert repr(norm) == f"<Reply {norm.result()!r}>"
        assert repr(cb.Reply(norm._port)) == "<Reply pending>"
        cpu.drain()
        assert cpu.stats().in_flight == 0
        assert cpu.stats().completed >= 3
        assert cpu.stats().plans["memory"].misses >= 2
        assert (cpu.name, cpu.isolation, cpu.health().ok, cpu.stopped) == ("cpu:0", "thread", True, False)
        cpu.room(10)
        cpu.trim()
    assert cpu.stopped
    with pytest.raises(cb.DeviceStopped):
        cpu.put(A)


def test_errors_are_those_of_the_async_api() -> None:
    with open_cpu() as cpu:
        a = cpu.put(A)
        with pytest.raises(cb.ShapeError, match="inner extents"):
            cpu.blas.gemm(a, a[:2])
        a.free()
        with pytest.raises(cb.GpuRefStale, match="freed"):
            a.get()
        with pytest.raises(ValueError, match="unknown option 'colour'"):
            open_cpu(colour="red")
    with pytest.raises(cb.BackendUnavailable, match="no device"):
        cb.sync.device("cpu:77")


@pytest.mark.fault
def test_a_lost_context_is_replaced(tmp_path: Path) -> None:
    with cb.sync.device(f"faulty+cpu?kill_at=2&once={tmp_path}/struck", isolation="process", standby=None) as cpu:
        made: list[int] = []

        def weights(device: cb.sync.Device) -> cb.sync.Ref:
            made.append(device.generation)
            return device.put(A)

        ref = cpu.per_generation(weights)
        assert ref() is ref()
        with pytest.raises(cb.ContextPoisoned):
            cpu.copy(ref()).get()
        np.testing.assert_array_equal(ref().get(), A)
        assert len(made) == 2


def test_events_are_waited_for() -> None:
    cpu = open_cpu()
    events = cpu.events()
    seen: list[Any] = []
    listening = threading.Thread(target=lambda: seen.extend(events))
    listening.start()
    cpu.close()
    listening.join(10)
    assert [type(e) for e in seen] == [cb.Stopped]


def test_what_is_closed_says_so() -> None:
    cpu = open_cpu()
    events, ref = cpu.events(), cpu.zeros(3)
    cpu.close()
    for call in (lambda: next(events), cpu.stats, cpu.drain, lambda: cpu.put(A), lambda: cpu.zeros(3)):
        with pytest.raises(cb.DeviceStopped):
            call()
    with pytest.raises(cb.GpuRefStale, match="shutting down"):
        ref.get()


# -- room --------------------------------------------------------------------------------------------------------------


def test_a_call_waits_for_room_in_flight() -> None:
    with open_cpu(max_in_flight=8) as cpu:
        a, most = cpu.put(A), 0
        for _ in range(200):
            a = cpu.copy(a)
            most = max(most, cpu._port.in_flight)
        assert 1 <= most <= 8
        np.testing.assert_array_equal(a.get(), A)


def test_a_put_waits_for_room_in_the_arenas() -> None:
    with open_cpu(max_staged_bytes=32 << 20) as cpu:
        big = np.ones(5 << 20, "u1")
        refs = [cpu.put(big) for _ in range(16)]
        assert sum(int(r.get()[-1]) for r in refs) == 16


def test_room_that_will_never_come_is_an_error() -> None:
    with open_cpu(max_staged_bytes=32 << 20) as cpu:
        leases = [cpu.host_empty(16 << 20, "u8")]
        with pytest.raises(cb.MailboxFull):
            leases.append(cpu.host_empty(32 << 20, "u8"))


def test_threads_share_a_device() -> None:
    with open_cpu(max_in_flight=16) as cpu:

        def work(i: int) -> float:
            ref = cpu.full((8, 8), i)
            for _ in range(50):
                ref = cpu.copy(ref)
            return float(ref.get().sum())

        assert together(work, [(i,) for i in range(4)]) == [64.0 * i for i in range(4)]


# -- life --------------------------------------------------------------------------------------------------------------


def test_one_device_is_one_handle_until_the_outermost_with_is_left() -> None:
    with open_cpu() as outer:
        with open_cpu() as inner:
            assert inner is outer
        assert outer.full(2, 1.0).get().tolist() == [1, 1]
    assert outer.stopped
    again = open_cpu()
    assert again is not outer
    again.close()
    again.close()


def test_a_system_closes_its_devices() -> None:
    with cb.sync.System("pair") as system:
        cpu = system.device("cpu", isolation="thread")
        assert system.device("cpu") is cpu
        assert repr(system) == "<cb.sync.System 'pair': cpu:0>"
    assert cpu.stopped


def test_under_a_running_loop() -> None:
    async def cell() -> float:
        with open_cpu() as cpu:
            return float(cpu.put(A).get().sum())

    assert asyncio.run(cell()) == A.sum()


SCRIPT = """
import numpy as np, callboard as cb
gpu = cb.sync.device("cpu", isolation="process", standby=None)
a = gpu.put(np.ones((4, 4), "f4"))
print(gpu.health().host_pid, int(gpu.blas.gemm(a, a).get().sum()))
held = gpu.blas.gemm(a, a)
"""


@pytest.mark.few(1)
@pytest.mark.parametrize("stdin", [False, True])
def test_a_script_may_end_without_closing(stdin: bool) -> None:
    script = program(SCRIPT, stdin=stdin)
    out, err = script.communicate(timeout=40)
    assert (script.returncode, err) == (0, "")
    pid, total = map(int, out.split())
    assert total == 64
    assert gone(pid)


INTERRUPTED = """
import signal, sys, numpy as np, callboard as cb
signal.signal(signal.SIGINT, signal.default_int_handler)  # the shell has it ignored by what it runs in the background
with cb.sync.device("faulty+cpu?slow_at=2&delay=3", isolation=sys.argv[1], standby=None) as gpu:
    a = gpu.put(np.ones(4, "f4"))
    b = gpu.copy(a)
    try:
        print("waiting")
        b.result()
    except KeyboardInterrupt:
        print("interrupted", b.done())
    print(b.get().sum())
"""


@pytest.mark.few(1)
@BOTH
def test_ctrl_c_ends_the_wait_and_not_the_op(isolation: str) -> None:
    script = program(INTERRUPTED, isolation)
    assert script.stdout is not None
    assert script.stdout.readline() == "waiting\n"
    script.send_signal(signal.SIGINT)
    assert script.stdout.readline() == "interrupted False\n"
    out, err = script.communicate(timeout=40)
    assert (script.returncode, out, err) == (0, "4.0\n", "")


FORKED = """
import os, sys, numpy as np, callboard as cb
gpu = cb.sync.device("faulty+cpu?slow_at=2&delay=3", isolation=sys.argv[1], standby=None)  # so the copy is pending then
a = gpu.put(np.ones(4, "f4"))
a.result()
pending = gpu.copy(a)
child = os.fork()
if not child:
    said = []
    for call in (lambda: gpu.put(np.ones(4)), lambda: gpu.zeros(4), lambda: gpu.copy(a), a.get, pending.result,
                 gpu.stats, gpu.drain, lambda: gpu.host_empty(4)):
        try:
            call()
        except RuntimeError as e:
            said.append("before os.fork()" in str(e))
    with cb.sync.device("cpu", isolation=sys.argv[1], standby=None) as own:
        said.append(own.put(np.ones(4)).get().sum() == 4)
    print(len(said), all(said))
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
print(pending.get().sum())
"""


@pytest.mark.slow
@pytest.mark.few(1)
@BOTH
def test_after_a_fork_handles_raise_and_new_devices_open(isolation: str) -> None:
    script = program(FORKED, isolation)
    out, err = script.communicate(timeout=40)
    assert (script.returncode, out) == (0, "9 True\n4.0\n"), err


async def test_async_with_a_blocking_system_or_device_names_the_other() -> None:
    system: Any = cb.sync.System()
    with pytest.raises(TypeError, match=r"use `with`, or in asyncio `async with cb\.System"):
        async with system:
            pass
    with cb.sync.device("cpu") as gpu:
        device: Any = gpu
        with pytest.raises(TypeError, match=r"use `with`, or in asyncio `async with cb\.device"):
            async with device:
                pass
