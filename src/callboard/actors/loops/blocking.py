"""Waiting on a thread that has no loop."""

import concurrent.futures
import time
from typing import TypeVar

__all__ = ["wait"]

T = TypeVar("T")

SLICE = 0.25
"""Seconds between checks. CPython acts on a signal between two bytecodes, or when the signal interrupts the wait
itself. A signal that arrives just before the wait, or is delivered to another thread, does neither; without these
checks the wait would notice a Ctrl-C only at its end."""


def wait(future: "concurrent.futures.Future[T]", timeout: float | None = None) -> T:
    """``future.result(timeout)``; a Ctrl-C is acted on within :data:`SLICE` seconds, whenever it comes.

    Args:
        future: The future to wait for.
        timeout: Seconds; None waits for ever.

    Raises:
        TimeoutError: It was not done in time, or it raised ``TimeoutError`` itself: ``future.done()`` distinguishes the
            two.
    """
    until = None if timeout is None else time.monotonic() + timeout
    slice_ = SLICE if timeout is None else min(SLICE, timeout)
    while True:
        try:
            return future.result(slice_)
        except TimeoutError:
            if not future.done():
                if until is not None:
                    slice_ = min(SLICE, until - time.monotonic())
                    if slice_ <= 0.0:
                        raise
                continue
        return future.result()  # done just now, or ended with a TimeoutError of its own
