"""Shared by the tests of workers of ``callboard serve``: an app, the command in a process, and requests."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
LIMIT = 60.0

APP = """
import os
import numpy as np
import callboard as cb
from callboard.serve import App, Tensor

def pid(x):
    return np.array([os.getpid(), VERSION], np.int64)

def stops(x):
    raise cb.DeviceStopped("gone")

VERSION = 1
X, Y = [Tensor("x", "FP32", [-1])], [Tensor("y", "INT64", [2])]
server = App("crew")
server.add_model("pid", pid, inputs=X, outputs=Y)
server.add_model("stops", stops, inputs=X, outputs=Y)
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


BODY = b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}'


def ask(url: str) -> list[int]:
    with urllib.request.urlopen(f"{url}/v2/models/pid/infer", BODY, timeout=LIMIT) as response:
        found: list[int] = json.load(response)["outputs"][0]["data"]
    return found


def metric(url: str, series: str) -> float:
    with urllib.request.urlopen(f"{url}/metrics", timeout=LIMIT) as response:
        text = response.read().decode()
    [value] = re.findall(rf"^{re.escape(series)} (.*)$", text, re.MULTILINE)
    return float(value)


COMPLETED = 'callboard_model_requests_total{model="pid",version="1",end="completed"}'
