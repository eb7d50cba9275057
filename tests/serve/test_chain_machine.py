"""Any schedule of requests, loads and unloads: each request ends once, and every loaded model is unloaded."""

import asyncio
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from serve_lab import TIMEOUT, X, Y

import callboard as cb
from callboard.serve import App, NotReady

STEPS = ["ask", "ask", "ask", "cancel", "load", "load that fails", "unload", "let one go", "wait"]


class World:
    """An app with a model whose calls are held, and what has become of all that was asked of it."""

    def __init__(self) -> None:
        self.loads = 0
        self.loaded: set[int] = set()
        self.most = 0
        self.fails = 0
        self.held: list[asyncio.Event] = []
        self.released = False
        self.tasks: list[asyncio.Task[Any]] = []

    async def load(self) -> Any:
        await asyncio.sleep(0)
        if self.fails:
            self.fails -= 1
            raise FileNotFoundError("no weights")
        self.loads += 1
        number = self.loads
        self.loaded.add(number)
        self.most = max(self.most, len(self.loaded))

        async def model(x: Any) -> Any:
            assert number in self.loaded
            if not self.released:
                self.held.append(asyncio.Event())
                await self.held[-1].wait()
            assert number in self.loaded  # it is not unloaded while a request runs on it
            return np.full(1, number, np.float32)

        model.number = number  # type: ignore[attr-defined] -- for unload
        return model

    def unload(self, model: Any) -> None:
        self.loaded.remove(model.number)

    async def step(self, app: App, step: str) -> None:
        model: Any = app.models["m"]
        match step:
            case "ask":
                self.tasks.append(asyncio.create_task(ask(model), name="ask"))
            case "cancel" if asking := [task for task in self.tasks if task.get_name() == "ask" and not task.done()]:
                asking[-1].cancel()
            case "load":
                self.tasks.append(asyncio.create_task(model.chain.load(), name="load"))
            case "load that fails":
                self.fails += 1
                self.tasks.append(asyncio.create_task(model.chain.load(), name="load"))
            case "unload":
                self.tasks.append(asyncio.create_task(model.chain.unload(TIMEOUT), name="unload"))
            case "let one go" if self.held:
                self.held.pop(0).set()
            case "wait":
                for _ in range(10):
                    await asyncio.sleep(0)

    def let_all_go(self) -> None:
        self.released = True
        for each in self.held:
            each.set()


async def ask(model: Any) -> float:
    model.check_ready()
    found = await model.infer((np.ones(1, np.float32),), timeout=None, priority=0)
    return float(found["y"][0])


async def run(steps: list[str], tenants: Any) -> None:
    world = World()
    app = App()
    version = cb.ModelVersion("1", world.load, unload=world.unload)
    app.add_model("m", version, inputs=X, outputs=Y, concurrency=2, tenants=tenants)
    async with asyncio.timeout(TIMEOUT), app.running():
        for step in steps:
            await world.step(app, step)
            await asyncio.sleep(0)
        world.let_all_go()
        ends = await asyncio.gather(*world.tasks, return_exceptions=True)
        chain = app.models["m"].chain
        assert len(world.loaded) == (0 if chain.unloaded else 1)
        stats = app.models["m"].stats()
        assert (stats.queued, stats.running, stats.blocked) == (0, 0, 0)
    assert world.loaded == set()
    assert world.most <= 2
    for task, end in zip(world.tasks, ends, strict=True):
        if task.get_name() == "ask":
            fine = isinstance(end, float | asyncio.CancelledError | NotReady | cb.ServerStopped)
        else:
            fine = end is None or isinstance(end, cb.SwapFailed)
        assert fine, (task.get_name(), end)


@settings(max_examples=60)
@given(st.lists(st.sampled_from(STEPS), max_size=24), st.sampled_from([None, {"a": 1.0}]))
def test_any_schedule(steps: list[str], tenants: Any) -> None:
    asyncio.run(run(steps, tenants))
