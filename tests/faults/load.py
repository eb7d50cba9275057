"""Load for fault runs: asks from several tasks at once, whose values show which op and which attempt they come from."""

import asyncio
import itertools
import os
from collections import Counter
from typing import Any

import numpy as np

import callboard as cb

BOUND = 30.0
"""Seconds within which every ask must end, in a value or in a typed error."""

SHAPE = (8, 8)


class Load:
    """Asks ``put -> gemm -> copy -> get`` chains, a few at once per task, until told to stop.

    Every chain carries a number of its own, so a value of another op, of another attempt or of a lost context shows.

    Attributes:
        answered: Chains that ended in the right value.
        errors: How many chains ended in each class of error.
        generations: The generation of each right value, in order of arrival by task.
    """

    def __init__(self, dev: cb.Device, tasks: int = 4, at_once: int = 8) -> None:
        self.dev = dev
        self.answered = 0
        self.errors: Counter[str] = Counter()
        self._numbers = itertools.count(1)
        self._tasks = tasks
        self._at_once = at_once
        self._stopping = False
        self._marks: list[tuple[int, asyncio.Event]] = []
        self._identity = dev.per_generation(lambda d: d.put(np.eye(*SHAPE, dtype=np.float32)))

    @property
    def ended(self) -> int:
        return self.answered + sum(self.errors.values())

    async def until_answered(self, more: int) -> None:
        """Wait until ``more`` further chains ended in a value."""
        mark = asyncio.Event()
        self._marks.append((self.answered + more, mark))
        waiter = asyncio.create_task(mark.wait())
        ended, _ = await asyncio.wait([waiter, *self._group], timeout=BOUND, return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
        for task in ended - {waiter}:
            task.result()  # raises what ended the load
        assert waiter in ended, f"{self.answered} answered and {dict(self.errors)}, and nothing goes on"

    async def __aenter__(self) -> "Load":
        self._group = [asyncio.create_task(self._work()) for _ in range(self._tasks)]
        return self

    async def __aexit__(self, kind: Any, *_: Any) -> None:
        self._stopping = True
        if kind is not None:
            for task in self._group:
                task.cancel()
        await asyncio.gather(*self._group, return_exceptions=kind is not None)

    async def _work(self) -> None:
        while not self._stopping:
            for count, mark in self._marks:
                if self.answered >= count:
                    mark.set()
            try:
                async with asyncio.timeout(BOUND):
                    identity = await self._identity()
                    numbers, replies = [], []
                    for _ in range(self._at_once):
                        number = next(self._numbers) % (1 << 22)  # exact in f32
                        x = self.dev.put(np.full(SHAPE, number, np.float32))
                        y = self.dev.blas.gemm(x, identity)
                        replies.append(self.dev.copy(y).get())
                        numbers.append(number)
            except (cb.ContextLost, cb.MailboxFull) as e:
                self.errors[type(e).__name__] += 1
                async with asyncio.timeout(BOUND):
                    await self.dev.ready()
                continue
            for number, reply in zip(numbers, replies, strict=True):
                await self._one(number, reply)

    async def _one(self, number: int, reply: Any) -> None:
        try:
            async with asyncio.timeout(BOUND):
                value = await reply
        except (cb.ContextLost, cb.OutOfMemory, cb.DeviceStopped) as e:
            self.errors[type(e).__name__] += 1
        except TimeoutError:
            raise AssertionError(f"ask {number} did not end within {BOUND} s") from None
        else:
            assert (value == number).all(), f"ask {number} was answered with {value.ravel()[:4]}"
            self.answered += 1


def signal_host(dev: cb.Device, number: int) -> None:
    """Send a signal to the device's host. Without one it is an error: process 0 is all that runs with this test."""
    pid = dev.health().host_pid
    assert pid
    os.kill(pid, number)


async def lost_and_recovered(dev: cb.Device, loss: Any) -> tuple[cb.Lost, cb.Recovered]:
    """Cause a loss by ``loss()`` and wait until the device has recovered from it."""
    events = dev.events()
    loss()
    async with asyncio.timeout(BOUND):
        first = await anext(events)
        second = await anext(events)
    await events.aclose()  # type: ignore[attr-defined]
    assert isinstance(first, cb.Lost), first
    assert isinstance(second, cb.Recovered), second
    return first, second


async def standby_ready(dev: cb.Device, *not_these: int) -> int:
    """Process id of a ready standby that is none of these (which were killed)."""
    standby = dev._actor._standby
    async with asyncio.timeout(BOUND):
        while not await dev.standby_ready() or standby.host is None or standby.host.pid in not_these:
            await standby.changed()
    return standby.host.pid
