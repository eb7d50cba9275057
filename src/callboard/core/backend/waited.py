"""``WaitedStream``: the stream for a thread that waits for each of its ops: it executes them itself.

To hand an op to the worker of a :class:`WorkerStream` and to be woken when it is done takes longer than a small op.
"""

from collections.abc import Callable
from typing import Any

from callboard.core.backend.workers import WorkerStream, failure

__all__ = ["WaitedStream"]


class WaitedStream(WorkerStream):
    """Executes submitted work at once, on the submitting thread, after the work that ``stream`` has by then.

    Args:
        stream: Stream that it replaces. Not closed with this one.
    """

    def __init__(self, stream: WorkerStream) -> None:
        self.id = stream.id
        self._stream = stream
        self._closing = False
        self._error = None

    def _push(self, fn: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._catch_up()
        try:
            with self.entered():
                fn(*args)
        except BaseException as e:  # as the worker of a stream does
            self._error = failure("", fn, e)

    def query(self) -> bool:
        self.synchronize()
        return True

    def synchronize(self) -> None:
        self._catch_up()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _catch_up(self) -> None:
        if not self._stream.query():
            self._stream.synchronize()

    @property
    def at_once(self) -> "WaitedStream":
        return self

    def give_up(self) -> None:
        self._closing = True

    def close(self) -> None:
        self._closing = True
