"""Failures that reach the application: what they keep alive, when one is reported as unseen, and how much is kept."""

import contextlib
import functools
import gc
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tests.device import steps
from tests.device.steps import Left, Right, StepsBackend, events

import callboard as cb
from callboard.core import registry
from callboard.core.errors import ContextPoisoned, LibraryError
from callboard.core.reply import Cause, Reply
from callboard.device.client.line import unanswered as module
from callboard.device.client.line.entries import Entry
from callboard.device.client.line.unanswered import Unanswered
from callboard.device.protocol.failures import as_failure
from callboard.device.protocol.messages import Completions

# -- on a device -------------------------------------------------------------------------------------------------------


@pytest.fixture
async def dev(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[cb.Device]:
    """A device that is never idle: an op of the library ``right`` is in flight until the event ``idle``."""
    monkeypatch.setattr(steps, "PATIENCE", 600.0)
    events.clear()
    undo = registry.register("steps", StepsBackend())
    async with cb.System("test") as system:
        device = await system.device("steps")
        x = device.put(np.ones(4, np.float32))  # kept: whatever got its memory would wait for the op that reads it
        busy = device.ask(Right(x=x, after="idle"))
        yield device
        assert not busy.done()
        events["idle"].set()
        await busy
    undo()


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Payload(np.ndarray):
    """An array that can be referred to weakly."""


async def request(dev: cb.Device, freed: list[weakref.ref[object]]) -> None:
    """Fails with a host array and a reference in its frame."""
    payload = np.ones(4, np.float32).view(Payload)
    ref = dev.put(payload)
    freed += weakref.ref(payload), weakref.ref(ref)
    await dev.ask(Left(x=ref, fails=True))


@pytest.mark.usefixtures("without_collector")
async def test_a_failed_request_is_freed_with_its_last_reference(dev: cb.Device) -> None:
    freed: list[weakref.ref[object]] = []
    for _ in range(3):
        with contextlib.suppress(cb.LibraryError):
            await request(dev, freed)
    assert len(freed) == 6
    assert [f() is None for f in freed] == [True] * 6


async def test_each_await_raises_an_error_of_its_own(dev: cb.Device) -> None:
    bad = dev.ask(Left(x=dev.put(np.ones(4, np.float32)), fails=True))
    errors = []
    for _ in range(3):
        with pytest.raises(cb.LibraryError) as caught:
            await bad
        errors.append(caught.value)
    assert len({id(e) for e in errors}) == 3
    assert len({len(caught.traceback) for e in errors}) == 1
    assert {str(e) for e in (*errors, bad.exception())} == {"it was told to fail"}


async def test_a_reader_far_behind_names_the_line_of_the_op_that_failed(dev: cb.Device) -> None:
    x = bad = dev.ask(Left(x=dev.put(np.ones(4, np.float32)), fails=True, after="go"))
    for _ in range(50):
        x = dev.ask(Left(x=x))
    events["go"].set()
    with pytest.raises(cb.LibraryError, match="it was told to fail") as caught:
        await x
    assert caught.value.code == 3
    assert caught.value.op == "left.add"
    first, own = caught.value.__notes__
    assert "an operand depends on op" in first
    assert f"left.add, made at {__file__}:" in first
    assert "51 ops failed from this cause" in first
    assert own.startswith(f"left.add, made at {__file__}:")
    assert own not in first
    with pytest.raises(cb.LibraryError) as caught:
        await bad
    assert caught.value.__notes__[-1] in first


# -- by itself ---------------------------------------------------------------------------------------------------------


class Port:
    """Keeps the causes that were dropped unseen; ``turn`` is an iteration of its loop."""

    def __init__(self) -> None:
        self.unseen: list[str] = []
        self.loop = self
        self._soon: list[Callable[[], None]] = []

    def call_soon_threadsafe(self, call: Callable[..., None], *args: Any) -> None:
        self._soon.append(functools.partial(call, *args))

    def turn(self) -> None:
        while self._soon:
            self._soon.pop(0)()

    def unretrieved(self, cause: Cause) -> None:
        error = cause.error()
        self.unseen.append(f"{error} ({getattr(error, 'op', None)})")


class Line:
    """Ops that are accepted and answered by hand."""

    def __init__(self) -> None:
        self.port = Port()
        self.unanswered = Unanswered(self.port, "cpu:0")  # type: ignore[arg-type]

    def accept(self, op: int) -> Reply[None]:
        reply: Reply[None] = Reply(self.port, op)  # type: ignore[arg-type]
        self.unanswered.entries[op] = Entry(weakref.ref(reply), f"op.{op}", None, Line.accept.__code__, 0, None)
        return reply

    def fail(self, root: int, *ops: int) -> None:
        """Answer ops that have failed from the same cause."""
        causes = [as_failure(root, LibraryError(f"failure {root}"))]
        self.unanswered.settle(Completions([], [], [(op, root) for op in ops], causes), 1)

    def finish(self, *ops: int) -> None:
        self.unanswered.settle(Completions(list(ops), []), 1)


def test_a_cause_is_unseen_when_the_ops_that_could_show_it_have_their_completions() -> None:
    line = Line()
    failed, behind = line.accept(1), line.accept(2)
    del failed
    line.fail(1, 1)
    later = line.accept(3)
    assert line.port.unseen == []  # op 2 may have read it, and may be awaited
    line.finish(2)
    line.port.turn()
    last = line.accept(4)
    assert line.port.unseen == []  # nor could op 3, which may have been called while there was a ref to its result
    line.finish(3)
    line.port.turn()
    assert line.port.unseen == ["failure 1 (op.1)"]  # although the line is not idle
    assert not last.done()
    assert behind.done()
    assert later.done()


@pytest.mark.parametrize("early", [False, True], ids=["after", "before"])
def test_a_cause_whose_op_is_dropped_is_seen_in_an_op_that_was_called_before(early: bool) -> None:
    line = Line()
    failed = line.accept(1)
    line.fail(1, 1)
    line.finish()  # nothing is in flight: only the reply holds the cause
    reader = line.accept(2)
    del failed
    if not early:
        line.port.turn()
    line.fail(1, 2)
    line.port.turn()
    assert isinstance(reader.exception(), LibraryError)
    del reader
    line.finish()
    line.port.turn()
    assert line.port.unseen == []


def test_a_cause_whose_op_is_dropped_is_reported_once_if_no_reader_of_it_is_seen() -> None:
    line = Line()
    failed = line.accept(1)
    line.fail(1, 1)
    line.finish()
    line.accept(2)
    del failed
    line.port.turn()
    line.fail(1, 2)
    line.finish()
    line.port.turn()
    assert line.port.unseen == ["failure 1 (op.1)"]


def test_a_cause_is_not_reported_where_the_callers_of_all_its_ops_were_told_otherwise() -> None:
    line = Line()
    replies = [line.accept(op) for op in (1, 2, 3)]
    line.fail(1, 1)
    line.unanswered._causes[1].told += 1
    line.finish(2, 3)
    assert line.port.unseen == []
    line.fail(4, *[op for op in (4, 5) if replies.append(line.accept(op)) is None])
    line.unanswered._causes[4].told += 1
    line.finish()
    replies.clear()
    line.port.turn()
    assert line.port.unseen == ["failure 4 (op.4)"]  # of op 5


def test_a_cause_is_seen_where_one_of_its_ops_is() -> None:
    line = Line()
    line.accept(1)
    behind, last = line.accept(2), line.accept(3)
    line.fail(1, 1)
    line.fail(1, 2)
    line.finish(3)
    assert isinstance(behind.exception(), LibraryError)
    del behind, last
    assert line.port.unseen == []


def test_a_cause_is_reported_once_and_when_its_last_reply_is_dropped() -> None:
    line = Line()
    replies = [line.accept(op) for op in range(1, 4)]
    line.fail(1, 1, 2, 3)
    while replies:
        assert line.port.unseen == []
        replies.pop()
    assert line.port.unseen == ["failure 1 (op.1)"]


def test_an_op_that_fails_long_after_its_cause_was_dropped_names_its_line() -> None:
    line = Line()
    line.accept(1)
    line.fail(1, 1)
    late = line.accept(2)
    line.fail(1, 2)
    error = late.exception()
    assert isinstance(error, LibraryError)
    assert f"op 1, which failed: op.1, made at {__file__}:" in error.__notes__[0]


def test_what_is_kept_of_failures_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 8)
    line = Line()
    hung = line.accept(1)
    for op in range(2, 102):
        line.accept(op)
        line.fail(op, op)
    line.port.turn()
    assert len(line.port.unseen) == 100 - 8
    assert len(line.unanswered._causes) == len(line.unanswered._kept) == len(line.unanswered._origins) == 8
    assert not hung.done()


def test_a_completion_whose_cause_is_not_told_is_an_error_all_the_same() -> None:
    line = Line()
    failed = line.accept(2)
    line.unanswered.settle(Completions([], [], [(2, 1)], []), 1)
    assert isinstance(failed.exception(), cb.RemoteError)


def test_a_loss_is_reported_once_where_no_op_of_it_is_seen() -> None:
    line = Line()
    replies = [line.accept(op) for op in (1, 2)]
    old = line.unanswered.entries
    assert line.unanswered.lose(ContextPoisoned("gone"), 1, 3) == 2
    replies.append(Reply(line.port))  # type: ignore[arg-type]
    old[4] = Entry(weakref.ref(replies[-1]), "op.4", None, Line.accept.__code__, 0, None)
    assert line.unanswered.fail_lost(4, old)
    line.finish()
    replies.clear()
    assert line.port.unseen == ["gone (op.1)"]
    assert line.unanswered.lose(ContextPoisoned("gone"), 2, 5) == 0
    assert len(line.port.unseen) == 1
