"""The end of ``callboard serve`` while an actor does not return."""

import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])}
LIMIT = 60.0
BODY = b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}'

STUCK = """
import functools
import time
from contextlib import asynccontextmanager
import callboard as cb
from callboard.serve import App, Tensor

class Stuck(cb.ResidentActor):
    def run(self, x):
        print("begun", flush=True)
        time.sleep(3600)

@asynccontextmanager
async def lifespan(app):
    async with cb.device("cpu", standby=None, close_timeout=3600) as device:
        actor = device.actor_of(cb.Props(Stuck))
        app.add_model("slow", functools.partial(actor.call, Stuck.run), inputs=X, outputs=X)
        yield

X = [Tensor("x", "FP32", [-1])]
server = App("stuck", lifespan=lifespan)
"""


def ask(url: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="503"):
        urllib.request.urlopen(f"{url}/v2/models/slow/infer", BODY, timeout=LIMIT)


@pytest.mark.fault
def test_a_second_interrupt_does_not_wait_for_a_stuck_actor(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="for the extra serve")
    (tmp_path / "served_app.py").write_text(STUCK)
    command = [sys.executable, "-m", "callboard", "serve", "served_app:server", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            url = process.stderr.readline().split(" at ")[1].split(": slow")[0]
            asking = threading.Thread(target=ask, args=(url,))
            asking.start()
            for says in ("begun", "press Ctrl-C again"):
                while says not in process.stderr.readline():
                    pass
                process.send_signal(signal.SIGINT)
            _, log = process.communicate(timeout=LIMIT)
            asking.join()
        finally:
            process.kill()
    assert process.returncode == 0, log
    assert "stuck has stopped" in log
