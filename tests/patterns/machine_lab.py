"""Shared by the state machines of the serving blueprints: requests are made, cancelled, and each must end once."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, ClassVar

from batching_lab import no_internal_error, turns
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

import callboard as cb
from callboard.actors import ManualClock

__all__ = ["LIMIT", "Call", "RequestMachine", "machine_settings"]

LIMIT = 20.0
"""Seconds, of the real clock, that what must come may take."""


def machine_settings(max_examples: int, steps: int = 40) -> settings:
    return settings(
        max_examples=max_examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


class Call:
    """A call of a user's function that the rules answer, through ``gate``."""

    def __init__(self, item: Any, answer: Any = None) -> None:
        self.item = item
        self.answer = answer
        self.gate: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class RequestMachine(RuleBasedStateMachine):
    """A server in virtual time. A subclass makes ``server`` in its initialisation, and has the rules that submit.

    Attributes:
        errors: In which requests may end.
        settles: Requests end when all calls get the values of :meth:`value_of`.
        quiet: The server logs no error.
        streams: A caller may leave when its request is complete, and parts of it are still to be read.
        limited: Its ``drain`` is given so many seconds.
        server: Under test; None before the initialisation.
        tasks: Of the requests, by their numbers, which count from 0.
        ended: How often each of them has ended.
        gone: Those that ended otherwise than in a value.
        calls: Of the user's functions, that have no answer yet.
        beside: What an operator has begun, such as the server's end.
    """

    errors: ClassVar[tuple[type[Exception], ...]] = (
        ValueError,
        cb.ContextPoisoned,
        cb.Quarantined,
        cb.QueueFull,
        cb.DeadlineExceeded,
        cb.ServerStopped,
    )
    settles: ClassVar[bool] = True
    quiet: ClassVar[bool] = True
    streams: ClassVar[bool] = False
    limited: ClassVar[float] = 0.2

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.no_error = no_internal_error() if self.quiet else contextlib.nullcontext()
        self.no_error.__enter__()
        self.server: Any = None
        self.tasks: dict[int, asyncio.Task[Any]] = {}
        self.ended: dict[int, int] = {}
        self.gone: set[int] = set()
        self.calls: list[Call] = []
        self.beside: list[asyncio.Task[Any]] = []

    # -- for subclasses ------------------------------------------------------------------------------------------------

    def run(self, work: Any) -> Any:
        """Run it, and what follows from it."""

        async def go() -> Any:
            result = await work
            await turns(15)
            return result

        return self.loop.run_until_complete(go())

    def do(self, work: Any, *arguments: Any) -> None:
        """Call something on the loop, and run what follows from it."""

        async def go() -> None:
            work(*arguments)

        self.run(go())

    def launch(self, works: list[Coroutine[Any, Any, Any]]) -> None:
        """Make requests at the same time; in the order of :meth:`numbers`."""

        async def go() -> None:
            for work in works:
                self.tasks[len(self.tasks)] = asyncio.create_task(self._request(len(self.tasks), work))

        self.run(go())

    async def _request(self, number: int, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await work
        except (*self.errors, asyncio.CancelledError):
            self.gone.add(number)
            raise
        finally:
            self.ended[number] = self.ended.get(number, 0) + 1

    async def doubled(self, number: int, **options: Any) -> None:
        """A request whose item is its number, and whose value is twice that."""
        assert await self.server.submit(number, **options) == 2 * number, "another request's value"

    def numbers(self, n: int) -> range:
        """Of the next requests."""
        return range(len(self.tasks), len(self.tasks) + n)

    def start_beside(self, work: Coroutine[Any, Any, Any]) -> None:
        self.do(lambda: self.beside.append(asyncio.create_task(work)))

    async def answered(self, item: Any, answer: Any = None) -> Any:
        """Wait for the answer that the rules give to a call."""
        call = Call(item, answer)
        self.calls.append(call)
        try:
            return await call.gate
        finally:
            self.calls.remove(call)

    def value_of(self, call: Call) -> Any:
        """What a call gives that goes well; None where the rules answer otherwise."""
        return None

    def check(self) -> None:
        """What must hold at the end, beside what holds for all servers."""

    # -- rules ---------------------------------------------------------------------------------------------------------

    @precondition(lambda self: any(not task.done() for task in self.tasks.values()))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        open_ = [number for number, task in self.tasks.items() if not task.done()]
        self.do(self.tasks[data.draw(st.sampled_from(open_))].cancel)

    @rule(seconds=st.sampled_from([0.001, 0.004, 0.010, 0.1, 0.5]))
    def advance(self, seconds: float) -> None:
        self.do(self.clock.advance, seconds)

    @precondition(lambda self: len(self.tasks) > 8)
    @rule(how=st.sampled_from(["stop", "drain", *["not yet"] * 6]))
    def end(self, how: str) -> None:
        if how != "not yet":
            self.start_beside(self.server.stop() if how == "stop" else self.server.drain(timeout=self.limited))

    # -- the end -------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Where all goes well from now on, no request waits for ever."""
        for _ in range(100 + 20 * len(self.tasks)):
            if all(task.done() for task in self.tasks.values()):
                return
            for call in list(self.calls):
                if not call.gate.done():  # another answer may have ended it
                    self.do(call.gate.set_result, self.value_of(call))
            if not self.calls:
                self.advance(0.1)
        raise AssertionError("a request that waits for ever")

    def stop(self) -> None:
        """End the server, and what was begun beside it."""
        self.run(self.server.stop())
        for task in self.beside:
            self.run(asyncio.wait_for(task, LIMIT))

    def teardown(self) -> None:
        if self.server is not None:
            if self.settles:
                self.settle()
            self.stop()
            assert all(task.done() for task in self.tasks.values()), "a request without an end"
            assert self.ended == dict.fromkeys(self.tasks, 1)
            wrong = {n: task.exception() for n, task in self.tasks.items() if not task.cancelled() and task.exception()}
            assert all(isinstance(error, self.errors) for error in wrong.values()), wrong
            stats = self.server.stats()
            assert (stats.queued, stats.blocked, stats.running) == (0, 0, 0)
            assert stats.submitted == len(self.ended)
            values = len(self.tasks) - len(self.gone)
            assert stats.completed == values or (self.streams and stats.completed > values)
            assert self.clock.pending == 0
            assert not self.calls
            self.check()
        self.loop.run_until_complete(turns())
        self.loop.close()
        self.no_error.__exit__(None, None, None)
