"""What the application keeps of an op until its verdict is there."""

import weakref
from collections import deque
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, NamedTuple, Protocol, TypeVar

from callboard.core.errors import Suspect
from callboard.core.layout import layout_of
from callboard.core.ref import Allocation, GpuRef
from callboard.core.reply import Failure, Reply
from callboard.device.protocol import Call, Calls, Turn

__all__ = ["Entry", "Gate", "Measured", "RefServices", "Settled", "Several", "sendable", "settle"]

FRAME = 2048
"""Calls in one frame at most, so that a frame stays small."""

E = TypeVar("E", bound=BaseException)


class Settled(Protocol):
    """Something that is told when an op has its verdict (a staged array gives its slot back)."""

    def settled(self, ok: bool) -> None: ...


class RefServices(Protocol):
    """What the device does for its refs."""

    def fetch(self, ref: GpuRef, out: Any) -> Any:
        """The array, or a reply whose value it is."""

    def remember(self, allocation: Allocation) -> None: ...
    def last_write_stream(self, buffer: int) -> int | None: ...
    def raw_device_ptr(self, ref: GpuRef) -> int: ...
    def dlpack(self, ref: GpuRef, **options: Any) -> Any: ...
    def array_interface(self, ref: GpuRef) -> dict[str, Any]: ...


class Gate:
    """Holds back what is queued behind it until it is open (a host array is still being copied).

    Args:
        passed: Called when all that was queued before has been sent; the gate is open from the beginning, then.
    """

    __slots__ = ("is_open", "passed")

    def __init__(self, passed: Callable[[], None] | None = None) -> None:
        self.is_open = passed is not None
        self.passed = passed


class Entry(NamedTuple):
    """An op without a verdict."""

    reply: Callable[[], Any]
    """Gives the reply, or None when nobody holds it any more: an op must not keep its result's memory alive."""
    tag: str
    key: str | None
    code: CodeType
    at: int
    """Instruction in ``code``; with it, the line that made the op."""
    extra: Any
    """A :class:`Settled`, or something to keep until the verdict."""

    @property
    def where(self) -> str:
        line = next((n for start, end, n in self.code.co_lines() if start <= self.at < end and n), 0)
        return f"{self.code.co_filename}:{line}"

    @property
    def suspect(self) -> Suspect:
        return Suspect(self.tag.partition(".")[0], self.tag, self.key, self.where)

    def noted(self, error: E) -> E:
        """The error, with a note that says which op it is of."""
        error.add_note(f"{self.tag}, made at {self.where}" + (f", request {self.key}" if self.key else ""))
        return error


class Several:
    """Settles all refs of one op together."""

    __slots__ = ("refs",)

    def __init__(self, refs: list[Reply[Any]]) -> None:
        self.refs = refs

    def _resolve(self) -> None:
        for ref in self.refs:
            ref._resolve()

    def _reject(self, failure: Failure) -> None:
        for ref in self.refs:
            ref._reject(failure)


class Measured:
    """Settles all refs of one op together, and gives them the extents that they have turned out to have."""

    __slots__ = ("made", "refs")

    def __init__(self, made: "list[weakref.ref[GpuRef[Any]]]", refs: list[Reply[Any]]) -> None:
        self.made = made
        self.refs = refs

    def _resolve(self, extents: dict[str, list[list[int]]]) -> None:
        for weak, shape in zip(self.made, extents["shapes"], strict=True):
            ref = weak()
            if ref is not None:
                ref.layout = layout_of(ref.layout.dtype, tuple(shape))
        for reply in self.refs:
            reply._resolve()

    def _reject(self, failure: Failure) -> None:
        for reply in self.refs:
            reply._reject(failure)


def sendable(queue: "deque[Call | Turn | Gate]") -> Iterator[Calls | Turn]:
    """Take what may be sent off a queue, in its order, up to a gate that is closed."""
    while queue:
        calls: list[Call] = []
        turn: Turn | None = None
        passed: Callable[[], None] | None = None
        while queue and turn is None and passed is None and len(calls) < FRAME:
            item = queue.popleft()
            if type(item) is Call:
                calls.append(item)
            elif type(item) is Turn:
                turn = item
            elif type(item) is Gate:
                if not item.is_open:
                    queue.appendleft(item)
                    break
                passed = item.passed
        if calls:
            yield Calls(calls)
        if turn is not None:
            yield turn
        elif passed is not None:
            passed()
        elif not calls:
            return


def settle(extra: Any, ok: bool) -> None:
    """Tell what an entry carries, if it wants to know, that the verdict is there."""
    settled = getattr(extra, "settled", None)
    if settled is not None:
        settled(ok)
    elif isinstance(extra, tuple) and extra[-1] is not None:
        settle(extra[-1], ok)
