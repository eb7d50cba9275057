"""``Deciding``: while the application's supervisor decides about a failure, no op is launched."""

from collections import deque
from collections.abc import Callable, Collection

from callboard.core.errors import LibraryError, OutOfMemory
from callboard.device.host.context.parking import Parking
from callboard.device.protocol.failures import as_failure
from callboard.device.protocol.messages import Decided, Failing

__all__ = ["Deciding", "Shortage"]


class Shortage:
    """An op that has no memory and is parked.

    Attributes:
        refused: It is not tried again.
    """

    refused = False


class Deciding:
    """Asks the supervisor, and keeps the parking closed until it has decided.

    Questions are sent after the completions known so far, so that the op that failed has its own error, whatever the
    decision.

    Args:
        asks: The supervisor's methods that decide; all others are decided here, by the default.
        parking: Closed meanwhile.

    Attributes:
        questions: To be sent.
    """

    def __init__(self, asks: Collection[str], parking: Parking) -> None:
        self.asks_memory = "on_out_of_memory" in asks
        self._asks_library = "on_library_failure" in asks
        self._parking = parking
        self._undecided: deque[Callable[[Decided], None]] = deque()
        self._trimming = False
        self.questions: list[Failing] = []

    def outlook(self, lib: str) -> str:
        """What an error says of the handle of a library that has raised an exception of its own."""
        handle = f"the {lib} handle"
        return f"on_library_failure decides about {handle}" if self._asks_library else f"{handle} was made again"

    def library(self, tag: str, error: LibraryError, restart: Callable[[], None]) -> None:
        """A library has failed; ``restart`` makes its handle again."""
        if self._asks_library:
            self._ask(tag, error, lambda decided: restart() if decided.restart else None)
        elif error.unexpected:
            restart()

    def memory(self, tag: str, error: OutOfMemory) -> None:
        """An op has failed because there is no memory; it cannot be tried again."""
        if self.asks_memory:
            self._ask(tag, error, lambda _: None)

    def short(self, tag: str, error: OutOfMemory, again: bool) -> Shortage:
        """An op that has not begun has no memory, ``again`` after all memory was released; the caller parks it."""
        shortage = Shortage()

        def decided(decision: Decided) -> None:
            shortage.refused = not decision.trim

        self._ask(tag, error, decided, waits=True, again=again)
        return shortage

    def trim(self) -> None:
        """Memory is being released: see :meth:`trimmed`."""
        self._trimming = True
        self._parking.closed = True

    def trimmed(self) -> None:
        """Memory has been released: try the ops again that wait for it."""
        self._trimming = False
        self._open()

    def decided(self, decision: Decided) -> None:
        """The supervisor has decided about the oldest failure.

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead.
        """
        if self._undecided:
            self._undecided.popleft()(decision)
        if decision.trim:
            self.trim()
        else:
            self._open()

    def _open(self) -> None:
        if not self._undecided and not self._trimming:
            self._parking.open()

    def _ask(
        self,
        tag: str,
        error: LibraryError | OutOfMemory,
        then: Callable[[Decided], None],
        waits: bool = False,
        again: bool = False,
    ) -> None:
        self._parking.closed = True
        self._undecided.append(then)
        self.questions.append(Failing(tag, as_failure(0, error), waits, again))
