"""A real model under real clients: MiniLM in a context host that is killed, reloaded and overloaded meanwhile."""

import asyncio
import contextlib
import importlib.util
import os
import signal
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
from serve_lab import Tally

import callboard as cb
from callboard.serve import App, listening
from callboard.serve.bundled.demo import MODEL, demo_app, tenant_of
from callboard.serve.bundled.minilm import MiniLM, engine_of, reference
from callboard.serve.bundled.weights import model_folder
from callboard.serve.bundled.wordpiece import MAX_TOKENS, Tokens

openai = pytest.importorskip("openai", reason="for the extra test")

try:
    FOLDER = model_folder()
except cb.BackendUnavailable as e:
    pytest.skip(str(e), allow_module_level=True)

pytestmark = [pytest.mark.timeout(120)]
TIMEOUT = 100.0
CLIENTS = 8
TEXTS, VECTORS = reference()
SHORT = 5
"""The first texts, which cost least."""
Answers = Callable[[int], Awaitable[None]]
"""Waits for so many further answers."""


@asynccontextmanager
async def demo() -> AsyncIterator[tuple[App, str]]:
    app = demo_app("cpu")
    async with asyncio.timeout(TIMEOUT), listening(app, port=0) as url:
        yield app, url


@asynccontextmanager
async def clients(url: str, *keys: str) -> AsyncIterator[list[Any]]:
    """Clients that repeat nothing: what ends in an error is seen."""
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                openai.AsyncOpenAI(api_key=key, base_url=f"{url}/v1", max_retries=0, timeout=TIMEOUT)
            )
            for key in keys
        ]


async def vectors(client: Any, texts: list[Any]) -> Any:
    found = await client.embeddings.create(model=MODEL, input=texts)
    return np.array([each.embedding for each in found.data])


