"""Dumps of faulthandler among the other lines of a host."""

import faulthandler
import os
import sysconfig
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

import callboard
from callboard.device.supervision.hosts.output import TAIL, HostLog, LineSplitter
from callboard.device.supervision.hosts.stackdump import MOST, StackDump

STDLIB = sysconfig.get_path("stdlib")
OURS = os.path.dirname(callboard.__file__)
CRASH = f"""\
Fatal Python error: Segmentation fault

Thread 0x00007ff10e7fc6c0 (most recent call first):
  File "/app/other.py", line 327 in wait

Current thread 0x00007ff10dffb6c0 (most recent call first):
  File "{STDLIB}/ctypes/__init__.py", line 519 in string_at
  File "/app/model.py", line 41 in forward
  File "{OURS}/device/host/residents/thread/thread.py", line 205 in _call
  File "{STDLIB}/threading.py", line 982 in run

Thread 0x00007ff115883b80 (most recent call first):
  File "/app/main.py", line 6 in <module>

Extension modules: msgspec._core (total: 1)"""
PLACE = "at ctypes/__init__.py:519 in string_at, called from model.py:41 in forward (thread 0x00007ff10dffb6c0)"
OTHER = ["", "loading", "Traceback (most recent call last):", '  File "/app/a.py", line 3, in f', "a: 1 in b", "é"]


def fed(text: str) -> StackDump:
    dump = StackDump()
    for line in text.split("\n"):
        dump.take(line)
    return dump


def test_a_crash() -> None:
    dump = fed(CRASH)
    assert (dump.fatal, dump.place, dump.text) == ("Segmentation fault", PLACE, CRASH)


@given(data=st.data())
def test_any_split_of_the_bytes_and_any_other_lines_give_the_same(data: st.DataObject) -> None:
    lines: list[str] = []
    others: list[str] = []
    for line in CRASH.split("\n"):
        more = data.draw(st.lists(st.sampled_from(OTHER), max_size=2))
        lines += [*more, line]
        others += filter(None, more)
    stream = ("\n".join(lines) + "\n").encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    log, splitter = HostLog("cpu:0", 1), LineSplitter()
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        for line in splitter.feed(stream[start:end]):
            log.stderr(line)
    assert (log.dump.fatal, log.dump.place, log.dump.text) == ("Segmentation fault", PLACE, CRASH)
    assert list(log.tail) == others[-TAIL:]


def test_a_line_without_end_before_the_dump_is_no_part_of_it() -> None:
    log = HostLog("cpu:0", 1)
    for line in f" 50%|###  | 5/10\r{CRASH}".split("\n"):
        log.stderr(line)
    assert log.dump.text == CRASH
    assert list(log.tail) == [" 50%|###  | 5/10"]


@pytest.mark.parametrize(
    "frames, place",
    [
        ([], ""),
        (["  <no Python frame>"], ""),
        (['  File "/app/model.py", line 41 in forward'], "at model.py:41 in forward"),
        (["  Garbage-collecting", '  File "/app/a.py", line 7 in __del__'], "at a.py:7 in __del__"),
        (
            [
                '  File "/venv/lib/python3.11/site-packages/torch/nn/functional.py", line 9 in linear',
                '  File "/app/__main__.py", line 3 in <lambda>',
            ],
            "at functional.py:9 in linear, called from app/__main__.py:3 in <lambda>",
        ),
        ([f'  File "{OURS}/backends/cpu/device.py", line 5 in run'], "at device.py:5 in run"),
        (["  File ???, line ??? in ???", '  File "<string>", line 1 in <module>'], "at ???:??? in ???"),
    ],
)
def test_places(frames: list[str], place: str) -> None:
    dump = fed("\n".join(["Fatal Python error: Bus error", "Stack (most recent call first):", *frames]))
    assert dump.place == place


def test_a_named_thread() -> None:
    dump = fed('Current thread 0x7f [Thread-1 (run)] (most recent call first):\n  File "/app/a.py", line 1 in f')
    assert dump.place == "at a.py:1 in f (thread Thread-1 (run))"


def test_a_thread_that_python_does_not_know() -> None:
    text = 'Fatal Python error: Aborted\n\nThread 0x7f (most recent call first):\n  File "/app/a.py", line 1 in f'
    dump = fed(text)
    assert (dump.fatal, dump.place, dump.text) == ("Aborted", "", text)


@pytest.mark.parametrize(
    "fatal, status, explained",
    [
        ("Segmentation fault", "signal SIGSEGV", True),
        ("Segmentation fault", "signal SIGKILL", False),  # a child's, whose stderr is the host's
        ("Bus error", "signal SIGBUS", True),
        ("Aborted", "signal SIGABRT", True),
        ("drop_gil: GIL is not locked", "signal SIGABRT", True),
        ("config_init_hash_seed: PYTHONHASHSEED must be …", "exit code 1", False),
    ],
)
def test_what_a_dump_explains(fatal: str, status: str, explained: bool) -> None:
    assert fed(f"Fatal Python error: {fatal}").explains(status) is explained


def test_the_last_dump_counts() -> None:
    before = 'Fatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n  File "b.py", line 2 in g\n'
    assert fed(before + CRASH).text == CRASH
    dump = fed(CRASH)
    dump.clear()
    assert (dump.fatal, dump.place, dump.text) == ("", "", "")


