"""Calls on several threads that begin at the same moment, and take turns often."""

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["together"]

LIMIT = 60.0


def together(work: Callable[..., Any], arguments: Iterable[tuple[Any, ...]], limit: float = LIMIT) -> list[Any]:
    """Call ``work`` with each of the arguments, on a thread each; the results in their order.

    Without a common start, the first thread may end before the last one begins.

    Args:
        work, arguments: Function, and the arguments of each call.
        limit: Seconds that all of it may take.

    Raises:
        Exception: The first that a call raised.
        TimeoutError: A call did not end.
    """
    calls = list(arguments)
    start = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            start.wait(limit)
            results[number] = work(*calls[number])
        except BaseException as e:  # of any class: raised below
            errors.append(e)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(min(interval, 1e-5))
    try:
        threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(len(calls))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(limit)
    finally:
        sys.setswitchinterval(interval)
    if errors:
        raise errors[0]
    if any(thread.is_alive() for thread in threads):
        raise TimeoutError(f"a call did not end within {limit:g} s")
    return results
