"""Launches recorded on the CPU: calls with their arguments made, executed one after the other as one item."""

import ctypes
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from callboard.backends.cpu.stream import CpuStream, Work, failure
from callboard.core.backend import AccelGraph, AccelStream, Replayed, Status
from callboard.core.backend.workers import LONG, noticed
from callboard.core.dtype import as_dtype
from callboard.core.errors import AccelError, DriverError
from callboard.kernel.conditional import Conditional, Conditionals

__all__ = ["CpuConditionals", "CpuGraph", "RecordingStream"]


class Chosen:
    """Recorded work that depends on a value.

    Attributes:
        what: The condition.
        bodies: The work of each body.
    """

    __slots__ = ("_dtype", "bodies", "what")

    def __init__(self, what: Conditional, bodies: "list[list[Item]]") -> None:
        self.what = what
        self.bodies = bodies
        self._dtype = as_dtype(what.dtype).np

    def chosen(self) -> "Iterator[list[Item]]":
        """The bodies to execute, each when the one before has been executed."""
        what, bodies = self.what, self.bodies
        if what.kind != "while":
            value = self._value()
            at = int(value) if what.kind == "switch" else int(not value)
            if 0 <= at < len(bodies):
                yield bodies[at]
            return
        turns = 0
        self._count(turns)
        while self._value() and not (what.most and turns >= what.most):
            yield bodies[0]
            turns += 1
            self._count(turns)

    def _value(self) -> Any:
        octets = ctypes.string_at(self.what.address, self._dtype.itemsize)
        value = np.frombuffer(octets, self._dtype)[0]
        return value if self.what.kind == "switch" else value != 0

    def _count(self, turns: int) -> None:
        if self.what.turns:
            ctypes.c_int64.from_address(self.what.turns).value = turns


Item = Work | Chosen


class CpuReplayed(Replayed):
    """The outcome of one execution; filled in by the stream's worker."""

    __slots__ = ("failed", "seconds")

    def __init__(self) -> None:
        self.seconds: float | None = None
        self.failed: list[tuple[Status, AccelError]] = []

    def failures(self) -> Sequence[tuple[Status, AccelError]]:
        return self.failed


class CpuGraph(AccelGraph):
    """Recorded work. Each item is executed, whether or not one before it failed, as ops that are launched singly.

    A condition is not evaluated once something has failed: its value may be a leftover of the failed op.
    """

    def __init__(self, works: list[Item]) -> None:
        self._works = works

    def launch(self, stream: AccelStream) -> CpuReplayed:
        if not isinstance(stream, CpuStream):
            raise TypeError(f"stream is {type(stream).__name__}; a graph of the CPU runs on streams of the CPU")
        replayed = CpuReplayed()
        stream.submit(_replay, self._works, replayed, stream)
        return replayed

    def take(self, works: list[Item]) -> bool:
        """Execute this from the next launch on, if it is the same calls on other arrays."""
        before, after = _calls(self._works), _calls(works)
        if before is None or before != after:
            return False
        self._works = works
        return True

    def describe(self) -> list[str]:
        return list(_described(self._works))

    def close(self) -> None:
        self._works = []


class RecordingStream(CpuStream):
    """A stream without a worker: work submitted while it captures is kept, and never executed here."""

    def __init__(self, id: int) -> None:
        self.id = id
        self._works: list[Item] = []
        self._closing = False

    def run(self, lib: str, fn: Callable[..., object], *args: Any) -> Work:
        work = Work(lib, fn, args)
        self._works.append(work)
        return work

    def _push(self, fn: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._works.append(Work("", fn, args))

    def choose(self, what: Conditional, bodies: list[list[Item]]) -> None:
        """Record work that depends on a value."""
        self._works.append(Chosen(what, bodies))

    def taken(self, enqueue: Callable[[AccelStream], None]) -> list[Item]:
        """Return the items enqueued by ``enqueue``, as a body of another stream's capture."""
        self._works = []
        try:
            enqueue(self)
            return self._works
        finally:
            self._works = []

    def capture(self, enqueue: Callable[[], None], into: AccelGraph | None = None) -> CpuGraph:
        self._works = []
        try:
            enqueue()
            if isinstance(into, CpuGraph) and into.take(self._works):
                return into
            return CpuGraph(self._works)
        finally:
            self._works = []

    def close(self) -> None:
        self._closing = True


class CpuConditionals(Conditionals):
    """Plain control flow."""

    def open(self, kinds: frozenset[str]) -> None:
        pass

    def record(
        self,
        stream: AccelStream,
        inner: AccelStream,
        what: Conditional,
        bodies: Sequence[Callable[[AccelStream], None]],
    ) -> None:
        assert isinstance(stream, RecordingStream)
        assert isinstance(inner, RecordingStream)
        stream.choose(what, [inner.taken(enqueue) for enqueue in bodies])


def _replay(works: list[Item], replayed: CpuReplayed, stream: CpuStream) -> None:
    began = time.perf_counter()
    _execute(works, replayed.failed, stream)
    replayed.seconds = time.perf_counter() - began
    if replayed.seconds >= LONG:
        noticed(replayed.seconds)


def _execute(works: list[Item], failed: list[tuple[Status, AccelError]], stream: CpuStream) -> None:
    for work in works:
        if isinstance(work, Chosen):
            if not failed:
                _execute_chosen(work, failed, stream)
            continue
        fn = work.fn
        assert fn is not None
        try:
            fn(*work.args)
        except BaseException as e:  # of the work, whatever it is, is the op's failure
            failed.append((work, failure(work.lib, fn, e)))


def _execute_chosen(chosen: Chosen, failed: list[tuple[Status, AccelError]], stream: CpuStream) -> None:
    for body in chosen.chosen():
        _execute(body, failed, stream)
        if failed:
            return
        if stream.closing:  # a loop may have no end
            raise DriverError(f"CPU stream {stream.id} was closed inside a recorded loop")


def _calls(works: list[Item]) -> list[Any] | None:
    """The functions that are called; None if a value decides."""
    calls = [None if isinstance(work, Chosen) else work.fn for work in works]
    return None if None in calls else calls


def _described(works: list[Item], indent: str = "") -> Iterator[str]:
    for work in works:
        if isinstance(work, Chosen):
            for at, body in enumerate(work.bodies):
                yield f"{indent}{work.what.kind}, body {at}"
                yield from _described(body, indent + "  ")
        else:
            yield f"{indent}{work.lib}: {getattr(work.fn, '__name__', 'work')}"