def test_stacks_that_were_asked_for_are_no_crash() -> None:
    text = 'Current thread 0x7f (most recent call first):\n  File "/app/a.py", line 1 in f'
    dump = fed(text)
    assert (dump.fatal, dump.text) == ("", text)
    assert not dump.explains("signal SIGABRT")


SERVES = f"""\
Current thread 0x1 (most recent call first):
  File "{OURS}/device/host/socketchannel.py", line 170 in _wait
  File "{OURS}/device/host/context/serve.py", line 120 in run"""
POLLS = f"""\
Current thread 0x1 (most recent call first):
  File "{OURS}/device/host/context/timelines.py", line 9 in poll"""
CALLS = f"""\
Thread 0x2 (most recent call first):
  File "/venv/lib/python3.11/site-packages/numpy/linalg.py", line 7 in solve
  File "/app/model.py", line 41 in forward
  File "{OURS}/device/host/residents/thread/thread.py", line 205 in outcome
  File "{OURS}/device/host/residents/thread/thread.py", line 170 in _run"""
SETS_UP = f"""\
Thread 0x3 (most recent call first):
  File "/app/model.py", line 4 in setup
  File "{OURS}/device/host/residents/thread/thread.py", line 170 in _run"""
BY_VALUE = f"""\
Thread 0x4 (most recent call first):
  File "{STDLIB}/threading.py", line 3 in wait
  File "<dynamic-code>", line 5 in loop
  File "{OURS}/device/host/residents/thread/thread.py", line 205 in outcome"""
RESTS = f"""\
Thread 0x5 (most recent call first):
  File "{OURS}/actors/loops/handover.py", line 30 in get
  File "{OURS}/device/host/residents/thread/thread.py", line 170 in _run

Thread 0x6 (most recent call first):
  File "{OURS}/actors/loops/bell.py", line 43 in wait
  File "{OURS}/core/backend/workers.py", line 261 in _work

Thread 0x7 (most recent call first):
  File "/app/own.py", line 1 in a_thread_of_the_users"""
OP = f"""\
Thread 0x8 (most recent call first):
  File "{OURS}/backends/cpu/blas.py", line 5 in gemm
  File "{OURS}/core/backend/workers.py", line 255 in _work"""
IN_FORWARD = "at linalg.py:7 in solve, called from model.py:41 in forward (thread 0x2)"
WAITS = "at socketchannel.py:170 in _wait (thread 0x1)"


@pytest.mark.parametrize(
    "threads, place",
    [
        ([CALLS, RESTS, SERVES], IN_FORWARD),
        ([SERVES, RESTS, CALLS], IN_FORWARD),
        ([RESTS, CALLS, POLLS], f"{IN_FORWARD}, and at timelines.py:9 in poll (thread 0x1)"),
        ([SETS_UP, SERVES], "at model.py:4 in setup (thread 0x3)"),
        ([BY_VALUE, SERVES], "at threading.py:3 in wait, called from <dynamic-code>:5 in loop (thread 0x4)"),
        ([OP, RESTS, SERVES], "at blas.py:5 in gemm (thread 0x8)"),
        ([RESTS, SERVES], WAITS),
        ([CALLS.replace("Thread", "Current thread")], IN_FORWARD),
        ([CALLS, *[OP] * 4, SERVES], ", and ".join([IN_FORWARD, *["at blas.py:5 in gemm (thread 0x8)"] * 2])),
    ],
)
def test_where_a_host_hangs_is_where_methods_and_ops_run(threads: list[str], place: str) -> None:
    assert fed("\n\n".join(threads)).place == place


def test_what_is_kept_is_bounded_and_has_the_thread_that_crashed() -> None:
    others = "".join(
        f"\nThread 0x{n:x} (most recent call first):\n" + f'  File "/app/{"x" * 400}.py", line 1 in f\n' * 100
        for n in range(99)
    )
    dump = fed(CRASH.replace("\n\nThread 0x00007ff10e7fc6c0", f"\n{others}\nThread 0x00007ff10e7fc6c0", 1))
    assert len(dump.text) <= MOST + len("\n(more was left out)")
    assert dump.text.endswith("\n(more was left out)")
    assert "Current thread" in dump.text
    assert "model.py" in dump.text
    assert dump.place == PLACE


def test_a_long_list_of_extension_modules_comes_in_several_lines() -> None:
    log = HostLog("cpu:0", 1)
    splitter = LineSplitter()
    modules = ", ".join(f"package.module{n}" for n in range(1000))
    for line in splitter.feed(
        f"{CRASH.rpartition(chr(10))[0]}\nExtension modules: {modules} (total: 1000)\nx\n".encode()
    ):
        log.stderr(line)
    assert log.dump.text.endswith("(total: 1000)")
    assert list(log.tail) == ["x"]


def test_a_dump_of_this_interpreter_is_recognised(capfd: pytest.CaptureFixture[str]) -> None:
    done = threading.Event()
    waiting = threading.Thread(target=done.wait)
    waiting.start()
    faulthandler.dump_traceback(2)
    done.set()
    waiting.join()
    text = capfd.readouterr().err
    dump = fed(text)
    assert dump.text == text.strip("\n")
    assert "test_stackdump.py:" in dump.place
    assert "in test_a_dump_of_this_interpreter_is_recognised" in dump.place
