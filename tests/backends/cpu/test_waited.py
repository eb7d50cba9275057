"""The stream of a thread that waits for each of its ops: it executes them itself, behind the worker's work."""

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from callboard.backends.cpu.stream import CpuStream
from callboard.core.backend.waited import WaitedStream
from callboard.core.errors import DriverError, LibraryError

LONG = 45.0
"""Seconds; a bound for what happens at once."""


@pytest.fixture
def base() -> Iterator[CpuStream]:
    made = CpuStream(3)
    yield made
    made.close()


@pytest.fixture
def stream(base: CpuStream) -> WaitedStream:
    made = base.waited
    assert isinstance(made, WaitedStream)
    return made


def fail(error: BaseException) -> None:
    raise error


def test_work_is_done_on_the_submitting_thread_when_submit_returns(base: CpuStream, stream: WaitedStream) -> None:
    found: list[int] = []
    assert stream.id == base.id
    stream.submit(lambda: found.append(threading.get_ident()))
    assert found == [threading.get_ident()]
    assert stream.query()
    assert stream.record().query()


def test_it_comes_behind_the_streams_work_and_what_that_waits_for(base: CpuStream, stream: WaitedStream) -> None:
    order: list[str]
    other, gate, order = CpuStream(4), threading.Event(), []
    other.submit(gate.wait, LONG)
    other.submit(order.append, "other")
    base.wait(other.record())
    base.submit(order.append, "base")
    opener = threading.Timer(0.0, gate.set)  # while this thread waits
    opener.start()
    stream.submit(order.append, "own")
    assert order == ["other", "base", "own"]
    opener.join(LONG)
    other.close()


def test_a_failure_belongs_to_its_op(stream: WaitedStream) -> None:
    failed, good = stream.run("mine", fail, ValueError("no")), stream.run("mine", lambda: None)
    stream.synchronize()
    with pytest.raises(LibraryError, match="fail failed: ValueError: no"):
        failed.check(b"")
    good.check(b"")


def test_a_failure_of_other_work_is_raised_once(stream: WaitedStream) -> None:
    stream.submit(fail, ValueError("no"))
    with pytest.raises(LibraryError, match="no"):
        stream.synchronize()
    stream.synchronize()
    stream.submit(fail, ValueError("again"))
    with pytest.raises(LibraryError, match="again"):
        stream.record().query()


def test_numerical_warnings_are_off_in_the_work_only(stream: WaitedStream) -> None:
    before = np.geterr()
    seen: list[dict[str, Any]] = []
    stream.submit(lambda: seen.append({**np.geterr()}))
    assert set(seen[0].values()) == {"ignore"}
    assert np.geterr() == before


def test_it_is_closed_without_its_stream(base: CpuStream, stream: WaitedStream) -> None:
    stream.close()
    with pytest.raises(DriverError, match="stream 3 is closed"):
        stream.submit(lambda: None)
    base.synchronize()
