"""Waiting on a thread that has no loop: values, ends, and a Ctrl-C that does not interrupt the wait itself."""

import concurrent.futures
import os
import signal
import threading

import pytest

from callboard.actors.loops import blocking
from callboard.actors.loops.bell import Bell
from callboard.actors.loops.blocking import Waiter

Future = concurrent.futures.Future


def test_it_gives_what_the_future_gives() -> None:
    future: Future[int] = Future()
    thread = threading.Thread(target=future.set_result, args=(7,))
    thread.start()
    assert blocking.wait(future) == 7
    assert blocking.wait(future, 0.0) == 7
    thread.join()


def test_it_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking, "SLICE", 0.001)
    for timeout in (0.0, 0.0005, 0.005):
        with pytest.raises(TimeoutError):
            blocking.wait(Future(), timeout)


@pytest.mark.parametrize("timeout", [None, 10.0])
def test_a_timeout_that_is_the_outcome_is_not_waited_out(timeout: float | None) -> None:
    future: Future[int] = Future()
    own = TimeoutError("its own")
    future.set_exception(own)
    with pytest.raises(TimeoutError) as caught:
        blocking.wait(future, timeout)
    assert caught.value is own
    assert own.__context__ is None


def test_what_comes_after_a_slice_is_still_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking, "SLICE", 1e-4)
    future: Future[int] = Future()
    slices = 0

    class Counted(Bell):
        def wait(self, timeout: float | None = None) -> bool:
            nonlocal slices
            slices += 1
            if slices == 3:
                future.set_result(3)
            return super().wait(timeout)

    monkeypatch.setattr(blocking._bells, "_free", [Counted()])
    assert blocking.wait(future, 10.0) == 3
    assert slices == 3


def test_the_ring_for_a_wait_that_was_given_up_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    given_up = Waiter()
    assert not given_up.wait(0.0)
    given_up.set_result()
    assert given_up.done()
    waiter = Waiter()
    assert not waiter.wait(1e-3)
    assert not waiter.done()


def test_a_wait_inside_a_wait_does_not_hear_its_ring() -> None:
    """As of a signal's handler that waits for something of its own."""
    outer = Waiter()
    inner = Waiter()
    outer.set_result()
    inner.set_result()
    assert inner._bell.wait(10.0)  # has heard every ring for it
    assert outer._bell.wait(10.0)
    assert outer.wait()


def test_a_forked_child_hears_bells_of_its_own() -> None:
    waiter = Waiter()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        own = Waiter()
        own.set_result()  # rings no bell of the parent's
        os.write(write, b"1" if own.wait(10.0) else b"0")
        os._exit(0)
    assert os.read(read, 1) == b"1"
    os.waitpid(child, 0)
    assert not waiter._bell.wait(0.0)
    os.close(read)
    os.close(write)


def test_ctrl_c_that_another_thread_received_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one in the instant before the wait: its handler may run, and nothing has interrupted the wait."""
    future: Future[None] = Future()
    waits = threading.Event()

    class Noticed(Bell):
        def wait(self, timeout: float | None = None) -> bool:
            waits.set()
            return super().wait(timeout)

    monkeypatch.setattr(blocking._bells, "_free", [Noticed()])

    def interrupt() -> None:
        waits.wait(20.0)
        signal.raise_signal(signal.SIGINT)  # delivered to this thread

    thread = threading.Thread(target=interrupt)
    limit = threading.Timer(20.0, future.set_result, (None,))
    thread.start()
    limit.start()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what a shell runs in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            blocking.wait(future)
        assert not future.done()
    finally:
        limit.cancel()
        thread.join()
        limit.join()
        signal.signal(signal.SIGINT, before)
