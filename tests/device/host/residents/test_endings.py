"""The users of device arrays after a call: a call that has run is the last one, all others leave those that there are.

Ops read the arrays on another stream all the while, until the test lets them.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.device.host.context.hosting import PATIENCE, Buffer
from tests.device.host.context.test_admission import filled, values
from tests.device.host.residents.calling import Calls
from tests.device.steps import Left, Right, events

from callboard.core.errors import Withdrawn
from callboard.device.host.residents.operands import Adopted, AdoptedBlock


@pytest.fixture
def host() -> Iterator[Calls]:
    events.clear()
    hosted = Calls()
    yield hosted
    for event in list(events.values()):
        event.set()
    hosted.close()


def read(host: Calls, x: Buffer) -> Buffer:
    """What an op makes of an array when the test lets it read."""
    host.finish()
    _, (y,) = host.call(Right(x=x, after="go"))
    return y


@pytest.mark.parametrize("writes", [True, False])
def test_a_call_that_does_not_begin_leaves_the_users_of_its_arrays(host: Calls, writes: bool) -> None:
    x, z = filled(host, 1), filled(host, 5)
    y = read(host, x)
    block = host.block(x)
    users = block.writer, block.wrote, dict(block.readers)
    assert not block.idle()
    host.end(host.called(x, writes=writes), error=Withdrawn("cancelled"))
    assert (block.writer, block.wrote, block.readers) == users
    assert not block.idle()
    host.call(Left(x=z, out=x))
    assert host.timeline("left").waits, "the op writes what is still read"
    events["go"].set()
    host.finish()
    assert values(host, y) == [2] * 4
    assert values(host, x) == [6] * 4


def test_the_memory_of_such_a_call_is_not_given_back_while_it_is_read(host: Calls) -> None:
    x = filled(host, 1)
    y = read(host, x)
    host.end(host.called(x), error=Withdrawn("cancelled"))
    host.free(x)
    host.context.pool.trim()  # memory that is given back is overwritten
    events["go"].set()
    host.finish()
    assert values(host, y) == [2] * 4


def test_an_actors_next_call_does_not_wait_for_the_users_of_one_that_was_cancelled(host: Calls) -> None:
    x, z = filled(host, 1), filled(host, 5)
    read(host, x)
    host.end(host.called(x), error=Withdrawn("cancelled"))
    item = host.called(z)
    host.run(item)
    host.end(item)
    host.finish(lambda: item.op.id in host.values)
    assert not events["go"].is_set()


@pytest.mark.parametrize("fails", [True, False])
def test_a_call_that_has_run_is_the_last_user(host: Calls, fails: bool) -> None:
    x = filled(host, 1)
    y = read(host, x)
    item = host.called(x)
    assert item.start is not None
    assert not item.start.query()
    events["go"].set()
    host.run(item)
    host.end(item, error=ValueError("spoilt") if fails else None)
    block = host.block(x)
    assert block.writer is host.actors[1].timeline
    assert not block.readers
    assert block.idle()
    host.finish()
    assert values(host, y) == [2] * 4


def test_what_lends_an_array_while_a_call_may_write_it_is_a_user_besides_the_call(host: Calls) -> None:
    """As on a GPU, where the stream of the actor that lends it may still write it."""
    one, two = host.actors[1].timeline, host.actors[2].timeline
    host.endings.on_host = False
    x = filled(host, 1)
    lent = AdoptedBlock(host.block(x).memory, lambda block: None)
    host.context.admission.buffers[lent.id] = lent
    buffer = Buffer(lent.id, x.layout)
    writing, lending = host.called(buffer, actor=2), host.called(filled(host, 5), actor=1)
    host.run(lending)
    stream: Any = one.stream
    stream.submit(events["go"].wait, PATIENCE)  # what it has enqueued
    host.end(lending, Adopted(lent, x.layout, 0))
    assert lent.writer is one
    host.run(writing)
    host.end(writing)
    assert lent.writer is two
    assert two.waits, "the next user of the array waits for this stream only"
    assert not lent.idle()
    events["go"].set()
    host.finish()
    assert lent.idle()