async def drive(url: str, meanwhile: Callable[[Answers], Awaitable[None]]) -> tuple[int, list[Exception]]:
    """Clients of both tenants that ask until ``meanwhile`` has ended; how many answers were right, and the errors."""
    over = asyncio.Event()
    right = Tally()
    errors: list[Exception] = []

    async def ask(client: Any, at: int) -> None:
        while not over.is_set():
            chosen = [(at + k) % SHORT for k in range(1 + at % 3)]
            try:
                found = await vectors(client, [TEXTS[i] for i in chosen])
            except openai.APIError as e:
                errors.append(e)
            else:
                np.testing.assert_allclose(found, VECTORS[chosen], atol=1e-5)
                right.add()
            at += 1

    async with clients(url, *("free", "paid") * (CLIENTS // 2)) as asking, asyncio.TaskGroup() as group:
        for at, client in enumerate(asking):
            group.create_task(ask(client, at))
        try:
            await meanwhile(lambda more: right.reached(right.count + more))
        finally:
            over.set()
    return right.count, errors


def device_of(app: App) -> cb.Device:
    device = app.models[MODEL].device
    assert device is not None
    return device


async def kill(device: cb.Device) -> None:
    """Kill the host, and wait until another one has taken over."""
    generation, pid = device.generation, device.health().host_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await device.watch_generation().changed(generation)


async def test_openai_client_gets_the_reference_vectors() -> None:
    tokens = Tokens(FOLDER)
    async with demo() as (_, url), clients(url, "paid") as (client,):
        np.testing.assert_allclose(await vectors(client, TEXTS), VECTORS, atol=1e-5)
        np.testing.assert_allclose(await vectors(client, [tokens(each) for each in TEXTS]), VECTORS, atol=1e-5)
        found = await client.embeddings.create(model=MODEL, input=TEXTS[0])
        assert found.usage.total_tokens == len(tokens(TEXTS[0]))
        for wrong, says in (([[10**6]], "1000000 is not a token"), ([[5] * (MAX_TOKENS + 1)], "takes 1 to 256")):
            with pytest.raises(openai.BadRequestError, match=says):
                await vectors(client, wrong)


@pytest.mark.fault
@pytest.mark.slow
async def test_every_request_ends_while_the_device_is_killed_and_the_model_replaced() -> None:
    async with demo() as (app, url):

        async def meanwhile(answers: Answers) -> None:
            await answers(20)
            await kill(device_of(app))
            await answers(10)
            await swap(app, url)
            await answers(10)
            await kill(device_of(app))
            await answers(20)

        right, errors = await drive(url, meanwhile)
        model = app.models[MODEL]
        server: Any = model.server
        stats = server.stats()
        assert device_of(app).health().restarts == 2
    assert not errors  # each was run again by the server
    assert right >= 60
    assert (stats.queued, stats.running) == (0, 0)
    assert stats.submitted == stats.completed
    assert set(stats.tenants) == {"free", "paid"}


async def swap(app: App, url: str) -> None:
    """Have the model loaded anew, as a client does."""
    before: Any = app.models[MODEL].chain.last
    async with openai.AsyncOpenAI(api_key="paid", base_url=url, max_retries=0) as control:
        await control.post(f"/v2/repository/models/{MODEL}/load", body={}, cast_to=object)
    assert app.models[MODEL].chain.last is not before


@pytest.mark.slow
async def test_swaps_while_requests_run() -> None:
    async with demo() as (app, url):

        async def thrice(answers: Answers) -> None:
            for _ in range(3):
                await swap(app, url)
                await answers(10)

        right, errors = await drive(url, thrice)
        actors = (await device_of(app).stats()).residents
    assert not errors
    assert right >= 30
    assert len(actors) == 1  # those of the versions before were stopped


@pytest.mark.fault
@pytest.mark.slow
async def test_tritonclient_while_the_device_is_killed() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what gevent uses, when it is imported
        triton = pytest.importorskip("tritonclient.http", reason="pip install 'tritonclient[http]'")
        gevent = pytest.importorskip("gevent")

    def work(address: str, answered: Callable[[], object]) -> list[Any]:
        client = triton.InferenceServerClient(address, network_timeout=TIMEOUT, connection_timeout=TIMEOUT)
        try:
            text = triton.InferInput("text", [len(TEXTS)], "BYTES")
            text.set_data_from_numpy(np.array(TEXTS, object))
            found = []
            for _ in range(6):
                found.append(client.infer(MODEL, [text]).as_numpy("embedding"))
                answered()
            return found
        finally:
            client.close()
            gevent.get_hub().destroy(destroy_loop=True)  # of this thread

    async with demo() as (app, url):
        loop, begun = asyncio.get_running_loop(), asyncio.Event()
        answered = partial(loop.call_soon_threadsafe, begun.set)
        asking = asyncio.create_task(asyncio.to_thread(work, url.removeprefix("http://"), answered))
        await begun.wait()
        await kill(device_of(app))
        for found in await asking:
            np.testing.assert_allclose(found, VECTORS, atol=1e-5)
        assert device_of(app).health().restarts == 1


@pytest.mark.parametrize("engine", ["onnxruntime", "ops", pytest.param("torch", marks=pytest.mark.slow)])
async def test_each_engine_gives_the_reference_vectors(engine: str) -> None:
    if engine != "ops":
        pytest.importorskip(engine, reason="an engine that is not installed")
    tokens = Tokens(FOLDER)
    texts = [tokens(each) for each in TEXTS[:SHORT]]
    assert len({len(each) for each in texts}) > 2  # some of them are padded
    async with asyncio.timeout(TIMEOUT), cb.device("cpu", isolation="thread") as device:
        model = await device.actor_of(cb.Props(MiniLM, str(FOLDER), engine), wait=True)
        np.testing.assert_allclose(await model.call(MiniLM.embed, texts), VECTORS[:SHORT], atol=1e-5)
        np.testing.assert_allclose(await model.call(MiniLM.embed, texts[:1]), VECTORS[:1], atol=1e-5)


@pytest.mark.parametrize(
    "backend, installed, engine",
    [
        ("cpu", {"onnxruntime", "torch"}, "onnxruntime"),
        ("cpu", {"torch"}, "torch"),
        ("cpu", set(), "ops"),
        ("cuda", {"onnxruntime", "torch"}, "torch"),
        ("cuda", {"onnxruntime"}, "ops"),
    ],
)
def test_the_fastest_engine_that_is_installed(
    backend: str, installed: set[str], engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name in installed else None)
    assert engine_of(backend) == engine


@pytest.mark.parametrize(
    "header, tenant", [("Bearer paid", "paid"), ("Bearer free", "free"), ("Bearer x", "free"), ("paid", "paid")]
)
def test_the_api_key_names_the_tenant(header: str, tenant: str) -> None:
    assert tenant_of({"authorization": header}) == tenant
    assert tenant_of({}) == "free"


@pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="for the extra demo")
def test_the_model_warms_up_and_answers() -> None:
    context: Any = None  # this engine uses none
    model = MiniLM(str(FOLDER), "onnxruntime")
    model.prepare()
    model.warm_up(context)
    assert np.allclose(model.embed([Tokens(FOLDER)(TEXTS[0])]), VECTORS[:1], atol=1e-4)
