"""Blocking calls where they would wait for themselves: on the loop's thread, and in handlers of signals."""

import inspect
import signal
import threading
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard import _background

pytestmark = pytest.mark.leaves_nothing

BOUND = 30.0


def open_cpu(**options: Any) -> cb.sync.Device:
    return cb.sync.device("cpu", **{"isolation": "thread", "standby": None, **options})


def test_a_hook_that_blocks_is_told_so() -> None:
    said: list[str] = []
    told = threading.Event()
    with open_cpu() as gpu:
        x = gpu.put(np.ones(4))

        def hook(record: object) -> None:
            for call in (gpu.stats, gpu.drain, gpu.close, lambda: gpu.actor_of(cb.Props(cb.ResidentActor)), x.get):
                try:
                    call()
                except RuntimeError as e:
                    said.append(str(e))
            told.set()

        remove = gpu.trace(hook)
        gpu.copy(x).result()
        assert told.wait(BOUND)
        remove()
        assert gpu.stats().name == "cpu:0"
    assert len(said) >= 4
    assert all("own loop" in text or "dead-lock" in text for text in said), said


def test_a_function_on_the_loop_may_not_block() -> None:
    with open_cpu() as gpu:

        def blocks(items: list[int]) -> list[float]:
            gpu.stats()
            return [0.0 for _ in items]

        with (
            cb.sync.serving(cb.DynamicBatchingServer(blocks, executor="loop")) as server,
            pytest.raises(RuntimeError, match="call it on another thread"),
        ):
            server.ask(1)


def test_a_handler_of_a_signal_may_wait_while_the_thread_waits() -> None:
    got: list[float] = []
    with open_cpu() as gpu:
        x = gpu.put(np.full(4, 2.0))

        def handler(number: int, frame: object) -> None:
            got.append(float(x.get()[0]))

        before = signal.signal(signal.SIGUSR1, handler)
        try:
            threading.Thread(target=lambda: signal.pthread_kill(main, signal.SIGUSR1)).start()
            for _ in range(500):
                gpu.copy(x).get()
                if got:
                    break
        finally:
            signal.signal(signal.SIGUSR1, before)
    assert got == [2.0]


main = threading.main_thread().ident or 0


def test_ctrl_c_before_the_loop_has_a_call_leaves_no_coroutine(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None: ...

    def interrupted() -> None:
        raise KeyboardInterrupt

    def close() -> None: ...

    background = _background.open_loop(close)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(background, "check_thread", interrupted)
            call = work()
            with pytest.raises(KeyboardInterrupt):
                background.run(call)
            assert inspect.getcoroutinestate(call) == inspect.CORO_CLOSED
    finally:
        background.leave(close)
