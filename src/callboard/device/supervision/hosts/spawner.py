"""Starting child processes from one thread that lives as long as this process.

``PR_SET_PDEATHSIG`` fires when the *thread* that spawned the child ends, not the process; a host spawned from a
short-lived thread would be killed with it.
"""

import asyncio
import queue
import signal
import subprocess
import threading
from collections.abc import Callable
from typing import Any

from callboard.device import forkguard

__all__ = ["abandon", "spawner"]


class Spawner:
    """The thread and its queue."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[asyncio.AbstractEventLoop, asyncio.Future[Any], Callable[[], Any]]]
        self._jobs = queue.SimpleQueue()
        threading.Thread(target=self._run, name="callboard-spawner", daemon=True).start()
        forkguard.guard(self)

    async def popen(self, arguments: list[str], **options: Any) -> "subprocess.Popen[bytes]":
        """``subprocess.Popen``, on the long-lived thread. A cancelled caller's child is killed.

        Raises:
            OSError: It cannot be started.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[subprocess.Popen[bytes]] = loop.create_future()
        self._jobs.put((loop, future, lambda: subprocess.Popen(arguments, **options)))
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                abandon(future.result())  # it came together with the cancellation
            raise

    def _run(self) -> None:
        # Inherited by the children: a Ctrl-C before they ignore it must not end them.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        while True:
            loop, future, job = self._jobs.get()
            child, error = None, None
            try:
                child = job()
            except Exception as e:  # of the start; raised from the future
                error = e
            try:
                loop.call_soon_threadsafe(_settle, future, child, error)
            except RuntimeError:  # the loop was closed meanwhile
                abandon(child)
            del loop, future, job, child, error

    def after_fork(self) -> None:
        global _spawner, _lock
        _spawner, _lock = None, threading.Lock()


def _settle(future: "asyncio.Future[Any]", child: "subprocess.Popen[bytes] | None", error: Exception | None) -> None:
    if future.cancelled():
        abandon(child)
    elif error is not None:
        future.set_exception(error)
    else:
        future.set_result(child)


def abandon(child: "subprocess.Popen[bytes] | None") -> None:
    """Kill a child that has no owner, and wait for it."""
    if child is not None:
        with child:  # closes its pipes and waits
            child.kill()


_spawner: Spawner | None = None
_lock = threading.Lock()


def spawner() -> Spawner:
    """The one of this process, started at first use."""
    global _spawner
    with _lock:
        if _spawner is None:
            _spawner = Spawner()
        return _spawner
