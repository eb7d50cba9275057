"""``cb.sync.serving``: a serving blueprint in a program without asyncio."""

import concurrent.futures
import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import callboard as cb

LIMIT = 30.0


def echo(items: list[int]) -> list[int]:
    return items


def add_one(items: list[int]) -> list[int]:
    return [item + 1 for item in items]


def test_a_blocking_device_behind_a_batching_server() -> None:
    weights = np.arange(12.0).reshape(4, 3)
    rows = list(np.random.default_rng(1).standard_normal((40, 4)))
    with cb.sync.device("cpu", isolation="thread") as gpu:

        def product(items: list[Any]) -> Any:
            return gpu.blas.gemm(gpu.put(np.stack(items)), gpu.put(weights)).get()

        with (
            cb.sync.serving(cb.DynamicBatchingServer(product, max_batch=8)) as server,
            concurrent.futures.ThreadPoolExecutor(8) as pool,
        ):
            found = list(pool.map(server.ask, rows, timeout=LIMIT))
        assert np.allclose(found, np.stack(rows) @ weights)
        assert server.stats().completed == 40
        assert np.allclose(gpu.put(weights).get(), weights)  # the device goes on


def test_leaving_the_block_finishes_what_was_accepted() -> None:
    with cb.sync.serving(cb.DynamicBatchingServer(add_one)) as server:
        futures = [server.submit_threadsafe(n) for n in range(20)]
        assert futures[0].result(LIMIT) == 1
    assert [future.result(LIMIT) for future in futures] == list(range(1, 21))
    with pytest.raises(cb.ServerStopped):
        server.ask(1)


def test_an_exception_stops_it_at_once() -> None:
    begun, gate = threading.Event(), threading.Event()

    def slow(items: list[int]) -> list[int]:
        begun.set()
        assert gate.wait(LIMIT)
        return items

    futures: list[concurrent.futures.Future[int]] = []

    def body() -> None:
        with cb.sync.serving(cb.DynamicBatchingServer(slow, max_batch=1)) as server:
            futures.extend(server.submit_threadsafe(n) for n in range(2))
            assert begun.wait(LIMIT)
            futures[1].add_done_callback(lambda _: gate.set())  # not before: the second item would run
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        body()
    assert [type(future.exception(LIMIT)) for future in futures][1] is cb.ServerStopped


def test_a_server_that_is_in_use_is_left_alone() -> None:
    with cb.sync.serving(cb.DynamicBatchingServer(echo)) as server:
        with pytest.raises(RuntimeError, match="started before"), cb.sync.serving(server):
            pass
        assert server.ask(1) == 1


def test_a_program_that_leaves_no_block_ends() -> None:
    code = """
import callboard as cb
serving = cb.sync.serving(cb.DynamicBatchingServer(lambda items: items))
print(serving.__enter__().ask(1))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT, env={**os.environ}, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_the_loop_ends_with_its_last_user() -> None:
    with cb.sync.serving(cb.DynamicBatchingServer(echo)) as server:
        assert server.ask(1) == 1
        assert any(thread.name == "callboard-sync" for thread in threading.enumerate())
    assert not any(thread.name == "callboard-sync" for thread in threading.enumerate())
