"""The application's record of an op until its completion arrives."""

import contextvars
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, NamedTuple, Protocol

import msgspec

from callboard.core.errors import Suspect
from callboard.core.layout import OpenLayout
from callboard.core.ref import GpuRef
from callboard.core.reply import OpFailure, Reply
from callboard.device.protocol.messages import ActorCall, Call, Calls

__all__ = [
    "Entry",
    "Gate",
    "GuardedKey",
    "GuardedRun",
    "Origin",
    "Settled",
    "Several",
    "Sized",
    "origin_of",
    "request_key",
    "sendable",
    "settle",
]

request_key: contextvars.ContextVar[str | None] = contextvars.ContextVar("callboard_request_key", default=None)
"""Key of the request that ops are called for; see :func:`callboard.request_key`."""


class GuardedKey(str):
    """A :data:`request_key` of work whose loss a quarantine handles: it repeats the work and finds the cause."""

    __slots__ = ()


class GuardedRun(GuardedKey):
    """The label of a guarded run of several requests, such as a batch, rather than a request's own key."""

    __slots__ = ()


OWN = (
    *("callboard.arrays.", "callboard.core.", "callboard.device.", "callboard.kernel."),
    *("callboard._blocking", "callboard.multi_device.worlds.", "callboard.sync"),
)
"""Modules that call for a user: not where an op was made."""

FRAME = 2048
"""Most calls in one frame, to keep frames small."""


class Settled(Protocol):
    """An object that is notified of an op's completion (a staged array gives its slot back)."""

    def settled(self, ok: bool) -> None: ...


class Gate:
    """Holds back calls queued after it until it is open (a host array is still being copied).

    Args:
        passed: Called when everything queued before the gate has been sent. A gate with ``passed`` is open from the
            beginning.
    """

    __slots__ = ("is_open", "passed")

    def __init__(self, passed: Callable[[], None] | None = None) -> None:
        self.is_open = passed is not None
        self.passed = passed


class Origin(NamedTuple):
    """The op and the place of its call, for error messages."""

    tag: str
    key: str | None
    code: CodeType
    at: int
    """Instruction in ``code``; with it, the line that made the op."""

    def __str__(self) -> str:
        return f"{self.tag}, made at {self.where}" + (f", request {self.key}" if self.key else "")

    @property
    def where(self) -> str:
        line = next((n for start, end, n in self.code.co_lines() if start <= self.at < end and n), 0)
        return f"{self.code.co_filename}:{line}"

    @property
    def suspect(self) -> Suspect:
        return Suspect(self.tag.partition(".")[0], self.tag, self.key, self.where)


class Entry(NamedTuple):
    """An op without a completion."""

    reply: Callable[[], Any]
    """Returns the reply, or None once it is dropped: an op in flight must not keep its result's memory alive."""
    tag: str
    key: str | None
    code: CodeType
    at: int
    extra: Any
    """A :class:`Settled`, or something to keep until the completion."""

    @property
    def origin(self) -> "Origin":
        return Origin(self.tag, self.key, self.code, self.at)


def origin_of(depth: int) -> tuple[str | None, CodeType, int]:
    """The key of the present request, and the code and the instruction of the user's that called.

    Args:
        depth: Minimum number of frames to walk up; frames of callboard are skipped.
    """
    frame = sys._getframe(depth)
    while frame.f_globals.get("__name__", "").startswith(OWN) and frame.f_back is not None:
        frame = frame.f_back
    return request_key.get(), frame.f_code, frame.f_lasti


class Several:
    """Settles all refs of one op together."""

    __slots__ = ("refs",)

    def __init__(self, refs: list[Reply[Any]]) -> None:
        self.refs = refs

    def _resolve(self) -> None:
        for ref in self.refs:
            ref._resolve()

    def _reject(self, failure: OpFailure) -> None:
        for ref in self.refs:
            ref._reject(failure)


class Sized:
    """Settles all refs of one op together, and sets their extents, which are known now."""

    __slots__ = ("outputs", "refs")

    def __init__(self, made: "list[weakref.ref[GpuRef[Any]]]", refs: list[Reply[Any]]) -> None:
        self.outputs = made
        self.refs = refs

    def _answer(self, value: Any) -> None:
        shapes = msgspec.convert(value, dict[str, list[list[int]]])["shapes"]
        for weak, shape in zip(self.outputs, shapes, strict=True):
            ref = weak()
            if ref is not None:
                assert isinstance(ref.layout, OpenLayout)
                ref.layout = ref.layout.closed(shape)
        for reply in self.refs:
            reply._resolve()

    def _reject(self, failure: OpFailure) -> None:
        for reply in self.refs:
            reply._reject(failure)


def sendable(queue: "deque[Call | ActorCall | Gate]") -> Iterator[Calls | ActorCall]:
    """Take the items that may be sent off the queue, in order, up to a closed gate; calls are batched.

    Each item stays in the queue until everything before it has been handed out: a host that answers while it takes a
    message can cause a further flush, which must not overtake this one.
    """
    while queue:
        calls: list[Call] = []
        item = queue[0]
        while type(item) is Call and len(calls) < FRAME:
            calls.append(item)
            queue.popleft()
            if not queue:
                break
            item = queue[0]
        if calls:
            yield Calls(calls)
        elif type(item) is ActorCall:
            queue.popleft()
            yield item
        elif type(item) is Gate:
            if not item.is_open:
                return
            queue.popleft()
            if item.passed is not None:
                item.passed()


def settle(extra: Any, ok: bool) -> None:
    """Notify the :class:`Settled` that an entry carries, if there is one, of the completion."""
    settled = getattr(extra, "settled", None)
    if settled is not None:
        settled(ok)
    elif isinstance(extra, tuple) and extra[-1] is not None:
        settle(extra[-1], ok)
