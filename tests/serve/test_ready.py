"""Ready means that every model could answer now: also while the ``setup`` of a resident actor runs behind it."""

import asyncio
import functools
import queue
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from serve_lab import TIMEOUT, X, Y, client_of, request_of, until

import callboard as cb
from callboard.serve import App, EdgeLimits

Gate = queue.SimpleQueue[str]

INFER = "/v2/models/m/infer"


class Slow(cb.ResidentActor):
    """Each ``setup`` ends when the test says so; with an error, if it gives a text."""

    def __init__(self, gate: "Gate") -> None:
        self.gate = gate

    def setup(self, ctx: cb.HostContext) -> None:
        text = self.gate.get()
        if text:
            raise ValueError(text)

    def double(self, x: Any) -> Any:
        return 2 * x

    def doubles(self, items: list[Any]) -> list[Any]:
        return [2 * x for x in items]


class Holder:
    """A user's object that is the model."""

    def __init__(self, ref: Any) -> None:
        self.ref = ref

    async def __call__(self, x: Any) -> Any:
        return await self.ref.call(Slow.double, x)

    async def method(self, x: Any) -> Any:
        return await self.ref.call(Slow.double, x)


def closure(ref: Any) -> Any:
    async def model(x: Any) -> Any:
        return await ref.call(Slow.double, x)

    return model


MODELS: dict[str, Callable[[Any], Any]] = {
    "partial": lambda ref: functools.partial(ref.call, Slow.double),
    "partial with a limit": lambda ref: functools.partial(ref.with_timeout(60.0).call, Slow.double),
    "closure": closure,
    "object": Holder,
    "method of an object": lambda ref: Holder(ref).method,
    "batching": lambda ref: cb.DynamicBatchingServer[Any, Any](functools.partial(ref.call, Slow.doubles)),
    "version": lambda ref: cb.ModelVersion("1", lambda: functools.partial(ref.call, Slow.double)),
}


@asynccontextmanager
async def gated(make: Callable[[Any], Any], **options: Any) -> AsyncIterator[Any]:
    """A client of an app whose model's actor waits in ``setup``, and the function that lets it go."""
    gate: Gate = queue.SimpleQueue()

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        async with cb.device("cpu", isolation="thread") as device:
            app.add_model("m", make(device.actor_of(cb.Props(Slow, gate), name="slow")), inputs=X, outputs=Y)
            yield

    async with asyncio.timeout(TIMEOUT), client_of(App(lifespan=lifespan, **options)) as http:
        try:
            yield http, gate.put
        finally:
            gate.put("")  # of a test that has failed: the device ends when the actor does


@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind != "version"])
async def test_ready_waits_for_the_setup_of_the_actor(kind: str) -> None:
    async with gated(MODELS[kind]) as (http, go):
        found = await http.get("/v2/health/ready")
        assert (found.status_code, found.json()["error"]) == (503, "the actor 'slow' of model 'm' is starting")
        assert (await http.get("/v2/models/m/ready")).status_code == 503
        assert (await http.get("/v2/health/live")).status_code == 200
        asking = asyncio.create_task(http.post(INFER, json=request_of([1.0])))
        go("")
        assert (await asking).json()["outputs"][0]["data"] == [2.0]
        assert (await http.get("/v2/health/ready")).status_code == 200


async def test_a_setup_that_fails_for_good_is_the_reason_why_the_model_is_not_ready() -> None:
    async with gated(MODELS["batching"]) as (http, go):
        asking = asyncio.create_task(http.post(INFER, json=request_of([1.0])))
        for _ in range(4):  # the first, and three restarts
            go("no weights")
        found = await asking
        assert (found.status_code, "retry-after" in found.headers) == (503, False)
        assert found.json()["error"].startswith("the actor 'slow' of model 'm' is stopped")
        found = await http.get("/v2/health/ready")
        reason = "the actor 'slow' of model 'm' is stopped"  # why is in the log
        assert (found.status_code, found.json()["error"]) == (503, reason)
        (entry,) = (await http.post("/v2/repository/index")).json()
        assert (entry["state"], entry["reason"]) == ("UNAVAILABLE", reason)
        found = await http.get("/v2/health/live")  # it does not come back: start the process again
        assert (found.status_code, found.json()["error"]) == (503, "the actor 'slow' of model 'm' has stopped")


async def test_a_request_waits_for_the_setup_at_most_as_for_a_device() -> None:
    async with gated(MODELS["partial"], limits=EdgeLimits(ready_timeout=0.01)) as (http, _):
        found = await http.post(INFER, json=request_of([1.0]))
        assert (found.status_code, found.headers["retry-after"]) == (503, "1")
        assert "is starting; the request waited 0.01 s" in found.json()["error"]


async def test_a_version_gets_no_request_before_its_actor_is_set_up() -> None:
    """Neither the first one, nor one that is swapped in."""
    gate: Gate = queue.SimpleQueue()
    async with asyncio.timeout(TIMEOUT), cb.device("cpu", isolation="thread") as device:
        ref = device.actor_of(cb.Props(Slow, gate))
        old = cb.ModelVersion("1", lambda: lambda x: x)
        async with cb.ModelHotSwapServer[Any, Any](old) as server:
            swap = asyncio.create_task(server.swap(cb.ModelVersion("2", lambda: MODELS["partial"](ref))))
            try:
                await until(lambda: "2" in {each.version for each in server.versions()})
                assert await server.submit(3) == cb.HotSwapReply(3, "1")
            finally:
                gate.put("")
            await swap
            assert await server.submit(3) == cb.HotSwapReply(6, "2")
