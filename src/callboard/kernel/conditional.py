"""Recorded work that runs depending on a value on the device: the interface of a backend."""

import abc
from collections.abc import Callable, Sequence

import msgspec

from callboard.core.backend import AccelStream

__all__ = ["Conditional", "Conditionals"]


class Conditional(msgspec.Struct, frozen=True):
    """Device-side control flow: decides which recorded work runs, and how often.

    Attributes:
        kind: ``"if"``: the first body if the value is not 0, the second, if any, if it is 0. ``"while"``: the only
            body, repeated until the value is 0, which is checked before each iteration. ``"switch"``: the body at the
            position of the value; none if there is no such body.
        address: Address of the value at the launch of the graph.
        dtype: Name of the value's dtype; an integer dtype for ``"switch"``.
        turns: Address of an i64 that the turns of a ``"while"`` are counted in; 0: they are not counted.
        most: Turns at most; 0: any number. Needs ``turns``.
    """

    kind: str
    address: int
    dtype: str
    turns: int = 0
    most: int = 0


class Conditionals(abc.ABC):
    """Records conditionals on a device (:meth:`AccelDevice.conditionals`)."""

    @abc.abstractmethod
    def open(self, kinds: frozenset[str]) -> None:
        """Prepare for :meth:`record`; called while nothing is captured.

        Args:
            kinds: The kinds that come; ``"else"`` for an ``"if"`` with two bodies.

        Raises:
            UnsupportedOp: The device has no such conditionals; names the reason.
        """

    @abc.abstractmethod
    def record(
        self,
        stream: AccelStream,
        inner: AccelStream,
        what: Conditional,
        bodies: Sequence[Callable[[AccelStream], None]],
    ) -> None:
        """Record bodies that run depending on a value, after the work recorded on ``stream`` so far.

        Args:
            stream: It is being captured.
            inner: Another recording stream, which is not; the bodies are enqueued there, one after the other.
            what: The condition.
            bodies: Each enqueues one body. They may record conditionals, with a further stream.

        Raises:
            UnsupportedOp, AccelError: It cannot be recorded.
        """
