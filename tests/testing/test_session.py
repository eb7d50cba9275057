from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

from callboard.backends.cpu.device import CpuBackend
from callboard.core.errors import BackendUnavailable, LibraryError, UnsupportedOp
from callboard.core.layout import layout_of
from callboard.core.library import Library, launches, prepares
from callboard.core.op import OPS, Op
from callboard.core.operand import In, InOut, Operand, Out, Scalar
from callboard.kernel.memory import Copy
from callboard.testing.session import LibrarySession, SessionArray


class Halves(NamedTuple):
    low: Operand
    high: Operand


class Split(Op["ToyActor", Halves], tag="toy.split"):
    returns: ClassVar[tuple[str, ...]] = ("low", "high")
    results: ClassVar[type[Any] | None] = Halves

    src: In
    low: Out | None = None
    high: Out | None = None

    def infer(self) -> Any:
        half = layout_of(self.src.dtype, (self.src.size // 2,))
        return {"low": half, "high": half}


class Total(Op["ToyActor", float], tag="toy.total"):
    value: ClassVar[bool] = True

    parts: tuple[In, ...]
    scale: Scalar = 1.0
    power: int = 1
    out: Out | None = None

    def infer(self) -> Any:
        return {"out": layout_of(self.parts[0].dtype, ())}


class Break(Op["ToyActor", None], tag="toy.break"):
    returns: ClassVar[tuple[str, ...]] = ()

    a: InOut

    def infer(self) -> Any:
        return {}


class Forget(Op["ToyActor", Operand], tag="toy.forget"):
    src: In
    out: Out | None = None

    def infer(self) -> Any:
        return {"out": self.src.layout}


class ToyActor:
    pass


class ToyLibrary(Library):
    name = "toy"
    prepared: ClassVar[list[Any]] = []
    closed: ClassVar[list[bool]] = []

    @launches(Split)
    def split(self, stream: Any, plan: Split, src: int, low: int, high: int) -> Any:
        from callboard.backends.cpu.views import array_at

        half = layout_of(plan.src.dtype, (plan.src.size // 2,))
        source = array_at(src, plan.src.layout)
        stream.run("toy", np.copyto, array_at(low, half), source[: half.size])
        return stream.run("toy", np.copyto, array_at(high, half), source[half.size :])

    @prepares(Total)
    def plan_total(self, op: Total) -> Total:
        self.prepared.append(op)
        return op

    @launches(Total)
    def total(self, stream: Any, plan: Total, parts: tuple[int, ...], scale: Any, out: int) -> Any:
        from callboard.backends.cpu.views import array_at

        arrays = [array_at(a, p.layout) for a, p in zip(parts, plan.parts, strict=True)]
        factor = array_at(scale, plan.scale.layout) if isinstance(plan.scale, Operand) else scale
        result = array_at(out, layout_of(plan.parts[0].dtype, ()))

        def work() -> None:
            result[...] = sum(a.sum() for a in arrays) * factor**plan.power

        return stream.run("toy", work)

    @launches(Break)
    def break_(self, stream: Any, plan: Break, a: int) -> Any:
        def work() -> None:
            raise ArithmeticError("on purpose")

        return stream.run("toy", work)

    @launches(Forget)
    def forget(self, stream: Any, plan: Forget, src: int, out: int) -> None:
        """Leaves the output as it was."""

    def close(self) -> None:
        self.closed.append(True)


class ToyBackend(CpuBackend):
    def libraries(self) -> dict[str, type[Library]]:
        return {**super().libraries(), "toy": ToyLibrary}


@pytest.fixture
def session() -> Any:
    with LibrarySession(ToyBackend()) as opened:
        yield opened


@pytest.fixture(autouse=True, scope="module")
def only_here() -> Any:
    """Other modules look at all ops that there are."""
    yield
    for tag in ("toy.split", "toy.total", "toy.break", "toy.forget"):
        OPS.pop(tag, None)


def test_several_outputs_are_the_named_tuple_of_the_message(session: LibrarySession) -> None:
    halves = session.submit(Split(src=session.put(np.arange(6.0))))
    assert isinstance(halves, Halves)
    np.testing.assert_array_equal(session.get(halves.low), [0, 1, 2])  # type: ignore[arg-type]
    np.testing.assert_array_equal(session.get(halves.high), [3, 4, 5])  # type: ignore[arg-type]


def test_given_outputs_are_written_and_returned(session: LibrarySession) -> None:
    low, high = session.empty(3, "f64"), session.empty(6, "f64")[::2]
    halves = session.submit(Split(src=session.put(np.arange(6.0)), low=low))
    assert halves.low is low
    with pytest.raises(LibraryError):
        session.submit(Break(a=high))


def test_a_value_is_a_number_unless_the_output_is_given(session: LibrarySession) -> None:
    parts = (session.put([1.0, 2.0]), session.put([[3.0]]))
    assert session.submit(Total(parts=parts)) == 6.0
    assert session.submit(Total(parts=parts, scale=session.put(2.0), power=2)) == 24.0
    out = session.empty((), "f64")
    assert session.submit(Total(parts=parts, scale=0.5, out=out)) is out
    assert session.get(out) == 3.0


def test_a_complex_value_is_a_complex_number(session: LibrarySession) -> None:
    assert session.submit(Total(parts=(session.put(np.array([1j, 2], np.complex64)),))) == 2 + 1j


def test_plans_are_made_once_per_signature(session: LibrarySession) -> None:
    ToyLibrary.prepared.clear()
    for scale in (1.0, 2.0):
        session.submit(Total(parts=(session.put([scale, scale]),), scale=scale))
    assert len(ToyLibrary.prepared) == 1
    session.submit(Total(parts=(session.put([1.0, 1.0]),), power=3))
    session.submit(Total(parts=(session.put([1.0]),)))
    assert [op.power for op in ToyLibrary.prepared] == [1, 3, 1]
    assert all(op.scale == 0.0 for op in ToyLibrary.prepared), "numbers do not reach a prepare"


def test_plans_give_way_by_last_use_and_are_closed(session: LibrarySession, monkeypatch: pytest.MonkeyPatch) -> None:
    class Closing(NamedTuple):
        op: Total
        closed: list[int]

        def close(self) -> None:
            self.closed.append(self.op.power)

        @property
        def parts(self) -> tuple[Operand, ...]:
            return self.op.parts

        scale = property(lambda self: self.op.scale)
        power = property(lambda self: self.op.power)

    closed: list[int] = []
    monkeypatch.setattr(ToyLibrary, "max_plans", 2)
    monkeypatch.setattr(ToyLibrary, "plan_total", lambda _, op: Closing(op, closed))
    parts = (session.put([2.0]),)
    for power in (1, 2, 1, 3, 1):
        assert session.submit(Total(parts=parts, power=power)) == 2.0
    assert closed == [2]
    session.close()
    assert closed == [2, 3, 1]


@pytest.mark.parametrize(
    "does, named",
    [
        (lambda library, stream: library.device.allocate(8), "CpuDevice.allocate in a launch"),
        (lambda library, stream: library.device.stream(), "CpuDevice.stream in a launch"),
        (lambda library, stream: stream.synchronize(), "WorkerStream.synchronize in a launch"),
    ],
)
def test_a_launch_only_enqueues(
    session: LibrarySession, monkeypatch: pytest.MonkeyPatch, does: Callable[[Any, Any], Any], named: str
) -> None:
    monkeypatch.setattr(ToyLibrary, "forget", lambda self, stream, *_: does(self, stream))
    array = session.put([1.0])
    with pytest.raises(AssertionError, match=named):
        session.submit(Forget(src=array))
    np.testing.assert_array_equal(session.get(array), [1.0])  # and it is only for launches


def test_memory_that_goes_while_a_launch_runs_is_given_back_behind_it(
    session: LibrarySession, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [session.put([1.0])]
    given = []
    release = session.device.release
    monkeypatch.setattr(type(session.device), "release", lambda _, memory: (given.append(memory), release(memory)))
    monkeypatch.setattr(ToyLibrary, "forget", lambda self, *_: held.clear())
    session.submit(Forget(src=session.put([2.0])))
    session.put([3.0])
    assert given


def test_the_ops_own_failure_is_raised(session: LibrarySession) -> None:
    with pytest.raises(LibraryError, match="ArithmeticError: on purpose") as caught:
        session.submit(Break(a=session.empty(1)))
    assert isinstance(caught.value.__cause__, ArithmeticError)
    assert session.submit(Total(parts=(session.put([1.0]),))) == 1.0


def test_what_an_op_leaves_unwritten_is_nan(session: LibrarySession) -> None:
    assert np.isnan(session.get(session.submit(Forget(src=session.put([1.0, 2.0]))))).all()


def test_views_share_memory(session: LibrarySession) -> None:
    array = session.put(np.arange(12.0).reshape(3, 4))
    session.submit(Copy(src=session.put(np.zeros(3)), out=array.T[1]))
    want = np.arange(12.0).reshape(3, 4)
    want[:, 1] = 0
    np.testing.assert_array_equal(session.get(array), want)
    np.testing.assert_array_equal(session.get(array[1:].reshape(2, -1, 2)), want[1:].reshape(2, -1, 2))


def test_memory_is_given_back_with_the_last_view(session: LibrarySession, monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[int] = []
    release = session.device.release
    monkeypatch.setattr(session.device, "release", lambda m: (released.append(m.address), release(m)))
    array = session.empty((2, 2))
    address, view = array.address, array[1]
    del array
    assert address not in released
    del view
    assert released == [address]


def test_closing_closes_the_libraries_and_twice_is_harmless() -> None:
    ToyLibrary.closed.clear()
    session = LibrarySession(ToyBackend())
    array = session.put([1.0])
    session.submit(Total(parts=(array,)))
    session.close()
    session.close()
    assert ToyLibrary.closed == [True]
    del array  # its memory went with the device


def test_a_library_that_a_backend_lacks_is_unsupported() -> None:
    with LibrarySession("cpu") as session, pytest.raises(UnsupportedOp, match=r"cpu, toy\.split: no such library"):
        session.submit(Split(src=session.put([1.0, 2.0])))


def test_an_unknown_backend_is_unavailable() -> None:
    with pytest.raises(BackendUnavailable, match="there is no backend 'abacus'"):
        LibrarySession("abacus")


def test_an_array_knows_where_it_lies(session: LibrarySession) -> None:
    array = session.put(np.arange(4, dtype=np.int16))
    assert isinstance(array, SessionArray)
    assert array[::-1].address == array.address + 6
