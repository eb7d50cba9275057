"""Events: recorded again and again, measured, waited for, given back."""

import itertools
from typing import Any

import numpy as np
import pytest

from callboard.core.errors import GpuRefStale, UnsupportedOp
from callboard.kernel.event import (
    Destroy,
    Elapsed,
    GetIpcHandle,
    IpcEventHandle,
    OpenIpcHandle,
    Record,
    Wait,
)
from callboard.kernel.memory import Copy

numbers = itertools.count(1)


@pytest.fixture
def number(session: Any) -> int:
    return next(numbers)


def recorded(session: Any, *after: Any, **flags: bool) -> int:
    event = next(numbers)
    assert session.submit(Record(event=event, after=after, **flags)) is None
    return event


def test_the_time_between_two_events_is_that_of_the_work_between(session: Any) -> None:
    a = session.put(np.ones((256, 256), np.float32))
    start = recorded(session, a)
    middle = recorded(session, session.submit(Copy(src=a)))
    end = recorded(session, session.submit(Copy(src=a)))
    first, second, both = (
        session.submit(Elapsed(start=a, end=b)) for a, b in ((start, middle), (middle, end), (start, end))
    )
    assert first >= 0
    assert second >= 0
    assert both == pytest.approx(first + second, abs=2e-6)  # each is rounded, CUDA's to half a microsecond
    assert session.submit(Elapsed(start=end, end=start)) == pytest.approx(-both, abs=1e-6)


def test_an_event_that_is_recorded_again_stands_for_the_last_time(session: Any) -> None:
    start, event = recorded(session), recorded(session)
    before = session.submit(Elapsed(start=start, end=event))
    session.submit(Record(event=event))
    assert session.submit(Elapsed(start=start, end=event)) > before


@pytest.mark.parametrize("flags", [{}, {"timing": False}, {"blocking": True}, {"timing": False, "interprocess": True}])
def test_a_wait_for_an_event_changes_no_array(session: Any, flags: dict[str, bool]) -> None:
    a = session.put(np.arange(6, dtype=np.float32))
    event = recorded(session, a, **flags)
    session.submit(Wait(event=event, before=(a,)))
    session.submit(Wait(event=event))
    np.testing.assert_array_equal(session.get(a), np.arange(6))


def test_an_event_that_was_not_recorded_is_refused(session: Any, number: int) -> None:
    for op in (Wait(event=number), Elapsed(start=number, end=number), GetIpcHandle(event=number)):
        with pytest.raises(GpuRefStale, match=f"event {number} was not recorded in this context"):
            session.submit(op)


def test_an_event_is_given_back_once(session: Any, number: int) -> None:
    session.submit(Record(event=number))
    session.submit(Destroy(event=number))
    session.submit(Destroy(event=number))
    with pytest.raises(GpuRefStale, match="was not recorded"):
        session.submit(Wait(event=number))


def test_an_event_for_other_processes_has_a_handle(session: Any) -> None:
    event = recorded(session, timing=False, interprocess=True)
    handle = session.submit(GetIpcHandle(event=event))
    assert isinstance(handle, IpcEventHandle)
    assert handle.pid > 0
    assert IpcEventHandle.from_bytes(handle.as_bytes()) == handle
    with pytest.raises(UnsupportedOp, match="interprocess=True"):
        session.submit(GetIpcHandle(event=recorded(session)))


def test_a_handle_of_a_context_that_is_gone_is_refused(session: Any, number: int) -> None:
    event = recorded(session, timing=False, interprocess=True)
    handle = session.submit(GetIpcHandle(event=event))
    gone = IpcEventHandle(
        device=handle.device, generation=handle.generation, pid=handle.pid, started=1, handle=handle.handle
    )
    with pytest.raises(GpuRefStale, match="names a lost context"):
        session.submit(OpenIpcHandle(event=number, handle=gone.as_bytes().hex()))
