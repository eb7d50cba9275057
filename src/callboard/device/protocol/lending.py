"""Messages of the application of a thread host about memory that both sides use; they never cross a wire."""

from collections.abc import Callable
from typing import Any, NamedTuple

from callboard.core.backend import Memory

__all__ = ["Borrow", "Lend", "LendingRequest", "Lent", "Return"]


class Lent(NamedTuple):
    """The location of a buffer.

    Attributes:
        address: Address of its first byte.
        memory: The block of the device.
        owner: Keep it as long as the address is used: the memory stays then, also when the context has ended.
        writer: Id of the stream that wrote it last, None if none has.
        ordinal: Ordinal of the device.
        block: The block, to be passed to :class:`Return`.
    """

    address: int
    memory: Memory
    owner: object
    writer: int | None
    ordinal: int
    block: Any


Answered = Callable[[Lent | None, BaseException | None], None]


class LendingRequest:
    """A request of the application of a thread host; it holds Python objects, and never crosses a wire."""


class Lend(LendingRequest):
    """Report the location of a buffer.

    Args:
        buffer: Id.
        answer: Called on the admitting thread.
        settled: When everything called before is done with it, and has not failed; else as soon as it exists.
        consumer: Native stream on which the borrower may write it from then on; 0: none, its work is synchronous.
    """

    def __init__(self, buffer: int, answer: Answered, *, settled: bool, consumer: int = 0) -> None:
        self.buffer = buffer
        self.answer = answer
        self.settled = settled
        self.consumer = consumer


class Return(LendingRequest):
    """The borrower has finished with a block: the work on its stream so far is the last that uses it.

    It names the block, because the buffer may have been freed by now.
    """

    def __init__(self, block: Any, consumer: int) -> None:
        self.block = block
        self.consumer = consumer


class Borrow(LendingRequest):
    """Take memory of others as a buffer.

    Args:
        buffer: Id.
        memory: The memory; its owner keeps it.
        ordinal: Ordinal of the device that it is on; None if its owner does not say.
        follow: Native stream whose present work must be waited for; None: there is none.
        answer: Called on the admitting thread.
    """

    def __init__(self, buffer: int, memory: Memory, ordinal: int | None, follow: int | None, answer: Answered) -> None:
        self.buffer = buffer
        self.memory = memory
        self.ordinal = ordinal
        self.follow = follow
        self.answer = answer
