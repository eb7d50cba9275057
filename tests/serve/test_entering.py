"""Requests of many items: they enter the queue as it has room."""

import asyncio
from typing import Any

import pytest
from serve_lab import TIMEOUT, client_of

import callboard as cb
from callboard.core.errors import MailboxFull
from callboard.patterns.requests.errors import QueueFull
from callboard.serve import App, EdgeLimits
from callboard.serve.chains.entering import AT_ONCE, as_room_comes
from callboard.serve.errors import refusal_of


async def test_more_inputs_than_an_idle_queue_holds() -> None:
    async def lengths(texts: list[str]) -> list[list[float]]:
        return [[float(len(text))] for text in texts]

    app = App()
    app.add_embeddings("m", cb.DynamicBatchingServer(lengths, max_batch=8, max_queue=8))
    texts = ["x" * (1 + n % 7) for n in range(2048)]
    async with asyncio.timeout(TIMEOUT), client_of(app) as http:
        found = await http.post("/v1/embeddings", json={"model": "m", "input": texts})
    assert found.status_code == 200, found.text
    assert [each["embedding"] for each in found.json()["data"]] == [[float(len(text))] for text in texts]


async def test_one_that_finds_the_queue_full_of_others_is_refused_and_one_that_fails_cancels_the_rest() -> None:
    async def full(item: int) -> int:
        raise QueueFull("full", limit=1, depth=1)

    with pytest.raises(QueueFull):
        await as_room_comes(full, range(4))

    ended: list[int] = []

    async def fails(item: int) -> int:
        try:
            await asyncio.sleep(0 if item == 3 else TIMEOUT)
        finally:
            ended.append(item)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await as_room_comes(fails, range(300))
    assert sorted(ended) == list(range(AT_ONCE))


def test_what_can_never_fit_is_no_429() -> None:
    never: Any = MailboxFull("larger than all that may be staged")
    assert refusal_of(never).status == 429
    never.retryable = False
    assert (refusal_of(never).status, refusal_of(never).retry_after) == (413, None)


async def test_room_that_others_leave_is_used() -> None:
    """The first items find room for one; later ones for as many as there are."""
    room, running, most = 1, 0, 0

    async def limited(item: int) -> int:
        nonlocal room, running, most
        if running >= room:
            raise QueueFull("full", limit=room, depth=running)
        running += 1
        most = max(most, running)
        try:
            await asyncio.sleep(0)
        finally:
            running -= 1
        room = 1000
        return item

    assert await as_room_comes(limited, range(600)) == list(range(600))
    assert most > 16


async def test_the_time_limit_of_a_request_is_that_of_all_its_items() -> None:
    limits: list[float] = []

    class Server(cb.DynamicBatchingServer[str, list[float]]):
        async def submit(self, item: str, **options: Any) -> list[float]:
            limits.append(options["timeout"])
            return await super().submit(item, **options)

    app = App(limits=EdgeLimits(request_timeout=100.0))
    app.add_embeddings("m", Server(lambda texts: [[1.0]] * len(texts), max_batch=8, executor="loop"))
    async with asyncio.timeout(TIMEOUT), client_of(app) as http:
        found = await http.post("/v1/embeddings", json={"model": "m", "input": ["x"] * 300})
    assert found.status_code == 200
    assert limits == sorted(limits, reverse=True)
    assert limits[-1] < limits[0] <= 100.0
