"""A poll settles and reports finished work and everything it held up, and inspects nothing else."""

import time
from collections.abc import Iterator

import pytest
from tests.device.host.context.hosting import PATIENCE, Buffer, Hosted
from tests.device.steps import Bump, Left, Right, events

from callboard.kernel.memory import Empty, Fill


@pytest.fixture
def host() -> Iterator[Hosted]:
    events.clear()
    hosted = Hosted()
    yield hosted
    for event in list(events.values()):
        event.set()
    hosted.close()


def made(host: Hosted) -> Buffer:
    _, (buffer,) = host.call(Empty(shape=(4,), dtype="f32"))
    host.call(Fill(out=buffer, fill_value=1.0))
    host.finish()
    host.done.clear()
    return buffer


def glanced(host: Hosted, *until: int) -> None:
    """Glance until these ops have their completions."""
    deadline = time.monotonic() + PATIENCE
    while not {*until} <= {*host.done, *host.failed}:
        host.context.poll_streams()
        host.take()
        assert time.monotonic() < deadline, "no glance has seen it"


def test_it_reports_what_has_ended(host: Hosted) -> None:
    x = made(host)
    assert not host.context.poll_streams(), "nothing is in flight"
    first, _ = host.call(Bump(x=x))
    glanced(host, first)
    second, _ = host.call(Bump(x=x, after="go"))
    assert not host.context.poll_streams()
    host.take()
    assert host.done == [first]
    events["go"].set()
    glanced(host, second)
    assert host.array(x).tolist() == [3.0] * 4


def test_a_completion_still_waits_for_those_of_other_streams(host: Hosted) -> None:
    x = made(host)
    bad, (owed,) = host.call(Left(x=x, after="go", fails=True))
    reader, _ = host.call(Right(x=owed))
    host.context.poll_streams()
    host.take()
    assert not host.done
    assert not host.failed
    events["go"].set()
    glanced(host, reader)
    assert host.failed[reader].id == bad
    assert bad in host.failed
