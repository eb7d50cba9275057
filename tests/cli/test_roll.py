"""Workers of ``callboard serve`` that are replaced one after the other while clients ask them."""

import http.client
import json
import os
import signal
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.cli.workers_lab import BODY, COMPLETED, LIMIT, ask, line_with, metric, serving

from callboard.cli.serving.merging import Totals

APP = """
import os, sys
import numpy as np
from callboard.serve import App, Tensor

VERSION = 1
GATE = %r

def pid(x):
    return np.array([os.getpid(), VERSION], np.int64)

def held(x):
    print(f"held by {os.getpid()} ", file=sys.stderr, flush=True)
    try:
        open(GATE).read()
    except FileNotFoundError:  # opened for good
        pass
    return pid(x)

server = App("crew")
for model in (pid, held):
    server.add_model(
        model.__name__, model, inputs=[Tensor("x", "FP32", [-1])], outputs=[Tensor("y", "INT64", [2])], concurrency=64
    )
"""


class Load:
    """Clients that ask all the time: with a connection for each request, and with one that they keep."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._over = threading.Event()
        self.answers: list[list[int]] = []
        self.failures: list[BaseException] = []
        self._threads = [threading.Thread(target=each) for each in (self._anew, self._anew, self._keeping)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(LIMIT)
            assert not thread.is_alive()

    def _anew(self) -> None:
        while not self._over.is_set():
            try:
                self.answers.append(ask(self._url))
            except BaseException as e:  # whatever it is, a request has failed
                self.failures.append(e)

    def _keeping(self) -> None:
        connection = http.client.HTTPConnection(urlsplit(self._url).netloc, timeout=LIMIT)
        while not self._over.is_set():
            try:
                connection.request("POST", "/v2/models/pid/infer", BODY)
                response = connection.getresponse()
                assert response.status == 200
                self.answers.append(json.load(response)["outputs"][0]["data"])
            except BaseException as e:
                self.failures.append(e)
                connection.close()
        connection.close()


def hold(url: str) -> tuple[int, int]:
    """Process and version that have answered a request which was held."""
    with urllib.request.urlopen(f"{url}/v2/models/held/infer", BODY, timeout=LIMIT) as response:
        process, version = json.load(response)["outputs"][0]["data"]
    return process, version


@pytest.mark.fault
@pytest.mark.skipif(not hasattr(signal, "SIGUSR2"), reason="this system has no SIGUSR2")
def test_a_roll_replaces_the_workers_and_fails_no_request(tmp_path: Path) -> None:
    gate, app = tmp_path / "gate", tmp_path / "crew_app.py"
    os.mkfifo(gate)
    text = APP % str(gate)
    app.write_text(text)
    with serving(tmp_path, "crew_app:server", "--workers", "2") as process, ThreadPoolExecutor(64) as threads:
        [url] = {line_with(process, "accepts requests at ").split(" at ")[1].split(": pid")[0] for _ in range(2)}
        before: set[int] = set()
        while len(before) < 2:
            before.add(ask(url)[0])

        app.write_text(text.replace("VERSION = 1", "VERSION = (2"))
        process.send_signal(signal.SIGUSR2)
        stopped = line_with(process, "the roll has stopped at worker 0")
        assert "ended with exit code 1; the workers that were not replaced go on" in stopped
        asked = {tuple(ask(url)) for _ in range(32)}
        assert asked <= {(each, 1) for each in before}

        app.write_text(text.replace("VERSION = 1", "VERSION = 2"))
        held = []
        holders: set[int] = set()
        while holders != before:
            held.append(threads.submit(hold, url))
            holders.add(int(line_with(process, "held by ").split()[-1]))
        with Load(url) as load:
            process.send_signal(signal.SIGUSR2)
            line_with(process, "drains: process ")  # one holds requests
            threads.submit(gate.open, "w").result(LIMIT).close()
            gate.unlink()
            line_with(process, "all 2 workers were replaced")
            after: set[int] = set()
            while len(after) < 2:
                after.add(ask(url)[0])
        assert {each.result(LIMIT) for each in held} == {(each, 1) for each in before}
        assert load.failures == []
        assert {version for _, version in load.answers} == {1, 2}
        assert not after & before
        assert metric(url, COMPLETED) >= len(asked)  # of those that have ended, too
        assert metric(url, "callboard_worker_restarts_total") == 0
        assert metric(url, 'callboard_ready{worker="0"}') == metric(url, 'callboard_ready{worker="1"}') == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 0
        for each in before | after:
            with pytest.raises(ProcessLookupError):
                os.kill(each, 0)


def test_figures_of_a_worker_whose_place_is_taken() -> None:
    totals = Totals()
    text = "# TYPE a counter\na %d\n# TYPE g gauge\ng %d\n"
    totals.note(0, text % (1, 5))
    totals.moved(0, -7)
    totals.note(0, text % (2, 6))
    totals.note(-7, text % (3, 9))
    assert totals.exposition({}).splitlines() == ["# TYPE a counter", "a 5", "# TYPE g gauge", 'g{worker="0"} 6']
    totals.ended(-7)
    assert totals.exposition({}).splitlines() == ["# TYPE a counter", "a 5", "# TYPE g gauge", 'g{worker="0"} 6']
