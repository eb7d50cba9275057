"""``Stream`` of a blocking device: the items that a generator of a resident actor yields, in a plain ``for`` loop."""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from callboard.actors.handles import Handle
from callboard.core.errors import AskTimeout
from callboard.core.reply import Reply
from callboard.device.client.residents.steps import PREFETCH, Steps, checked_prefetch

__all__ = ["Stream"]

R_co = TypeVar("R_co", covariant=True)


class Stream(Handle, Generic[R_co]):
    """An iterator over the items of a method: ``for token in model.stream(Model.generate, prompt)``.

    Like :class:`callboard.Stream`, but waits for each item; for one thread at a time. A consumer that leaves early
    closes the generator: by :meth:`close`, by the end of a ``with`` block, or by dropping the stream (``break`` in a
    loop over a stream that has no other name). Ctrl-C ends the wait and the stream.
    """

    __slots__ = ("_ahead", "_patiently", "_steps", "_timeout", "_waits_to_open")

    def __init__(self, steps: Steps, timeout: float | None, patiently: Callable[[Callable[[], None]], None]) -> None:
        self._steps = steps
        self._timeout = timeout
        self._patiently = patiently  # waits for room
        self._ahead = PREFETCH
        self._waits_to_open = True

    def with_prefetch(self, items: int) -> Self:
        """Prefetch this number of items (4 by default); returns the same stream.

        Args:
            items: 0: the generator runs only while the consumer waits for an item.

        Raises:
            ValueError: ``items`` is negative.
        """
        self._ahead = checked_prefetch(items)
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> R_co:
        """The next item.

        Raises:
            StopIteration: The generator has returned, or the stream was closed.
            AskTimeout: It took longer than the time limit of ``with_timeout``; the stream is closed.
            Exception: Raised by the generator, and as :meth:`ResidentRef.call`; the stream is over.
        """
        steps = self._steps
        if steps.over:
            raise StopIteration
        self._patiently(lambda: steps.ask_first(self._ahead))
        try:
            if self._waits_to_open:
                self._wait(steps.opened)
                self._waits_to_open = False
            got: tuple[R_co, ...] = steps.take(self._wait(steps.asked[0]))
        except BaseException:  # Ctrl-C, too
            steps.close()
            raise
        if not got:
            raise StopIteration
        steps.ask_ahead(self._ahead)
        return got[0]

    def _wait(self, reply: Reply[Any]) -> Any:
        try:
            return reply.result(self._timeout)
        except AskTimeout:
            if not reply.done():
                text = f"{self._steps.tag}: no item within {self._timeout:g} s; the stream is closed"
                raise AskTimeout(text) from None
        return reply.result()  # come just now, or ended with an error of the actor's own

    def close(self) -> None:
        """Leave the stream: drop the requested items, and wait until the generator is closed.

        Raises:
            Exception: Raised by a ``finally`` block of the generator.
        """
        closed = self._steps.close()
        if closed is not None:
            closed.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Stream of {self._steps.tag}{', over' if self._steps.over else ''}>"
