"""What goes wrong while ``callboard serve`` replaces its workers."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.cli.rolls_lab import Crew, Process
from tests.cli.test_roll import APP, hold
from tests.cli.workers_lab import LIMIT, SOURCE, ask, line_with, serving

from callboard.cli.serving import supervisor
from callboard.cli.serving.processes import WorkerProcess
from callboard.cli.serving.rolls import Rolls

needs_signal = pytest.mark.skipif(not hasattr(signal, "SIGUSR2"), reason="this system has no SIGUSR2")


async def test_sums_do_not_decrease_while_two_processes_have_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    crew = Crew(monkeypatch)
    async with crew.running():
        for each in crew.all:
            each.counted = 5
            each.ready()
        crew.roll()
        await crew.until(lambda: len(crew.all) == 3)
        assert crew.all[2].worker.key < 0 == crew.all[0].worker.key
        crew.all[0].process.stuck = True
        crew.all[2].ready()
        for _ in range(3):  # before the place is taken, and after
            assert "\na 10\n" in await crew.supervisor._gather()
        await crew.until(lambda: crew.all[0].process.signals)
        assert "\na 10\n" in await crew.supervisor._gather()
        crew.all[0].process.end(0)
        await crew.until(lambda: len(crew.all) == 4)
        assert "\na 10\n" in await crew.supervisor._gather()


async def test_a_new_process_that_ends_while_the_old_one_drains_is_replaced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    crew = Crew(monkeypatch)
    async with crew.running():
        for each in crew.all:
            each.ready()
        crew.roll()
        await crew.until(lambda: len(crew.all) == 3)
        old, new = crew.all[0], crew.all[2]
        old.process.stuck = True
        new.ready()
        await crew.until(lambda: old.process.signals)
        assert old.worker.listener is None  # the new process alone keeps the socket
        new.process.end(-9)
        await crew.until(lambda: len(crew.all) == 4)
        assert old.process.returncode is None
        crew.all[3].ready()
        assert (
            "stopped at worker 0: its next process (102): was ended by SIGKILL while process 100 drained" in caplog.text
        )
        old.process.end(0)
        await crew.iterations()
        assert len(crew.all) == 4  # the other worker is not replaced
        assert crew.supervisor._workers[0] is crew.all[3].worker


async def test_a_roll_waits_for_the_first_worker_and_its_processes_listen_late(monkeypatch: pytest.MonkeyPatch) -> None:
    crew = Crew(monkeypatch)
    async with crew.running():
        crew.roll()
        await crew.iterations()
        assert len(crew.all) == 2
        crew.all[0].ready()
        await crew.until(lambda: len(crew.all) == 3)
        assert [each.late for each in crew.all] == [False, False, True]


async def test_a_process_that_is_not_ready_and_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    crew = Crew(monkeypatch)
    monkeypatch.setattr(supervisor, "LEAVING", 0.0)
    async with crew.running() as task:
        for each in crew.all:
            each.ready()
        crew.roll()
        await crew.until(lambda: len(crew.all) == 3)
        crew.all[2].process.stuck = True
        crew.signals.stop.set()
        assert await task == 0
        assert [each.process.signals for each in crew.all] == [
            [signal.SIGTERM],
            [signal.SIGTERM],
            [signal.SIGTERM, signal.SIGKILL],
        ]


async def test_other_workers_are_replaced_while_a_roll_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    crew = Crew(monkeypatch)
    async with crew.running():
        for each in crew.all:
            each.ready()
        crew.roll()
        await crew.until(lambda: len(crew.all) == 3)
        crew.all[1].process.stuck = True
        crew.all[0].why_not_live = crew.all[1].why_not_live = "gone"
        await crew.until(lambda: crew.all[1].process.signals)
        assert crew.all[1].worker.listener is None  # no connection waits there while it drains
        assert crew.all[0].process.signals == []  # the roll ends it
        crew.all[1].process.end(0)
        await crew.until(lambda: len(crew.all) == 4)
        assert (crew.all[3].worker.number, crew.all[1].process.signals) == (1, [signal.SIGTERM])
        crew.all[3].ready()
        crew.all[0].process.end(-9)  # the process of the roll takes its place
        await crew.until(lambda: crew.supervisor._workers.get(0) is crew.all[2].worker)
        crew.all[2].ready()
        await crew.until(lambda: len(crew.all) == 5)
        assert crew.all[4].worker.number == 1


@pytest.mark.skipif(sys.platform != "linux", reason="other systems shut no listening socket down")
def test_a_reset_socket_listens_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        make: Any = WorkerProcess
        worker = make(0, Process(1), None, listener)
        worker.reset_listener()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(listener.getsockname(), LIMIT)
        worker.listen_again()
        with socket.create_connection(listener.getsockname(), LIMIT), listener.accept()[0]:
            pass


@pytest.mark.fault
@needs_signal
def test_requests_are_answered_after_a_new_process_was_killed(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    (tmp_path / "crew_app.py").write_text(APP % str(gate) + 'print("imported", file=sys.stderr, flush=True)')
    with serving(tmp_path, "crew_app:server", "--workers", "2") as process, ThreadPoolExecutor(64) as threads:
        line_with(process, "imported")
        process.send_signal(signal.SIGUSR2)  # no worker is ready yet
        url = line_with(process, "accepts requests at ").split(" at ")[1].split(": pid")[0]
        line_with(process, "all 2 workers were replaced")
        before = {ask(url)[0]}
        while len(before) < 2:
            before.add(ask(url)[0])
        held, holders = [], set[int]()
        while holders != before:
            held.append(threads.submit(hold, url))
            holders.add(int(line_with(process, "held by ").split()[-1]))
        process.send_signal(signal.SIGUSR2)
        new = int(line_with(process, "drains: process ").split("process ")[2].split()[0])
        os.kill(new, signal.SIGKILL)
        assert "was ended by SIGKILL while process" in line_with(process, "the roll has stopped at worker 0")
        for _ in range(32):  # the process before holds requests all the time
            ask(url)
        line_with(process, "accepts requests at ")
        threads.submit(gate.open, "w").result(LIMIT).close()
        gate.unlink()
        assert {each.result(LIMIT)[0] for each in held} == before
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 0


@pytest.mark.fault
@needs_signal
@pytest.mark.parametrize("options", [(), ("--reload",)])
def test_without_workers_the_signal_has_no_effect(tmp_path: Path, options: tuple[str, ...]) -> None:
    with serving(tmp_path, "crew_app:server", *options) as process:
        url = line_with(process, "accepts requests at ").split(" at ")[1].split(": pid")[0]
        [before, _] = ask(url)
        process.send_signal(signal.SIGUSR2)
        line_with(process, "SIGUSR2 has no effect")
        assert ask(url)[0] == before
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 0


@needs_signal
def test_the_signal_ends_nothing_while_the_command_is_imported() -> None:
    program = """
import os, signal
from callboard.cli import main
from callboard.cli.parts import streams

streams.open_missing = lambda: os.kill(os.getpid(), signal.SIGUSR2)
main(["serve", "--help"])
"""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    ended = subprocess.run(
        [sys.executable, "-c", program], check=False, env=environment, timeout=LIMIT, capture_output=True, text=True
    )
    assert (ended.returncode, "SIGUSR2" in ended.stdout) == (0, True), ended.stderr


async def test_a_signal_that_came_before_is_obeyed_later() -> None:
    rolls, called = Rolls(), []
    rolls._handle(0, None)
    rolls.obey(asyncio.get_running_loop(), lambda: called.append(1))
    assert called == [1]
    rolls._handle(0, None)
    await asyncio.sleep(0)
    assert called == [1, 1]
