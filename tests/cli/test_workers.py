"""``callboard serve`` with several workers, and with ``--reload``."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from callboard.cli.serving.changes import files_of
from callboard.cli.serving.merging import Totals
from callboard.cli.serving.worker import check_shareable
from callboard.serve import App

SOURCE = Path(__file__).resolve().parents[2] / "src"
LIMIT = 60.0

APP = """
import os
import numpy as np
import callboard as cb
from callboard.serve import App, Tensor

def pid(x):
    return np.array([os.getpid(), VERSION], np.int64)

VERSION = 1
X, Y = [Tensor("x", "FP32", [-1])], [Tensor("y", "INT64", [2])]
server = App("crew")
server.add_model("pid", pid, inputs=X, outputs=Y)
sequences = App("crew")
sequences.add_model("seq", cb.SequenceBatchingServer(lambda items, slots: items), inputs=X, outputs=X)
"""


@contextmanager
def serving(folder: Path, *arguments: str) -> "Iterator[subprocess.Popen[str]]":
    pytest.importorskip("uvicorn", reason="for the extra serve")
    pytest.importorskip("starlette", reason="for the extra serve")
    if not (folder / "crew_app.py").exists():
        (folder / "crew_app.py").write_text(APP)
    command = [sys.executable, "-m", "callboard", "serve", "--port", "0", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line_with(process: "subprocess.Popen[str]", text: str) -> str:
    """The next line of the log that has this text."""
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        if text in line:
            return line
        seen.append(line)
    raise AssertionError(f"no {text!r} in {''.join(seen)}")


def ask(url: str) -> list[int]:
    body = b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}'
    with urllib.request.urlopen(f"{url}/v2/models/pid/infer", body, timeout=LIMIT) as response:
        found: list[int] = json.load(response)["outputs"][0]["data"]
    return found


def metric(url: str, series: str) -> float:
    with urllib.request.urlopen(f"{url}/metrics", timeout=LIMIT) as response:
        text = response.read().decode()
    [value] = re.findall(rf"^{re.escape(series)} (.*)$", text, re.MULTILINE)
    return float(value)


COMPLETED = 'callboard_model_requests_total{model="pid",version="1",end="completed"}'


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
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 0
        for each in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(each, 0)


@pytest.mark.slow
def test_workers_refuse_sequences(tmp_path: Path) -> None:
    with serving(tmp_path, "crew_app:sequences", "--workers", "2") as process:
        _, log = process.communicate(timeout=LIMIT)
    assert process.returncode == 2, log
    assert "each worker has its own sequences, and a client cannot choose one: ['seq']" in log


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
