"""``Unanswered``: the ops that were accepted and have no verdict yet."""

import itertools
from collections.abc import Sequence

from callboard.core.errors import AccelError, ContextPoisoned, Suspect
from callboard.core.reply import Cause, Failure, ReplyPort
from callboard.device.failures import as_error
from callboard.device.line import refusals
from callboard.device.line.entries import Entry, settle
from callboard.device.protocol import Verdicts

__all__ = ["Unanswered"]

SUSPECTS = 64
"""Ops that an error names at most as possible causes of a loss; the oldest."""


class Unanswered:
    """Settles each op once: by its verdict, or by the loss of the context.

    Args:
        port: Whose ops; told of failures that nobody awaited.
        name: Of the device.

    Attributes:
        entries: The ops, by id. Another dict in each generation: whoever notes an op on another thread than the loop's
            compares the dict before and after, and calls :meth:`fail_lost` if it noted in one that is gone.
        completed, failed: Counters of verdicts.
    """

    __slots__ = ("_causes", "_last_loss", "_name", "_port", "_unclaimed", "completed", "entries", "failed")

    def __init__(self, port: ReplyPort, name: str) -> None:
        self.entries: dict[int, Entry] = {}
        self.completed = 0
        self.failed = 0
        self._port = port
        self._name = name
        self._last_loss: tuple[AccelError, int, Sequence[Suspect], int] = (ContextPoisoned(), 0, (), 0)
        self._causes: dict[int, Cause] = {}
        self._unclaimed: list[Failure] = []

    @property
    def settled(self) -> int:
        """How many ops have had their verdict."""
        return self.completed + self.failed

    def settle(self, message: Verdicts, generation: int) -> None:
        """Settle the replies of ops of ``generation``."""
        pop = self.entries.pop
        for op_id in message.done:
            entry = pop(op_id, None)
            if entry is not None:
                reply = entry[0]()
                if reply is not None:
                    reply._resolve()
                if entry[5] is not None:
                    settle(entry[5], ok=True)
        for op_id, value in message.values:
            entry = pop(op_id, None)
            if entry is not None:
                reply = entry.reply()
                if reply is not None:
                    reply._resolve(complex(*value) if isinstance(value, list) else value)
        for failure in message.failed:
            entry = pop(failure.id, None)
            if entry is not None:
                self.failed += 1
                error = refusals.marked(as_error(failure), self._name, generation, entry.tag)
                self._reject(entry, entry.noted(error), failure.cause or failure.id)
        self.completed += len(message.done) + len(message.values)
        if self._unclaimed and not self.entries:
            self._unclaimed.clear()  # nothing is left that could still fail from the same cause and be seen
            self._causes.clear()

    def lose(self, error: AccelError, generation: int, cause: int) -> int:
        """Fail all, sent or not; ops from now on are noted in a new dict.

        Args:
            error: The loss.
            generation: Which the ops belonged to.
            cause: A number that no op has.

        Returns:
            How many ops failed.
        """
        lost, self.entries = self.entries, {}
        entries = lost.copy()  # other threads may still note ops in it
        suspects = tuple(entry.suspect for entry in itertools.islice(entries.values(), SUSPECTS))
        self._last_loss = (error, generation, suspects, cause)
        failed = 0
        for op_id in entries:
            failed += self.fail_lost(op_id, lost)
        return failed

    def fail_lost(self, op_id: int, lost: dict[int, Entry]) -> bool:
        """Fail an op that was noted in a dict that is gone, unless somebody has."""
        entry = lost.pop(op_id, None)
        if entry is None:
            return False
        error, generation, suspects, cause = self._last_loss
        self.failed += 1
        one = entry.noted(refusals.lost(error, generation, suspects))
        self._reject(entry, refusals.marked(one, self._name, generation, entry.tag), cause)
        return True

    def forget(self) -> None:
        """Hold failures no longer: those that nobody has seen are reported now."""
        self._unclaimed.clear()

    def _reject(self, entry: Entry, error: BaseException, cause: int) -> None:
        failure = Failure(error, self._port, self._causes.setdefault(cause, Cause()))
        reply = entry.reply()
        if reply is not None:
            reply._reject(failure)
        self._unclaimed.append(failure)
        if entry.extra is not None:
            settle(entry.extra, ok=False)
