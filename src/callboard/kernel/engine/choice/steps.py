"""``Stepwise``: an answer that takes several questions, one after the other."""

import threading
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from callboard.kernel.nvrtc.handles import Answer

__all__ = ["Steps", "Stepwise"]

R = TypeVar("R")
T = TypeVar("T")
Steps = Generator[Any, Any, T]
"""Yields what is waited for, refs and answers, and gets what they give; or None, for a pause. Returns the answer."""


class Stepwise(Answer[T]):
    """An answer that takes several questions: the next one is asked once someone waits, and the last was answered.

    Args:
        steps: Asks them. Where they pause, an event loop that waits lets other tasks run.
    """

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self._lock = threading.Lock()
        self._pending: Any = None
        self._found: T | None = None
        self._error: BaseException | None = None
        self._over = False
        self._advance(None, lambda: steps.send(None))

    def then(self, read: Callable[[T], R]) -> Answer[R]:
        def further() -> Steps[R]:
            return read((yield self))

        return Stepwise(further())

    def done(self) -> bool:
        """True once someone has waited for the last question."""
        return self._over

    def __await__(self) -> Generator[Any, None, T]:
        while not self._over:
            pending = self._pending
            try:
                if pending is None:
                    found = yield  # as asyncio.sleep(0)
                else:
                    found = yield from pending.__await__()
            except Exception as e:  # of a question, whatever it is, is for the steps
                self._failed(pending, e)
            else:
                self._advance(pending, lambda found=found: self._steps.send(found))  # type: ignore[misc]
        return self._result()

    def result(self, timeout: float | None = None) -> T:
        while not self._over:
            pending = self._pending
            try:
                found = None if pending is None else pending.result(timeout)
            except TimeoutError:
                raise
            except Exception as e:  # of a question, whatever it is, is for the steps
                self._failed(pending, e)
            else:
                self._advance(pending, lambda found=found: self._steps.send(found))  # type: ignore[misc]
        return self._result()

    def _result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._found  # type: ignore[return-value]

    def _failed(self, pending: Any, error: Exception) -> None:
        self._advance(pending, lambda: self._steps.throw(error))

    def _advance(self, pending: Any, step: Callable[[], Any]) -> None:
        """Go on behind ``pending``, unless another waiter has."""
        with self._lock:
            if self._over or pending is not self._pending:
                return
            try:
                self._pending = step()
            except StopIteration as e:
                self._found, self._over = e.value, True
            except Exception as e:  # is raised where the answer is awaited
                self._error, self._over = e, True
