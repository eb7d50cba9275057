"""Admission, op by op: order, refusals, parking, memory, and failures."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.device.host.context.hosting import Buffer, Hosted, vector
from tests.device.steps import Bump, Left, LeftLibrary, Right, StepsBackend, events

from callboard.core.errors import BackendUnavailable, ContextPoisoned
from callboard.core.library import Library
from callboard.device.host.context.plans import cache
from callboard.device.protocol.messages import Ask, Call, Calls
from callboard.kernel.memory import Copy, Empty, Fill
from callboard.testing.faulty import Failed


@pytest.fixture
def host() -> Iterator[Hosted]:
    events.clear()
    hosted = Hosted()
    yield hosted
    for event in list(events.values()):
        event.set()
    hosted.close()


def filled(host: Hosted, value: float, n: int = 4) -> Buffer:
    _, (buffer,) = host.call(Empty(shape=(n,), dtype="f32"))
    host.call(Fill(out=buffer, fill_value=value))
    return buffer


def values(host: Hosted, buffer: Buffer) -> list[float]:
    return [float(v) for v in host.array(buffer)]


def test_ops_are_executed_in_order_over_streams(host: Hosted) -> None:
    x = filled(host, 1)
    host.call(Bump(x=x, n=2))
    _, (y,) = host.call(Right(x=x))
    host.call(Bump(x=x, n=10))
    host.finish()
    assert values(host, x) == [13] * 4
    assert values(host, y) == [4] * 4
    assert not host.failed


@pytest.mark.parametrize("completion", ["polled", "host_fn", "sync"])
def test_a_completion_does_not_wait_for_what_is_launched_behind_it(completion: str) -> None:
    events.clear()
    host = Hosted(completion=completion)
    try:
        x = filled(host, 1)
        host.finish()
        first, _ = host.call(Bump(x=x, after="go"))
        host.context.advance()
        second, _ = host.call(Bump(x=x, after="then"))
        events["go"].set()
        host.finish(lambda: first in host.done)
        assert second not in host.done
    finally:
        for event in list(events.values()):
            event.set()
        host.close()


@pytest.mark.parametrize(
    "signature",
    [
        b"",
        b"\xc1",
        b"\x93",
        b"\x01",
        b"\x93\xa3a.b\x90\x90",
        b"\x93\xa8left.add\x90\x90",
        b"\x93\xa8left.add\x94\x01\x02\x03\x04\x91\x01",
        b"\x93\xa9memory.no\x90\x90",
        b"\x93\xa70.x.y.z\x90\x90",
    ],
)
def test_a_signature_that_cannot_be_read_is_refused_and_nothing_else_happens(host: Hosted, signature: bytes) -> None:
    x = filled(host, 3)
    host.context.receive(Calls([Call(900, signature or b"\x00", [], [], [901])]))
    _, (y,) = host.call(Left(x=x))
    reader, _ = host.call(Left(x=Buffer(901, vector())))
    host.finish()
    assert values(host, y) == [4] * 4
    assert host.failed[900].error in ("UnsupportedOp", "ShapeError")
    assert host.failed[reader].id == 900


@pytest.mark.parametrize(
    "places,made,expected",
    [
        ([77, 0], [60], "GpuRefStale"),
        ([1, 4], [60], "ShapeError"),
        ([1, -4], [60], "ShapeError"),
        ([1], [60], "ShapeError"),
        ([1, 0, 1, 0], [60], "ShapeError"),
        ([1, 0], [], "ShapeError"),
        ([1, 0], [60, 61], "ShapeError"),
    ],
)
def test_operands_that_do_not_fit_are_refused(host: Hosted, places: list[int], made: list[int], expected: str) -> None:
    x = filled(host, 3)
    assert x.id == 1
    call, _ = host.outputs(Left(x=x))
    host.context.receive(Calls([Call(call.id, call.signature, places, [], made)]))
    host.finish()
    assert host.failed[call.id].error == expected
    assert values(host, x) == [3] * 4


def test_a_refused_op_fails_the_arrays_that_it_names_until_they_are_overwritten(host: Hosted) -> None:
    x, out = filled(host, 1), filled(host, 2)
    refused, _ = host.call(Left(x=Buffer(99, vector()), out=out))
    reader, _ = host.call(Right(x=out))
    host.call(Left(x=x, out=out))
    healed, (y,) = host.call(Right(x=out))
    host.finish()
    assert host.failed[refused].error == "GpuRefStale"
    assert host.failed[reader].id == refused
    assert healed in host.done
    assert values(host, y) == [3] * 4


def test_a_withdrawn_op_behind_a_parked_one_fails_only_what_comes_later(host: Hosted) -> None:
    """It is refused in its place: the parked op before it still reads the array as it was."""
    x = filled(host, 1)
    host.context.parking.closed = True  # as while memory is being freed
    before, (y,) = host.call(Left(x=x))
    withdrawn, _ = host.call(Bump(x=x, n=5), withdrawn=True)
    after, _ = host.call(Left(x=x))
    host.finish()
    assert withdrawn not in host.failed
    host.context.admission.memory_was_freed()
    host.finish()
    assert before in host.done
    assert values(host, y) == [2] * 4
    assert host.failed[withdrawn].error == "Withdrawn"
    assert host.failed[after].id == withdrawn


def test_a_withdrawn_op_behind_a_parked_writer_is_not_healed_by_it(host: Hosted) -> None:
    x = filled(host, 1)
    host.context.parking.closed = True
    first, _ = host.call(Bump(x=x, n=5))
    withdrawn, _ = host.call(Bump(x=x, n=7), withdrawn=True)
    host.context.admission.memory_was_freed()
    reader, _ = host.call(Left(x=x))
    host.finish()
    assert first in host.done
    assert host.failed[reader].id == withdrawn


def test_frees_wait_for_parked_users_and_for_nobody_else(host: Hosted) -> None:
    x, other = filled(host, 1), filled(host, 2)
    host.context.parking.closed = True
    _, (y,) = host.call(Left(x=x))
    host.free(x, other)
    assert x.id in host.context.admission.buffers
    host.free(Buffer(500, vector()))
    host.context.admission.memory_was_freed()
    host.finish()
    assert values(host, y) == [2] * 4
    assert x.id not in host.context.admission.buffers
    assert other.id not in host.context.admission.buffers


def test_a_free_beside_one_that_must_wait_makes_room_at_once() -> None:
    """Frees travel in batches: what is short of memory must get what the batch's other buffers hold."""
    host = Hosted(memory_limit=3 * 4096)
    try:
        named, unused, third = (filled(host, value, 1024) for value in (1, 2, 3))
        host.finish()
        short, (made,) = host.call(Empty(shape=(1024,), dtype="f32"))
        behind, _ = host.call(Bump(x=named))
        host.free(named, unused)
        assert host.context.pool.used == 2 * 4096
        host.context.receive(Ask(0, "flushed"))
        host.finish()
        assert {short, behind} <= set(host.done)
        assert not host.failed
        assert host.context.pool.used == 2 * 4096
        assert set(host.context.admission.buffers) == {third.id, made.id}
    finally:
        host.close()


