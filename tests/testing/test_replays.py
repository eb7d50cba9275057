"""Recorded launches compared with themselves: correct ones pass, and errors of a replay show."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from callboard.backends.cpu import device
from callboard.backends.cpu.device import CpuBackend
from callboard.backends.cpu.stream import CpuStream, Work
from callboard.backends.cpu.views import array_at
from callboard.core.backend import AccelDevice, AccelGraph, AccelStream, Status
from callboard.core.errors import NumericalError
from callboard.core.library import Library, launches
from callboard.core.op import OPS, Op
from callboard.core.operand import In, Out
from callboard.testing.session import LibrarySession


class Again(Work):
    """Work that can be executed more than once."""

    def execute(self) -> None:
        fn, args = self.fn, self.args
        self.error = None
        super().execute()
        self.fn, self.args = fn, args


class Recorded(AccelGraph):
    def __init__(self, items: list[tuple[Callable[..., object], tuple[Any, ...]]]) -> None:
        self._items = items

    def launch(self, stream: AccelStream) -> None:
        assert isinstance(stream, CpuStream)
        for fn, args in self._items:
            stream.submit(fn, *args)

    def close(self) -> None:
        self._items.clear()


class RecordingStream(CpuStream):
    """Records what is submitted, as a stream of CUDA does."""

    def __init__(self, id: int) -> None:
        self.items: list[Any] | None = None
        super().__init__(id)

    def submit(self, fn: Callable[..., object], *args: Any) -> None:
        if self.items is None:
            super().submit(fn, *args)
        else:
            self.items.append((fn, args))

    def run(self, lib: str, fn: Callable[..., object], *args: Any) -> Status:
        work = Again(lib, fn, args)
        self.submit(work.execute)
        return work

    def capture(self, enqueue: Callable[[], None]) -> Recorded:
        self.items = items = []
        try:
            enqueue()
        finally:
            self.items = None
        return Recorded(items)


class Root(Op["RootActor", Any], tag="toy.root"):
    """Square roots; of a negative number it fails."""

    x: In
    how: str = "right"
    out: Out | None = None

    def infer(self) -> Any:
        return {"out": self.x.layout}


class RootActor:
    pass


class Outcome(Status):
    """In memory of the plan, as on a device."""

    def __init__(self, memory: "np.ndarray[Any, Any]") -> None:
        self.address, self.nbytes = memory.ctypes.data, 8

    def check(self, outcome: bytes) -> None:
        if count := int.from_bytes(outcome, "little"):
            raise NumericalError(f"toy.root: {count} negative numbers", count)


class RootLibrary(Library):
    name = "toy"

    def __init__(self, device: AccelDevice, stream: AccelStream) -> None:
        super().__init__(device, stream)
        self.negative = np.zeros(1, np.int64)

    @launches(Root)
    def root(self, stream: CpuStream, plan: Root, x: int, out: int) -> Outcome:
        source, target = array_at(x, plan.x.layout), array_at(out, plan.x.layout)
        if plan.how == "reads at once":
            source = source.copy()

        def work() -> None:
            self.negative[0] = (source < 0).sum()
            target[...] = np.sqrt(np.abs(source))

        (self.stream if plan.how == "own stream" else stream).submit(work)  # type: ignore[attr-defined]
        return Outcome(self.negative)


class Backend(CpuBackend):
    def libraries(self) -> dict[str, type[Library]]:
        return {**super().libraries(), "toy": RootLibrary}


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(device, "CpuStream", RecordingStream)
    with LibrarySession(Backend(), capture=True, pure=False) as opened:
        yield opened


@pytest.fixture(autouse=True, scope="module")
def only_here() -> Any:
    """Other modules look at all ops that there are."""
    yield
    del OPS["toy.root"]


def test_a_launch_that_only_enqueues_is_replayed(session: LibrarySession) -> None:
    assert session.get(session.submit(Root(x=session.put([4.0, 9.0])))).tolist() == [2, 3]


def test_each_replay_has_its_own_outcome(session: LibrarySession) -> None:
    for _ in range(2):
        with pytest.raises(NumericalError, match="2 negative"):
            session.submit(Root(x=session.put([4.0, -9.0, -1.0])))
        assert session.get(session.submit(Root(x=session.put([4.0])))).tolist() == [2]


def test_a_launch_that_reads_its_operand_shows(session: LibrarySession) -> None:
    with pytest.raises(AssertionError, match=r"toy\.root, operands times 0\.5: out is .* after the replay"):
        session.submit(Root(x=session.put([4.0, 9.0]), how="reads at once"))


def test_a_launch_on_its_librarys_stream_shows(session: LibrarySession) -> None:
    with pytest.raises(AssertionError, match=r"toy\.root, operands times 0\.5: out is .* after the replay"):
        session.submit(Root(x=session.put([4.0, 9.0]), how="own stream"))
