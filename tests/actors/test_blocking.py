"""Waiting on a thread that has no loop: values, ends, and a Ctrl-C that does not interrupt the wait itself."""

import concurrent.futures
import signal
import threading

import pytest

from callboard.actors.loops import blocking

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
    looks = 0

    class Slow(Future[int]):
        def result(self, timeout: float | None = None) -> int:
            nonlocal looks
            looks += 1
            if looks == 3:
                self.set_result(3)
            return super().result(timeout)

    assert blocking.wait(Slow(), 10.0) == 3


def test_ctrl_c_that_another_thread_received_ends_the_wait() -> None:
    """As one in the instant before the wait: its handler may run, and nothing has interrupted the wait."""
    future: Future[None] = Future()

    def interrupt() -> None:
        while not future._condition._waiters:  # type: ignore[attr-defined]
            pass  # until the main thread waits inside
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
