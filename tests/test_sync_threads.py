"""Blocking calls of several threads, and where they would wait for themselves: on the loop's thread, in handlers."""

import asyncio
import inspect
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from tests.together import together

import callboard as cb
from callboard import _background
from callboard.numpylike import namespace

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


def test_a_device_is_opened_while_another_thread_closes_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, closed = threading.Event(), threading.Event()
    opened = cb.System.device

    async def device(self: cb.System, *args: Any, **options: Any) -> Any:
        begun.set()
        await asyncio.to_thread(closed.wait, BOUND)
        return await opened(self, *args, **options)

    with open_cpu() as first:
        monkeypatch.setattr(cb.System, "device", device)
        with ThreadPoolExecutor() as threads:
            opening = threads.submit(open_cpu)
            assert begun.wait(BOUND)
            first.close()
            closed.set()
            with opening.result(BOUND) as second:
                assert second.put(np.ones(3)).get().sum() == 3.0


def test_an_op_that_is_called_while_the_device_closes_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread has passed the checks; when it goes on, the device is closed and the loop has ended."""
    with open_cpu() as gpu:
        x = gpu.put(np.ones(4)).result()
        port = gpu._port
        enter = port.enter

        def late(*args: Any, **options: Any) -> None:
            monkeypatch.undo()
            gpu.close()
            enter(*args, **options)

        monkeypatch.setattr(port, "enter", late)
        y = gpu.copy(x)
        with pytest.raises(cb.DeviceStopped):
            y.result(BOUND)
        with pytest.raises(cb.DeviceStopped):
            gpu.copy(x)


def test_threads_that_use_a_part_of_a_device_first_get_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2)

    def slow(make: Any) -> Any:
        def made(*args: Any) -> Any:
            both.wait(BOUND)
            return make(*args)

        return made

    with open_cpu() as gpu:
        monkeypatch.setattr(gpu, "library", slow(gpu.library))
        one, other = together(lambda: gpu.event, [(), ()])
        assert one is other is gpu.event
        numpy = gpu.np
        monkeypatch.setattr(namespace, "Random", slow(namespace.Random))
        one, other = together(lambda: numpy.random, [(), ()])
        assert one is other is numpy.random  # it has the state of `np.random.seed`
