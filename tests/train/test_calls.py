"""Calls of several actors at once, of which one is refused before it is sent."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import callboard as cb
from callboard.train.replicas.calls import every, together


async def test_the_calls_before_a_refused_one_are_waited_for() -> None:
    ended = []

    async def one() -> None:
        await asyncio.sleep(0)
        ended.append(True)

    def calls() -> Iterator[Any]:
        yield one()
        raise cb.ActorStopped("no more calls")

    with pytest.raises(cb.ActorStopped, match="no more calls"):
        await every(calls())
    assert ended == [True]


async def test_a_refused_call_ends_those_that_wait_for_it() -> None:
    aborted = asyncio.Event()

    async def waiting() -> None:
        await aborted.wait()
        raise cb.WorldLost("another one has failed", 1, 1)

    def calls() -> Iterator[Any]:
        yield waiting()
        raise cb.DeviceStopped("closed")

    async with asyncio.timeout(30):
        with pytest.raises(cb.DeviceStopped, match="closed"):
            await together(calls(), lambda reason: aborted.set())
