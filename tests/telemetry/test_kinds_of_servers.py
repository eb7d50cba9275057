"""The code of every kind of server knows for whom it works: the trace context and the id of the HTTP request."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.events.concerns import REQUEST_ID, TRACE
from callboard.observability import traceparent
from callboard.patterns.requests.server import RequestServer
from callboard.serve.calls import CallServer

LIMIT = 60.0
PARENT = f"00-{'ab' * 16}-{'cd' * 8}-01"

Note = Callable[[], None]


def asynchronous(note: Note) -> Any:
    async def function(given: Any, *_: Any) -> Any:
        await asyncio.sleep(0)
        note()
        return given

    return function


def plain(note: Note) -> Any:
    def function(given: Any, *_: Any) -> Any:
        note()
        return given

    return function


def in_parts(note: Note) -> Any:
    async def function(given: Any, *_: Any) -> Any:
        note()
        yield given
        note()

    return function


def _steps(note: Note) -> Any:
    async def step(slots: list[Any]) -> list[Any]:
        note()
        return [cb.Last(0) for _ in slots]

    return step


def _decoder(note: Note) -> Any:
    def logits(texts: Any, rows: Any) -> Any:
        note()
        return [np.ones((count, 4)) for count in rows]

    return cb.SpeculativeDecoder(cb.Cacheless(logits))


def _stage(note: Note) -> Any:
    async def stage(items: list[Any]) -> list[Any]:
        note()
        return [(item, 1.0) for item in items]

    return stage


SERVERS: dict[str, tuple[Callable[[Note], Any], Any, dict[str, Any]]] = {
    "batching": (lambda note: cb.DynamicBatchingServer(asynchronous(note)), 1, {}),
    "batching on a thread": (lambda note: cb.DynamicBatchingServer(plain(note)), 1, {}),
    "calls": (lambda note: CallServer(asynchronous(note)), (1,), {}),
    "calls that run once": (lambda note: CallServer(asynchronous(note), idempotent=False), (1,), {}),
    "calls on a thread": (lambda note: CallServer(plain(note)), (1,), {}),
    "calls of a generator": (lambda note: CallServer(in_parts(note)), (1,), {}),
    "cascade": (lambda note: cb.InferenceCascade([cb.CascadeStage(_stage(note))]), 1, {}),
    "continuous batching": (lambda note: cb.ContinuousBatchingServer(_steps(note)), 1, {}),
    "fair share": (lambda note: cb.FairShareScheduler(asynchronous(note)), 1, {"tenant": "a"}),
    "hot swap": (
        lambda note: cb.ModelHotSwapServer[Any, Any](cb.ModelVersion("1", lambda: asynchronous(note))),
        1,
        {},
    ),
    "mixture of experts": (
        lambda note: cb.MoeRouter(plain(lambda: None), [plain(note), plain(note)], top_k=1),
        np.ones((1, 2), np.float32),
        {},
    ),
    "replicas": (lambda note: cb.ModelReplicaPool([asynchronous(note)]), 1, {}),
    "sequences": (lambda note: cb.SequenceBatchingServer(plain(note)), 1, {"sequence": 1, "start": True}),
    "speculative": (_decoder, cb.Decode([1], max_new_tokens=1), {}),
}


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind) for kind in SERVERS])
@pytest.mark.few(len(SERVERS))
async def test_the_code_of_a_server_knows_its_request(kind: str) -> None:
    make, item, options = SERVERS[kind]
    heard: list[tuple[str | None, str | None]] = []
    async with asyncio.timeout(LIMIT), cb.System("app") as system:
        async with make(lambda: heard.append((REQUEST_ID.get(), traceparent()))) as server:
            REQUEST_ID.set("one")
            await server.submit(item, **options)  # telemetry is off
            cb.observe(system)
            TRACE.set(PARENT)
            REQUEST_ID.set("two")
            await server.submit(item, **options)
            TRACE.set(None)
            REQUEST_ID.set(None)
            await server.submit(item, **options)
    expected = [("one", None), ("two", PARENT), (None, None)]
    assert list(dict.fromkeys(heard)) == expected


async def test_a_batch_of_several_requests_has_the_id_that_all_have() -> None:
    heard: list[str | None] = []

    async def work(items: list[int]) -> list[int]:
        heard.append(REQUEST_ID.get())
        return items

    async def asked(server: Any, name: str | None) -> None:
        REQUEST_ID.set(name)
        await server.submit(0)

    async with cb.DynamicBatchingServer(work, max_batch=2, max_wait=LIMIT) as server:
        for pair in (("one", "one"), ("one", "two"), (None, "one"), ("one", None), ("two", "two")):
            await asyncio.gather(*(asyncio.create_task(asked(server, name)) for name in pair))
    assert heard == ["one", None, None, None, "two"]


def test_each_kind_of_server_is_here() -> None:
    def kinds(of: type[Any]) -> set[type[Any]]:
        return {of, *(kind for each in of.__subclasses__() for kind in kinds(each))}

    made = {type(make(lambda: None)) for make, _, _ in SERVERS.values()}  # which imports them all
    public = {kind for kind in kinds(RequestServer) if kind.__module__.startswith("callboard.")}
    usable = {kind for kind in public if not kind.__abstractmethods__}
    assert usable == made
