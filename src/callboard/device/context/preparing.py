"""The helper: one thread for prepares that may block, so that the admitting thread never does."""

import queue
import threading
from collections import deque
from collections.abc import Callable

__all__ = ["Helper"]

Done = Callable[[BaseException | None], None]


class Helper:
    """Runs one job after the other; their ends are handed back on the admitting thread by :meth:`finish`.

    Args:
        enter: Called once on the helper's thread (makes the context current).
        busy: Announces what runs, so that its silence is no hang; None when nothing does.
        wake: Wakes the admitting thread.
    """

    def __init__(self, enter: Callable[[], None], busy: Callable[[str | None], None], wake: Callable[[], None]) -> None:
        self._enter = enter
        self._busy = busy
        self._wake = wake
        self._jobs: queue.SimpleQueue[tuple[str, Callable[[], None], Done] | None] = queue.SimpleQueue()
        self._ended: deque[tuple[Done, BaseException | None]] = deque()
        self._thread: threading.Thread | None = None

    def run(self, what: str, job: Callable[[], None], done: Done) -> None:
        """Run ``job`` on the helper's thread, then ``done(error or None)`` on the admitting thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="callboard-helper", daemon=True)
            self._thread.start()
        self._jobs.put((what, job, done))

    def finish(self) -> None:
        """Hand back what has ended; on the admitting thread."""
        while self._ended:
            done, error = self._ended.popleft()
            done(error)

    def close(self) -> None:
        """Let the thread end after its current job."""
        if self._thread is not None:
            self._jobs.put(None)

    def _serve(self) -> None:
        entered = False
        while (entry := self._jobs.get()) is not None:
            what, job, done = entry
            error: BaseException | None = None
            self._busy(what)
            try:
                if not entered:
                    self._enter()
                    entered = True
                job()
            except BaseException as e:
                error = e
            finally:
                self._busy(None)
            self._ended.append((done, error))
            self._wake()
