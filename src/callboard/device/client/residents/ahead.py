"""``Expected``: how much memory the result of an actor's next call is expected to need."""

__all__ = ["Expected"]

AHEAD = 4 << 20
"""Most bytes that a call provides for its result; for more, the host requests memory when the size is known."""

SMALLER = 8
"""Smaller results in a row after which less memory is expected to be needed."""


class Expected:
    """Tracks the sizes of results: memory that is sent with a call saves a request during the call.

    Attributes:
        nbytes: Bytes expected for the next result; 0 when none or too many are expected.
    """

    __slots__ = ("_smaller", "nbytes")

    def __init__(self) -> None:
        self.nbytes = 0
        self._smaller = 0  # results since the last that needed as much

    def saw(self, nbytes: int) -> None:
        """Note the memory that a result needed; the next result may need as much."""
        self._smaller += 1
        if nbytes >= self.nbytes or self._smaller >= SMALLER:
            self.nbytes, self._smaller = nbytes if nbytes <= AHEAD else 0, 0
