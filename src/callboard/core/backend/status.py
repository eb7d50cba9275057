"""``Status``: how a launch tells that its op has failed, or what it has found out."""

import abc
from typing import Any

__all__ = ["Status"]


class Status(abc.ABC):
    """The result status of a launch whose op can fail by itself: a singular matrix, a bad index.

    A device leaves the outcome in memory that belongs to the plan. The launching code copies it to the host behind the
    launch, and behind every replay where the launch was recorded in a graph, and gives :meth:`check` the copy: so each
    launch and each replay has an outcome of its own. As long as the status is held, so is what the work needs.

    Attributes:
        address, nbytes: Where the outcome is, at most 64 bytes; 0 bytes where it is not in device memory (CPU).
        seconds: How long the work took, once it is done; None where that is not known.
    """

    __slots__ = ()

    address: int = 0
    nbytes: int = 0
    seconds: float | None = None

    @abc.abstractmethod
    def check(self, outcome: bytes) -> None:
        """Raise the op's own failure, by a copy of the outcome; on the admitting thread."""

    def answer(self) -> Any:
        """The answer of an op whose class :attr:`answers <callboard.core.op.Op.answers>`; after :meth:`check`.

        MessagePack carries it.
        """
        raise NotImplementedError(f"{type(self).__name__} finds nothing out")
