"""``AccelGraph``: work recorded from a stream, enqueued again as a whole."""

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING

from callboard.core.backend.status import Status
from callboard.core.errors import AccelError

if TYPE_CHECKING:
    from callboard.core.backend.streams import AccelStream

__all__ = ["AccelGraph", "Replayed"]


class Replayed(abc.ABC):
    """The outcome of one launch of a graph, where its work reports that on the host.

    Attributes:
        seconds: How long the work took, once it is done; None where that is not known.
    """

    __slots__ = ()

    seconds: float | None = None

    @abc.abstractmethod
    def failures(self) -> Sequence[tuple[Status, AccelError]]:
        """The failures, in order: the status that the recorded launch returned, and the failure of this launch."""


class AccelGraph(abc.ABC):
    """Work recorded from a stream, to be enqueued again as a whole. Memory that it uses must outlive it."""

    @abc.abstractmethod
    def launch(self, stream: "AccelStream") -> Replayed | None:
        """Enqueue all of it.

        Returns:
            The outcome, valid once the stream has passed the graph; None where the recorded statuses hold it, each as
            a copy.
        """

    def upload(self, stream: "AccelStream") -> None:
        """Bring it to the device, so that its first launch takes no longer than the others."""

    def describe(self) -> list[str]:
        """The nodes of the graph on the device, in order of creation: kinds, and names of kernels."""
        return []

    @abc.abstractmethod
    def close(self) -> None:
        """Destroy the graph; it does not run any more."""
