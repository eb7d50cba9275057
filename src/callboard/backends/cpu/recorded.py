"""Launches recorded on the CPU: calls with their arguments made, executed one after the other as one item."""

from collections.abc import Callable, Sequence
from typing import Any

from callboard.backends.cpu.stream import CpuStream, Work, failure
from callboard.core.backend import AccelGraph, AccelStream, Replayed, Status
from callboard.core.errors import AccelError

__all__ = ["CpuGraph", "RecordingStream"]


class CpuReplayed(Replayed):
    """How one execution went; filled by the stream's worker."""

    __slots__ = ("failed",)

    def __init__(self) -> None:
        self.failed: list[tuple[Status, AccelError]] = []

    def failures(self) -> Sequence[tuple[Status, AccelError]]:
        return self.failed


class CpuGraph(AccelGraph):
    """Recorded work. Each item is executed, whether or not one before it failed, as ops that are launched singly."""

    def __init__(self, works: list[Work]) -> None:
        self._works = works

    def launch(self, stream: AccelStream) -> CpuReplayed:
        if not isinstance(stream, CpuStream):
            raise TypeError(f"stream is {type(stream).__name__}; a graph of the CPU runs on streams of the CPU")
        replayed = CpuReplayed()
        stream.submit(_execute, self._works, replayed.failed)
        return replayed

    def take(self, works: list[Work]) -> bool:
        """Execute this from the next launch on, if it is the same calls on other arrays."""
        if [work.fn for work in works] != [work.fn for work in self._works]:
            return False
        self._works = works
        return True

    def describe(self) -> list[str]:
        return [f"{work.lib}: {getattr(work.fn, '__name__', 'work')}" for work in self._works]

    def close(self) -> None:
        self._works = []


class RecordingStream(CpuStream):
    """Has no worker: what is submitted while it captures is kept, and never executed here."""

    def __init__(self, id: int) -> None:
        self.id = id
        self._works: list[Work] = []
        self._closing = False

    def run(self, lib: str, fn: Callable[..., object], *args: Any) -> Work:
        work = Work(lib, fn, args)
        self._works.append(work)
        return work

    def _push(self, fn: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._works.append(Work("", fn, args))

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


def _execute(works: list[Work], failed: list[tuple[Status, AccelError]]) -> None:
    for work in works:
        fn = work.fn
        assert fn is not None
        try:
            fn(*work.args)
        except BaseException as e:  # of the work, whatever it is, is the op's failure
            failed.append((work, failure(work.lib, fn, e)))
