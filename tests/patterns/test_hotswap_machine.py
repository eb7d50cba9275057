"""Any schedule of submissions, swaps, failures, cancellations, rollbacks and stops: each request ends once."""

import asyncio
from typing import Any

from batching_lab import turns
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from machine_lab import LIMIT, RequestMachine, machine_settings

import callboard as cb

MODEL_ERROR = ValueError
CALLERS = 3
SWAP_ENDS = (cb.SwapFailed, cb.SwapInProgress, cb.UnknownVersion, cb.ServerStopped, ValueError)


class Step:
    """A load, call or unload that the rules answer."""

    def __init__(self, kind: str, version: str, value: Any) -> None:
        self.kind, self.version, self.value = kind, version, value
        self.gate = asyncio.get_running_loop().create_future()


class SwapMachine(RequestMachine):
    """A hot-swap server. A model answers the item with the name of its own version."""

    settles = False  # its calls are steps
    errors = (MODEL_ERROR, cb.QueueFull, cb.DeadlineExceeded, cb.ServerStopped)

    @initialize(
        overflow=st.sampled_from(["reject", "block", "drop_oldest", "drop_lowest_priority"]),
        concurrent=st.integers(1, 3),
        swaps=st.sampled_from(["wait", "refuse"]),
        keep=st.integers(0, 1),
        history=st.sampled_from([0, 8]),
    )
    def make(self, overflow: Any, concurrent: int, swaps: Any, keep: int, history: int) -> None:
        self.steps: list[Step] = []
        self.wrong: list[str] = []
        self.raised: set[int] = set()
        self.called: dict[int, str] = {}
        self.loaded: dict[str, int] = {}
        self.swaps: list[asyncio.Task[Any]] = []
        self.names = iter(range(1, 1000))
        self.keep = keep
        self.server = cb.ModelHotSwapServer[Any, Any](
            self.version("0"),
            keep=keep,
            history=history,
            concurrent_swaps=swaps,
            key=lambda item: item[0],
            max_concurrent=concurrent,
            max_queue=4,
            queue=cb.QueueOptions(overflow=overflow, block_timeout=0.5),
            clock=self.clock,
        )
        self.free = True  # loads and unloads take no time
        self.run(self.server.start())
        self.free = False

    async def step(self, kind: str, version: str, value: Any = None) -> Any:
        step = Step(kind, version, value)
        if self.free and kind != "call":
            return value
        self.steps.append(step)
        try:
            return await step.gate
        finally:
            self.steps.remove(step)

    def must(self, holds: bool, otherwise: str) -> None:
        """Noted for the end: the server hands on what load and unload raise, as an error of the user's."""
        if not holds:
            self.wrong.append(otherwise)

    def version(self, name: str, *, quick: bool = False) -> cb.ModelVersion:
        running: list[Any] = []

        async def model(item: Any) -> Any:
            self.must(bool(self.loaded.get(name)), "called when it is not loaded")
            if item == "warm":
                return name if quick else await self.step("warm", name, name)
            number = item[1]
            self.must(number not in self.called, "a request ran twice")
            self.called[number] = name
            running.append(item)
            try:
                return await self.step("call", name, (name, number))
            finally:
                running.remove(item)

        async def load() -> Any:
            if not quick:
                await self.step("load", name)
            self.loaded[name] = self.loaded.get(name, 0) + 1
            self.must(self.loaded[name] == 1, "loaded twice")
            self.must(sum(self.loaded.values()) <= 2 + self.keep, "more loaded than two and those kept")
            return model

        async def unload(given: Any) -> None:
            self.must(given is model, "another model unloaded")
            self.must(not running, "unloaded while requests run on it")
            self.loaded[name] -= 1
            await self.step("unload", name)

        return cb.ModelVersion(name, load, unload=unload, warmup=["warm"], golden=[("warm", name)])

    async def request(self, number: int, **options: Any) -> Any:
        found = await self.server.submit((number % CALLERS, number), **options)
        assert found.response == (found.version, number), "a value of another version or request"
        assert self.called[number] == found.version

    # -- what callers do -----------------------------------------------------------------------------------------------

    @rule(n=st.integers(1, 3), priority=st.integers(0, 2), timeout=st.sampled_from([None, None, 0.01]))
    def submit(self, n: int, **options: Any) -> None:
        self.launch([self.request(number, **options) for number in self.numbers(n)])

    @rule(
        how=st.sampled_from(["swap", "swap", "rollback", "activate"]),
        canary=st.sampled_from([None, None, cb.Canary(0.5, 2), cb.Canary(1.0, 3, 0.4)]),
        quick=st.sampled_from([True, True, False]),
        data=st.data(),
    )
    def swap(self, how: str, canary: Any, quick: bool, data: st.DataObject) -> None:
        server = self.server
        work: Any
        if how == "rollback":
            work = server.rollback()
        elif how == "activate":
            name = data.draw(st.sampled_from([each.version for each in server.versions()] or ["0"]))
            work = server.activate(name, canary=canary)
        else:
            work = server.swap(self.version(str(next(self.names)), quick=quick), canary=canary)
        self.do(lambda: self.swaps.append(asyncio.create_task(work)))

    @precondition(lambda self: any(not swap.done() for swap in self.swaps))
    @rule(data=st.data())
    def cancel_swap(self, data: st.DataObject) -> None:
        swap = data.draw(st.sampled_from([n for n, swap in enumerate(self.swaps) if not swap.done()]))
        self.do(self.swaps[swap].cancel)

    # -- what models do ------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.steps)
    @rule(fails=st.sampled_from([False, False, False, True]), last=st.booleans(), all_=st.booleans())
    def answer(self, fails: bool, last: bool, all_: bool) -> None:
        async def go() -> None:
            for step in list(self.steps) if all_ else [self.steps[-1 if last else 0]]:
                if step.gate.done():
                    continue
                if fails:
                    if step.kind == "call":
                        self.raised.add(step.value[1])
                    step.gate.set_exception(MODEL_ERROR("no"))
                else:
                    step.gate.set_result(step.value)

        self.run(go())

    @precondition(lambda self: len(self.tasks) > 8)
    @rule(how=st.sampled_from(["stop", "drain", *["not yet"] * 6]))
    def end(self, how: str) -> None:
        if how == "not yet":
            return

        async def go() -> None:
            self.free = True
            work: Any = self.server.stop() if how == "stop" else self.server.drain(timeout=0.2)
            self.beside.append(asyncio.create_task(work))
            await turns(12)
            for step in list(self.steps):
                if step.kind != "call" and not step.gate.done():
                    step.gate.set_result(step.value)

        self.run(go())

    # -- what must hold ------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        self.free = True

        async def finish() -> None:
            stop = asyncio.create_task(self.server.stop())
            while not stop.done():
                await turns(4)
                for step in list(self.steps):
                    if step.kind == "unload" and not step.gate.done():
                        step.gate.set_result(None)
            await stop

        self.run(asyncio.wait_for(finish(), LIMIT))
        for task in (*self.beside, *self.swaps):
            self.run(asyncio.wait([task], timeout=LIMIT))
            assert task.done()

    def check(self) -> None:
        for number, task in self.tasks.items():
            if not task.cancelled() and isinstance(task.exception(), MODEL_ERROR):
                assert number in self.raised, "a request failed because of a swap"
        for swap in self.swaps:
            error = None if swap.cancelled() else swap.exception()
            assert error is None or isinstance(error, SWAP_ENDS), error
        assert self.wrong == []
        assert not self.steps
        assert not any(self.loaded.values()), "a model that was never unloaded"


TestSwaps = SwapMachine.TestCase
TestSwaps.settings = machine_settings(100)
