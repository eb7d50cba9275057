"""``StepIsolation``: which sequences of a failed step run again together, so that only those fail that cannot be done.

No I/O. Sequences are named by the numbers of their requests.
"""

from collections.abc import Collection, Iterable, Sequence

from callboard.patterns.batching.isolation import reruns
from callboard.patterns.batching.results import copies

__all__ = ["StepIsolation"]

MOST_FAILURES = 12
"""Failed steps in a row that a sequence takes part in, without a part in between, before it ends in their error."""


class _Failed:
    """The sequences of one failed step, which run again in groups.

    Args:
        numbers: The sequences.
        error: Error of the step.
        patience: Steps of a group at most, until it counts as good although a sequence has given no part.

    Attributes:
        left: Those that may still be the cause, in their order.
    """

    def __init__(self, numbers: Sequence[int], error: Exception, patience: int) -> None:
        self.left = dict.fromkeys(numbers)
        self.error = error
        self._patience = patience
        self._steps = 0  # of the present group
        self._runs = reruns("isolate", numbers)
        self._group = next(self._runs, None)

    def group(self) -> list[int]:
        """Those that run together now; empty once all that can be found out is known."""
        while self._group is not None:
            found = [number for number in self._group if number in self.left]
            if found:
                return found
            self._next(None)
        return []

    def passed(self, numbers: Iterable[int], silent: Collection[int]) -> None:
        """A step of these sequences gave results: ``silent`` ones no part."""
        group = self.group()
        self._steps += any(number in group for number in numbers)
        over = self._steps >= self._patience
        for number in group if over else ():
            del self.left[number]
        for number in numbers:
            if number not in silent:
                self.left.pop(number, None)
        if group and not any(number in self.left for number in group):
            self._next(True)

    def failed(self) -> None:
        """A step of the present group, or of some of its sequences, failed."""
        self._next(False)

    def _next(self, succeeded: bool | None) -> None:
        self._steps = 0
        try:
            self._group = self._runs.send(succeeded)
        except StopIteration:
            self._group = None


class StepIsolation:
    """Finds the sequences that make steps fail: those of a failed step run again in groups, apart from all others.

    The groups are those of :func:`reruns`. A group runs until each of its sequences has given a part or ended, since a
    sequence that begins again may need several steps to come to where the step failed. The number of these steps is
    bounded: by two for the first failed step of a sequence, and by twice as many for each further one without a part.
    """

    def __init__(self) -> None:
        self._failed: list[_Failed] = []
        self._failures: dict[int, int] = {}

    @property
    def active(self) -> bool:
        """True if there is a sequence that took part in a failed step, and has given no part since."""
        return bool(self._failures)

    def holds(self, number: int) -> bool:
        """True if the sequence runs apart from others."""
        return any(number in each.left for each in self._failed)

    def choose(self, ready: Collection[int]) -> list[int]:
        """The sequences that run next, of those that are ready; empty if none has to run apart from others."""
        for each in self._failed:
            found = [number for number in each.group() if number in ready]
            if found:
                return found
        # The present groups are not ready, or wait for the places of those that are: one of these does not wait.
        return next(([number] for each in self._failed for number in each.left if number in ready), [])

    def passed(self, numbers: Collection[int], silent: Collection[int] = ()) -> None:
        """A step of these sequences gave results.

        Args:
            numbers: All sequences of the step.
            silent: Those that gave no part and have not ended.
        """
        for each in self._failed:
            each.passed(numbers, silent)
        for number in numbers:
            if number not in silent:
                self._failures.pop(number, None)
        self._drop_empty()

    def failed(self, numbers: Sequence[int], error: Exception, *, alone: bool) -> dict[int, Exception]:
        """A step failed with an error that one of its sequences may have caused.

        Args:
            numbers: Those that have not ended meanwhile.
            error: The error.
            alone: It was a step of one sequence.

        Returns:
            The error of each sequence that ends, of this step or an earlier one, by its number.
        """
        if not numbers:
            return {}
        known = next((each for each in self._failed if set(numbers) <= set(each.group())), None)
        ends = dict.fromkeys(numbers, error) if alone else {}
        for number in ends:
            self.forget(number)
        if known is not None:
            known.failed()
            if not known.group():  # it fails whatever it gets
                ends |= zip(known.left, copies(known.error, len(known.left)), strict=True)
        elif not alone:
            ends |= self._begin(numbers, error)
        for number in ends:
            self.forget(number)
        return ends

    def _begin(self, numbers: Sequence[int], error: Exception) -> dict[int, Exception]:
        for number in numbers:
            self._failures[number] = self._failures.get(number, 0) + 1
        over = [number for number in numbers if self._failures[number] > MOST_FAILURES]
        left = [number for number in numbers if number not in over]
        if left:
            self._failed.append(_Failed(left, error, 1 << max(self._failures[number] for number in left)))
        return dict(zip(over, copies(error, len(over) + 1)[1:], strict=True))

    def forget(self, number: int) -> None:
        """The sequence has ended."""
        if self._failures.pop(number, None) is None:
            return
        for each in self._failed:
            each.left.pop(number, None)
        self._drop_empty()

    def _drop_empty(self) -> None:
        self._failed = [each for each in self._failed if each.left]
