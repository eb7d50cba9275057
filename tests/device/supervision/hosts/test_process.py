"""Child processes: start, death, hangs, and their output in the application."""

import asyncio
import contextlib
import logging
import os
import random
import re
import signal
import socket
import sys
import threading
from ast import literal_eval
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from callboard.core.errors import BackendUnavailable
from callboard.device.protocol.arena.memory import shared_arena
from callboard.device.protocol.messages import VERSION, Completions, Hello
from callboard.device.supervision.hosts import launch as launch_module
from callboard.device.supervision.hosts import process as process_module
from callboard.device.supervision.hosts.base import HostEnd
from callboard.device.supervision.hosts.launch import launch

Start = Callable[..., Awaitable[Any]]
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only"),
    pytest.mark.timeout(60),
]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _children() -> list[str]:
    found: list[str] = []
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
            found += (thread / "children").read_text().split()
    return found


_before: set[str] = set()
"""Processes that other tests keep, such as the host that all conformance suites share."""


@pytest.fixture(autouse=True)
def before() -> None:
    _before.clear()
    _before.update(_children())


def children() -> list[str]:
    """Those that the test has started."""
    return [pid for pid in _children() if pid not in _before]


# -- starting ----------------------------------------------------------------------------------------------------------


async def test_the_child_has_our_path_and_the_backends_environment(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    expected = [str(Path(entry).absolute()) for entry in sys.path]  # noqa: ASYNC240 - no file is touched
    talk = await start(env={"BACKEND": "GPU-1"})
    python_path, boot, own_session, path, backend, fds = literal_eval((await talk.ask("state")).decode())
    assert python_path == "/somewhere"
    assert boot is None
    assert own_session
    assert path == expected
    assert backend == "GPU-1"
    # stdin, stdout, stderr, two sockets, bell, parent's pidfd; one more is open while the folder is listed
    assert len(fds) == 8


async def test_a_host_that_cannot_start_says_why(start: Start) -> None:
    talk = await start(env={"PYTHONHASHSEED": "none"})
    end = await talk.ended()
    assert end.reason == "failed to start"
    assert "exit code 1" in end.detail
    assert "PYTHONHASHSEED" in end.detail  # of the interpreter's last words on stderr


async def test_a_context_that_cannot_be_imported_says_why(start: Start) -> None:
    talk = await start(serve="no_such_module:serve")
    end = await talk.ended()
    assert end.reason == "exited"
    assert "no_such_module" in end.detail


async def test_an_interpreter_that_is_not_there(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    before = descriptors()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/nonexistent/python")
        with pytest.raises(HostEnd, match=r"failed to start: .*nonexistent"):
            await start()
        patch.setattr(sys, "executable", "")
        with pytest.raises(BackendUnavailable, match=r"sys\.executable is empty"):
            await start()
        patch.setattr(sys, "frozen", True, raising=False)
        with pytest.raises(BackendUnavailable, match="frozen"):
            await start()
        patch.delattr(os, "pidfd_open")
        with pytest.raises(BackendUnavailable, match='isolation="thread"'):
            await start()
    assert descriptors() <= before + 2  # the spawner's own may have come


async def test_a_working_directory_that_was_deleted(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "path", ["", *sys.path])  # as for a program on stdin
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(BackendUnavailable, match=r"working directory.* has been deleted; os\.chdir\(\)"):
        await start()


async def test_no_descriptors_left(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    await (await start()).host.close(20.0)
    before = descriptors()

    def refuse(pid: int) -> int:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", refuse)
        with pytest.raises(HostEnd, match="Too many open files"):
            await start()
    assert descriptors() == before
    assert children() == []


@pytest.mark.few(1)
@pytest.mark.parametrize("turns", [1, 2, 3])
async def test_a_cancelled_start_leaves_nothing(start: Start, turns: int) -> None:
    await (await start()).host.close(20.0)
    before = descriptors()
    task = asyncio.ensure_future(launch(["--label", "x"], {}))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # The spawner gets to the next job when it is done with this one.
    await (await start()).host.close(20.0)
    assert descriptors() == before
    assert children() == []


async def test_a_start_cancelled_as_the_child_is_there(start: Start) -> None:
    await (await start()).host.close(20.0)
    before = descriptors()
    task = asyncio.ensure_future(launch(["--label", "x"], {}))
    await asyncio.sleep(0)
    while not children():  # the loop does not run, so child and cancellation reach the task together
        pass
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await (await start()).host.close(20.0)
    assert children() == []
    assert descriptors() == before


# -- dying -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.fault
async def test_killed_at_random_moments(start: Start) -> None:
    """Everything that was said before arrives, in order, then the end, once."""
    seed = random.randrange(1 << 30)
    rng = random.Random(seed)
    for _ in range(8):
        talk = await start()
        await talk.ask("echo")
        at = rng.randrange(5000)
        for op in range(5000):
            talk.call(op)
            if op == at:
                os.kill(talk.host.pid, signal.SIGKILL)
            if op % 500 == 0:
                await asyncio.sleep(0)
        end = await talk.ended()
        assert (end.reason, end.detail.splitlines()[0]) == ("killed", "signal SIGKILL"), f"seed {seed}"
        assert talk.done == list(range(len(talk.done))), f"seed {seed}"
        with pytest.raises(ProcessLookupError):
            os.kill(talk.host.pid, 0)


@pytest.mark.fault
async def test_what_a_dead_host_has_said_comes_before_its_end(start: Start) -> None:
    """The loop sees messages, end of stream and exit all at once, and takes several turns over the messages."""
    talk = await start()
    await talk.ask("echo")
    talk.on_message = lambda message: [None for _ in range(2000)]
    talk.ask_later("flood", b"50")  # as much as a socket holds
    talk.ask_later("leave", b"70")
    os.waitid(os.P_PID, talk.host.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 - that the loop is busy is the point
    end = await talk.ended()
    assert end.detail.splitlines()[0] == "exit code 70"
    assert len([message for message in talk.messages if type(message) is Completions]) == 200
    assert talk.messages[-1].value == b"last words"


@pytest.mark.fault
async def test_a_process_that_cannot_be_killed(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As one in a driver call: its end is reported, its slots stay fenced, and nothing of it is heard again."""
    monkeypatch.setattr(process_module, "REAP_TIME", 0.05)
    talk = await start()
    await talk.ask("echo")
    with monkeypatch.context() as patch:
        patch.setattr(signal, "pidfd_send_signal", lambda pidfd, number: None)
        os.kill(talk.host.pid, signal.SIGSTOP)
        await talk.host.close(0.01)
    assert [(end.reason, end.detail.splitlines()[0].rpartition(" (")[2]) for end in talk.ends] == [
        ("killed", "still exiting)")
    ]
    assert "left behind" in caplog.text
    assert not talk.host.reaped.done()
    os.kill(talk.host.pid, signal.SIGCONT)
    await talk.ended()  # it leaves when it hears that the line is closed


@pytest.mark.fault
async def test_a_crash_shows_signal_stack_and_last_words(start: Start) -> None:
    talk = await start()
    talk.ask_later("loud_abort")
    end = await talk.ended()
    place, said = end.detail.splitlines()
    assert end.reason == "crashed"
    assert re.fullmatch(r"Aborted at standin\.py:\d+ in do_loud_abort \(thread 0x[0-9a-f]+\), signal SIGABRT", place)
    assert said == "famous last words"
    assert end.details.startswith("Fatal Python error: Aborted\n\n")
    assert "Current thread" in end.details
    assert "childcontrol.py" in end.details  # another thread's


@pytest.mark.fault
async def test_a_process_that_the_host_forked_does_not_delay_the_end(start: Start) -> None:
    """It holds all our sockets and pipes open, so nothing of the host's ever reaches its end of file."""
    talk = await start()
    talk.ask_later("fork")
    end = await talk.ended()
    assert (end.reason, end.detail.splitlines()[0]) == ("exited", "exit code 3")


@pytest.mark.fault
async def test_a_process_that_somebody_else_waited_for(start: Start) -> None:
    talk = await start()
    await talk.ask("echo")
    os.kill(talk.host.pid, signal.SIGKILL)
    os.waitpid(talk.host.pid, 0)  # noqa: ASYNC222 - it is dead
    assert (await talk.ended()).detail.splitlines()[0] == "exit status unknown"


async def test_a_host_that_does_not_close_in_time_is_killed(start: Start) -> None:
    talk = await start()
    talk.ask_later("stick")
    await talk.host.close(0.05)
    end = await talk.ended()
    assert end.reason == "killed"
    assert "still busy" in end.detail


async def test_nothing_leaks(start: Start) -> None:
    await (await start()).host.close(20.0)  # spawner and monitor are there for good
    before = descriptors(), threading.active_count()
    for n in range(12):
        talk = await start()
        if n % 3:
            await talk.ask("echo")
        if n % 2:
            talk.host.kill("cycle")
            await talk.ended()
        else:
            await talk.host.close(20.0)
    assert (descriptors(), threading.active_count()) == before
    assert children() == []


# -- broken streams ----------------------------------------------------------------------------------------------------

BROKEN = {
    "length": (b"\xff\xff\xff\xff\x03", "at most"),
    "body": (b"\x02\x00\x00\x00\x03\xc1\xc1", "frame of kind 3"),
}


@pytest.mark.parametrize("garbage, why", BROKEN.values(), ids=BROKEN.keys())
async def test_a_broken_stream_ends_the_host(start: Start, garbage: bytes, why: str) -> None:
    talk = await start()
    talk.call(1)
    talk.ask_later("garbage", garbage)
    end = await talk.ended()
    assert end.reason == "broken"
    assert why in end.detail
    assert talk.done == [1]


async def test_garbage_from_us_ends_the_host(start: Start) -> None:
    talk = await start()
    await talk.ask("echo")
    talk.host._line._sock.send(b"\xff" * 100)
    assert (await talk.ended()).detail.splitlines()[0] == "exit code 1"


async def test_an_unknown_kind_ends_the_host(start: Start) -> None:
    talk = await start()
    talk.ask_later("garbage", b"\x01\x00\x00\x00\xc8x")
    end = await talk.ended()
    assert end.reason == "broken"
    assert "200" in end.detail


async def test_the_host_is_told_of_unknown_kinds(start: Start) -> None:
    talk = await start()
    await talk.ask("echo")
    talk.host._line._sock.send(b"\x01\x00\x00\x00\xc9x")
    await talk.until(lambda: any(getattr(message, "value", b"") == b"201" for message in talk.messages))


@pytest.fixture
def our_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[socket.socket]]:
    """The child is no host of ours, and its end of the line is the test's."""
    ends = contextlib.ExitStack()
    kept: list[socket.socket] = []
    original = socket.socketpair

    def socketpair(*args: Any) -> tuple[socket.socket, socket.socket]:
        ours, theirs = original(*args)
        kept.append(ends.enter_context(theirs.dup()))
        return ours, theirs

    monkeypatch.setattr(socket, "socketpair", socketpair)
    original_popen = launch_module.spawner().popen

    async def popen(arguments: list[str], **options: Any) -> Any:
        return await original_popen([sys.executable, "-c", "import signal; signal.pause()"], **options)

    monkeypatch.setattr(launch_module.spawner(), "popen", popen)
    with ends:
        yield kept


async def test_another_version(start: Start, our_own: list[socket.socket]) -> None:
    from callboard.device.protocol.wire import encode_frame

    talk = await start()
    our_own[0].send(encode_frame(Hello(99, 1)) + encode_frame(Hello(VERSION, 1)))
    end = await talk.ended()
    assert end.reason == "broken"
    assert "it began with Hello, not with a Hello of version" in end.detail
    assert talk.messages == []


async def test_a_stream_that_ends_while_the_process_runs(
    start: Start, our_own: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    from callboard.device.protocol.wire import encode_frame

    monkeypatch.setattr(process_module, "EXIT_TIME", 0.01)
    talk = await start()
    our_own[0].send(encode_frame(Hello(VERSION, 1)) + b"\x05\x00")
    our_own[0].shutdown(socket.SHUT_RDWR)
    end = await talk.ended()
    assert end.reason == "broken"
    assert "inside a frame" in end.detail
    assert len(talk.messages) == 1


# -- back-pressure -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_the_smallest_buffers_do_not_lock_up(start: Start) -> None:
    """Neither side stops reading because its writes are full."""
    talk = await start()
    size = int(await talk.ask("shrink"))
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        talk.host._line._sock.setsockopt(socket.SOL_SOCKET, option, 1)
    assert size <= 8192
    count = 100_000
    os.kill(talk.host.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, talk.host.pid, os.WSTOPPED)  # noqa: ASYNC222 - at once
    for op in range(count):
        talk.call(op)
    assert talk.host.unsent_bytes > 1 << 20
    os.kill(talk.host.pid, signal.SIGCONT)
    await talk.until(lambda: len(talk.messages) > count and len(talk.done) == count)
    assert talk.done == list(range(count))


async def test_what_another_thread_could_not_send_is_sent_by_a_waiting_host(start: Start) -> None:
    talk = await start()
    await talk.ask("shrink")
    assert await talk.ask("flood_later", b"20000") == b""
    # The answer may come last: the thread may have sent everything before the admitting thread got to run again.
    await talk.until(lambda: any(getattr(message, "done", None) == [19_999] for message in talk.messages[-2:]))
    completions = [message.done[0] for message in talk.messages if type(message) is Completions]
    assert completions == list(range(20_000))


async def test_many_arenas_at_once(start: Start) -> None:
    """More descriptors than a control socket holds while its reader is stopped."""
    talk = await start()
    await talk.ask("echo")
    talk.host._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    os.kill(talk.host.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, talk.host.pid, os.WSTOPPED)  # noqa: ASYNC222 - at once
    for arena in range(100):
        talk.host.send_arena(shared_arena(arena, 4096))
    assert talk.host._unsent_descriptors
    os.kill(talk.host.pid, signal.SIGCONT)
    await talk.ask("arena_add", b"99")
    assert not talk.host._unsent_descriptors


# -- output ------------------------------------------------------------------------------------------------------------


async def _logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    """Until a record holds the text; the monitor's thread logs it."""
    while text not in caplog.text:  # noqa: ASYNC110 - that thread cannot set an asyncio.Event
        await asyncio.sleep(0)


async def test_output_and_logs_reach_the_logger(
    start: Start, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO, "callboard.host")
    talk = await start()
    await talk.ask("print", b"hello\nworld")
    async with asyncio.timeout(20.0):
        for text in ("stdout: world", "stderr: warned", "with a traceback"):
            await _logged(caplog, text)
    prefix = f"[test {talk.host.pid}] "
    records = {(r.levelname, r.getMessage().removeprefix(prefix)) for r in caplog.records if r.name == "callboard.host"}
    assert {
        ("INFO", "stdout: hello"),
        ("INFO", "stdout: world"),
        ("WARNING", "stderr: warned"),
        ("ERROR", "some.library: failed badly"),
    } <= records
    assert "ZeroDivisionError: the cause" in caplog.text
    assert "too fine" not in caplog.text
    assert capfd.readouterr() == ("", "")