def test_out_of_memory_asks_for_the_frees_once_and_fails_then() -> None:
    host = Hosted(memory_limit=4096)
    try:
        x = filled(host, 1, 512)
        refused, (never,) = host.call(Empty(shape=(1024,), dtype="f32"))
        host.finish()
        assert host.flushes == 1
        assert refused not in host.failed
        host.context.receive(Ask(0, "flushed"))
        host.finish()
        assert host.flushes == 1
        assert host.failed[refused].error == "OutOfMemory"
        host.free(x)
        host.call(Fill(out=never, fill_value=3.0))  # overwrites all of it, so it gets memory now
        host.finish()
        assert set(values(host, never)) == {3.0}
    finally:
        host.close()


def test_plans_are_dropped_and_made_again(host: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_PLANS", 8)
    x = filled(host, 1)
    for n in range(40):
        host.call(Bump(x=x, n=1, sets=f"event {n}"))
        assert host.context.admission.plans.stats()["left"]["entries"] <= 8
    host.finish()
    assert values(host, x) == [41] * 4


def test_a_value_comes_with_its_completion(host: Hosted) -> None:
    from callboard.kernel.blas import Nrm2

    x = filled(host, 3, 16)
    op, _ = host.call(Nrm2(x=x))
    host.finish()
    assert host.values[op] == pytest.approx(12.0)


# -- failures ----------------------------------------------------------------------------------------------------------


class Clumsy(LeftLibrary):
    """A handle whose launches raise, and that cannot always be made."""

    made = 0
    unmakable: Exception | None = None
    launch_error: Exception | None = None
    unclosable = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        type(self).outputs += 1
        if self.outputs > 1 and self.unmakable is not None:
            raise self.unmakable

    def close(self) -> None:
        if self.unclosable:
            raise OSError("it does not close")


class ClumsyBackend(StepsBackend):
    def __init__(self, **attributes: Any) -> None:
        self.cls = type("Clumsy", (Clumsy,), {**attributes, "outputs": 0})
        cls = self.cls

        def add(self: Any, stream: Any, plan: Left, x: int, out: int) -> Any:
            error, cls.launch_error = cls.launch_error, None
            if error is not None:
                raise error
            return LeftLibrary.add(self, stream, plan, x, out)

        cls.add = add

    def libraries(self) -> dict[str, type[Library]]:
        return {**super().libraries(), "left": self.cls}


@pytest.mark.parametrize("unclosable", [False, True])
def test_a_library_that_raises_is_made_again(unclosable: bool) -> None:
    backend = ClumsyBackend(launch_error=ZeroDivisionError("oops"), unclosable=unclosable)
    host = Hosted(backend)
    x = filled(host, 1)
    failed, (bad,) = host.call(Left(x=x))
    reader, _ = host.call(Right(x=bad))
    _, (y,) = host.call(Left(x=x, n=2))
    host.finish()
    assert host.failed[failed].error == "LibraryError"
    assert "ZeroDivisionError: oops" in host.failed[failed].message
    assert host.failed[reader].id == failed
    assert values(host, y) == [3] * 4
    assert backend.cls.outputs == 2
    backend.cls.unclosable = False
    host.close()


def test_a_handle_that_cannot_be_made_again_is_its_ops_error_and_nobody_elses() -> None:
    backend = ClumsyBackend(launch_error=ZeroDivisionError("oops"), unmakable=BackendUnavailable("no library"))
    host = Hosted(backend)
    x = filled(host, 1)
    host.call(Left(x=x))
    second, _ = host.call(Left(x=x, n=2))
    third, _ = host.call(Left(x=x, n=3))
    _, (y,) = host.call(Right(x=x))
    host.finish()
    assert [host.failed[op].error for op in (second, third)] == ["BackendUnavailable"] * 2
    assert values(host, y) == [2] * 4
    backend.cls.unmakable = None
    _, (z,) = host.call(Left(x=x, n=4))
    host.finish()
    assert values(host, z) == [5] * 4
    host.close()


@pytest.mark.parametrize("where", ["launch", "check"])
def test_a_dead_context_is_no_ops_completion(where: str) -> None:
    backend = ClumsyBackend(launch_error=ContextPoisoned("dead") if where == "launch" else None)
    host = Hosted(backend)
    x = filled(host, 1)
    if where == "check":
        op, _ = host.call(Right(x=x))
        pending = host.context.streams.timelines[-1].ops[-1]
        assert pending.id == op
        pending.status = Failed(ContextPoisoned("dead"))
        with pytest.raises(ContextPoisoned, match="dead"):
            host.finish()
        pending.status = None
    else:
        with pytest.raises(ContextPoisoned, match="dead"):
            host.call(Left(x=x))
    assert not host.failed
    host.close()


def test_a_producers_failure_on_another_stream_reaches_the_reader_launched_before_it(host: Hosted) -> None:
    x = filled(host, 1)
    bad, (y,) = host.call(Left(x=x, after="go", fails=True))
    reader, (z,) = host.call(Right(x=y))
    copy, _ = host.call(Copy(src=z))
    host.context.advance()
    events["go"].set()
    host.finish()
    assert host.failed[bad].error == "LibraryError"
    assert host.failed[reader].id == host.failed[copy].id == bad
