"""Any schedule of requests, results, errors, cancellations, writes and time: the cache is a dict that forgets."""

import asyncio
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import callboard as cb
from callboard.actors.clock import LoopClock

ENTRY = 4 + 256 + 16
TTL = 10.0
TEXTS = st.sampled_from("abcdefgh")


class HandClock(LoopClock):
    """The time is set by hand, between iterations of the loop."""

    now = 100.0

    def time(self) -> float:
        return self.now


class CacheMachine(RuleBasedStateMachine):
    """Each call of the function gives its texts the number of the call, so a vector says which call computed it."""

    @initialize(
        policy=st.sampled_from(["lru", "tinylfu"]), room=st.integers(1, 6), max_batch=st.sampled_from([None, 2])
    )
    def make(self, policy: Any, room: int, max_batch: int) -> None:
        self.runner = asyncio.Runner()
        self.clock = HandClock()
        self.calls: list[tuple[list[str], asyncio.Future[Any]]] = []
        self.asked: list[tuple[list[str], asyncio.Task[Any]]] = []
        self.since: dict[asyncio.Task[Any], set[tuple[str, float]]] = {}  # what was right at some time of a request
        self.allowed: dict[str, dict[float, float]] = {}  # text: value, when it is too old
        self.room = room
        self.written: dict[str, int] = {}  # calls that had begun when a text was last written
        self.cache = cb.EmbeddingCache(
            self.embed,
            max_bytes=room * ENTRY,
            ttl=TTL,
            policy=policy,
            max_batch=max_batch or None,
            clock=self.clock,
            dim=1,
        )

    async def embed(self, texts: list[str]) -> Any:
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.calls.append((texts, waiting))
        return await waiting

    def turn(self) -> None:
        async def turns() -> None:
            for _ in range(8):
                await asyncio.sleep(0)

        self.runner.run(turns())
        open_ = [(texts, task) for texts, task in self.asked if not task.done()]
        for texts, task in self.asked:
            if task.done() and not task.cancelled() and task.exception() is None:
                for text, value in zip(texts, task.result()[:, 0].tolist(), strict=True):
                    assert (text, value) in self.since[task]
            elif task.done() and not task.cancelled():
                assert isinstance(task.exception(), ZeroDivisionError)
        self.asked = open_

    @rule(texts=st.lists(TEXTS, min_size=1, max_size=4))
    def ask(self, texts: list[str]) -> None:
        async def start() -> asyncio.Task[Any]:
            return asyncio.create_task(self.cache.get_many(texts))

        task = self.runner.run(start())
        self.asked.append((texts, task))
        self.since[task] = {(text, value) for text, values in self.allowed.items() for value in values}
        self.turn()

    def allow(self, text: str, value: float) -> None:
        self.allowed.setdefault(text, {})[value] = self.clock.time() + TTL
        for values in self.since.values():
            values.add((text, value))

    @precondition(lambda self: self.waiting())
    @rule(data=st.data(), fails=st.booleans())
    def answer(self, data: Any, fails: bool) -> None:
        number = data.draw(st.sampled_from(self.waiting()))
        texts, waiting = self.calls[number]
        written = {text for text, since in self.written.items() if since > number}
        if fails:
            waiting.set_exception(ZeroDivisionError())
        else:
            waiting.set_result(np.full((len(texts), 1), number + 1.0))
            for text in texts:
                self.allow(text, number + 1.0)
        self.turn()
        for text in written:
            self.allowed.get(text, {}).pop(number + 1.0, None)  # its callers have it, and it is not kept

    def waiting(self) -> list[int]:
        return [number for number, (_, waiting) in enumerate(self.calls) if not waiting.done()]

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def cancel(self, data: Any) -> None:
        task = data.draw(st.sampled_from(self.asked))[1]
        task.cancel()
        self.turn()
        assert task.done()

    @rule(text=TEXTS, value=st.integers(-9, -1))
    def put(self, text: str, value: int) -> None:
        self.cache.put(text, [value])
        self.allowed[text] = {}
        self.written[text] = len(self.calls)
        self.allow(text, value)

    @rule(text=TEXTS)
    def invalidate(self, text: str) -> None:
        self.cache.invalidate(text)
        self.allowed[text] = {}
        self.written[text] = len(self.calls)
        before = len(self.calls)
        self.ask([text])
        assert len(self.calls) == before + 1  # it is computed anew
        assert not self.asked[-1][1].done()

    @rule(seconds=st.sampled_from([1.0, 9.0, 10.0]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds
        now = self.clock.time()
        for values in self.allowed.values():
            for value in [value for value, until in values.items() if until <= now]:
                del values[value]

    @invariant()
    def bounded(self) -> None:
        if hasattr(self, "cache"):
            stats = self.cache.stats()
            assert stats.entries == len(self.cache) <= self.room
            assert stats.bytes == stats.entries * ENTRY
            running = [text for number in self.waiting() for text in self.calls[number][0]]
            assert stats.calls == len(self.calls)
            assert self.asked or not running  # a call without callers is cancelled

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            for number in self.waiting():
                self.calls[number][1].set_exception(ZeroDivisionError())
            self.turn()
            assert not self.asked
            self.runner.close()


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
