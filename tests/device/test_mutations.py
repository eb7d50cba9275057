"""The mutation check of the design: each safeguard of the envelope is switched off, and a test must notice.

Every check runs twice: as the code is, where it must hold, and without the safeguard, where it must fail in the way
that the safeguard is there to prevent. So none of these checks is one that cannot fail.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from tests.device.steps import Bump, Left, Right, StepsBackend, events

import callboard as cb
from callboard.core import registry
from callboard.device.host.context import blocks
from callboard.device.host.context.admission import launching
from callboard.device.host.context.blocks import Block, BlockPool
from callboard.device.host.context.ledger import Ledger
from callboard.device.host.context.pending import Pending
from callboard.device.host.context.timelines import Timeline

pytestmark = [pytest.mark.leaves_nothing]

BOUND = 20.0
MOMENT = 0.25
"""Seconds that an op which must not run yet gets to run anyway; without the safeguard it takes a fraction of this."""
MOMENTS = 1
"""Such waits, one after the other. A machine that stands still meanwhile ends one of them, not all."""
LARGE = 1 << 17
"""Elements of an array whose memory is given back at once; small ones are freed several at a time."""

Check = Callable[[cb.Device], Awaitable[None]]


@asynccontextmanager
async def opened() -> AsyncIterator[cb.Device]:
    events.clear()
    undo = registry.register("steps", StepsBackend())
    try:
        async with cb.device("steps", isolation="thread") as dev:
            try:
                yield dev
            finally:
                for event in list(events.values()):
                    event.set()
    finally:
        undo()


def ones(n: int = 64, value: float = 1.0) -> np.ndarray:
    return np.full(n, value, np.float32)


async def a_moment(event: str) -> None:
    """Until an op has set the event; it may not be able to."""
    for _ in range(MOMENTS):
        if await asyncio.to_thread(events[event].wait, MOMENT):
            return


async def done(event: str) -> None:
    """Until an op has set the event. Without the safeguards, a copy of its result would not wait for it."""
    assert await asyncio.to_thread(events[event].wait, BOUND)


async def equal(reply: Any, expected: np.ndarray) -> None:
    async with asyncio.timeout(BOUND):
        np.testing.assert_array_equal(await reply.get(), expected)


# -- checks ------------------------------------------------------------------------------------------------------------


async def a_reader_waits_for_the_writer(dev: cb.Device) -> None:
    x = dev.put(ones())
    await x
    dev.ask(Bump(x=x, after="go"))
    y = dev.ask(Right(x=x, sets="read"))
    dev._port.flush()
    await a_moment("read")
    events["go"].set()
    await equal(y, ones() * 3)


async def a_writer_waits_for_the_readers(dev: cb.Device) -> None:
    x = dev.put(ones())
    await x
    late = dev.ask(Right(x=x, after="go", sets="read"))
    dev.ask(Bump(x=x, n=10, sets="written"))
    dev._port.flush()
    await a_moment("written")
    events["go"].set()
    await done("read")
    await equal(late, ones() * 2)
    await equal(x, ones() * 11)


async def a_writer_waits_for_the_writer(dev: cb.Device) -> None:
    x = dev.put(ones())
    y = dev.put(ones())
    await dev.drain()
    dev.ask(Bump(x=x, after="go", sets="bumped"))
    dev.ask(Right(x=y, n=41, out=x, sets="written"))
    dev._port.flush()
    await a_moment("written")
    events["go"].set()
    await done("bumped")
    await equal(x, ones() * 42)


async def memory_in_use_is_not_used_again(dev: cb.Device) -> None:
    x = dev.put(ones(LARGE))
    y = dev.put(ones(LARGE))
    await dev.drain()
    late = dev.ask(Left(x=x, after="go", sets="read"))
    x.free()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "SPARES", 0)
        other = dev.ask(Right(x=y, n=6, sets="written"))  # gets the memory of x
        dev._port.flush()
        await a_moment("written")
    events["go"].set()
    await done("read")
    await equal(late, ones(LARGE) * 2)
    await equal(other, ones(LARGE) * 7)


async def memory_in_use_is_not_given_to_the_driver(dev: cb.Device) -> None:
    x = dev.put(ones(4096))
    await x
    late = dev.ask(Left(x=x, after="go"))
    x.free()
    await dev.trim()
    events["go"].set()
    await equal(late, ones(4096) * 2)


async def a_completion_waits_for_the_producers(dev: cb.Device) -> None:
    bad = dev.ask(Left(x=dev.put(ones()), after="go", fails=True))
    reader = dev.ask(Right(x=bad))
    second = dev.ask(Left(x=reader))
    dev._port.flush()
    await dev.stats()  # all three are launched
    events["go"].set()
    for reply in (reader, second, bad):
        async with asyncio.timeout(BOUND):
            with pytest.raises(cb.LibraryError, match="told to fail"):
                await reply


async def a_part_that_is_overwritten_does_not_heal_the_rest(dev: cb.Device) -> None:
    bad = dev.ask(Left(x=dev.put(ones()), after="go", fails=True))
    part = dev.ask(Right(x=dev.put(ones(8)), out=bad[:8]))
    dev._port.flush()
    await dev.stats()
    events["go"].set()
    for reply in (part, bad.get()):
        async with asyncio.timeout(BOUND):
            with pytest.raises(cb.LibraryError, match="told to fail"):
                await reply


# -- mutations ---------------------------------------------------------------------------------------------------------


def drop_stream_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Timeline, "follow", lambda self, other, seq: None)


def forget_readers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Block, "before_write", Block.before_read)


def forget_hazards_on_reuse(patch: pytest.MonkeyPatch) -> None:
    give = BlockPool.give

    def forgetful(self: BlockPool, block: Block) -> None:
        give(self, block)
        block.writer, block.only = None, None
        block.readers.clear()

    patch.setattr(BlockPool, "give", forgetful)


def release_at_once(patch: pytest.MonkeyPatch) -> None:
    """Operands do not live until completion: a freed block goes back to the driver as if nothing used it."""
    patch.setattr(Block, "idle", lambda self: True)


def forget_producers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(launching, "Pending", lambda op, seq, plan, sources, *rest: Pending(op, seq, plan, (), *rest))


def settle_out_of_order(patch: pytest.MonkeyPatch) -> None:
    """An op is settled without a look at those whose results it reads."""
    settle = Ledger._settle

    def hasty(self: Ledger, op: Pending) -> bool:
        op.sources = ()
        return settle(self, op)

    patch.setattr(Ledger, "_settle", hasty)


MUTATIONS = [
    (a_reader_waits_for_the_writer, drop_stream_waits),
    (a_writer_waits_for_the_writer, drop_stream_waits),
    (a_writer_waits_for_the_readers, drop_stream_waits),
    (a_writer_waits_for_the_readers, forget_readers),
    (memory_in_use_is_not_used_again, drop_stream_waits),
    (memory_in_use_is_not_used_again, forget_hazards_on_reuse),
    (memory_in_use_is_not_given_to_the_driver, release_at_once),
    (a_completion_waits_for_the_producers, forget_producers),
    (a_completion_waits_for_the_producers, settle_out_of_order),
    (a_part_that_is_overwritten_does_not_heal_the_rest, forget_producers),
]
CHECKS = {check.__name__: check for check, _ in MUTATIONS}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
async def test_the_check_holds(check: Check) -> None:
    async with opened() as dev:
        await check(dev)


@pytest.mark.parametrize(
    "check,mutation",
    MUTATIONS,
    ids=lambda f: f.__name__,  # type: ignore[attr-defined]
)
async def test_the_check_fails_without_the_safeguard(
    check: Check, mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    monkeypatch.setitem(globals(), "MOMENTS", 60)  # the ops come now, if late on a busy machine
    async with opened() as dev:
        with pytest.raises((AssertionError, pytest.fail.Exception)) as caught:
            await check(dev)
    told = str(caught.value)
    assert "Arrays are not equal" in told or "DID NOT RAISE" in told, told
