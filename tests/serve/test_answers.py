"""A pipeline served to OpenAI's client: citations, streams, and a device that is lost under load."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests import lazily

import callboard as cb
from callboard.serve import App, EdgeLimits, add_answers, listening

for _package in ("starlette", "uvicorn"):
    lazily.importorskip(_package, reason="for the extra serve")
openai: Any = lazily.importorskip("openai", reason="OpenAI's client is not installed")

TIMEOUT = 180.0
"""Bounds of a test, of a request and of a host's start: a busy machine may take a tenth of them."""
DOCUMENTS = [
    cb.Document("loss.md", "# Loss\n\nA lost context fails its arrays.\n"),
    cb.Document("queues.md", "# Queues\n\nA full queue refuses requests at once.\n"),
    cb.Document("units.md", "# Größe\n\nEin Kontext heißt Generation – immer. 👍\n"),
]


@pytest.fixture(autouse=True, scope="module")
def client_is_imported() -> None:
    """Its import takes seconds, more on a busy machine: not on the loop that the server shares, nor in a limit."""
    openai.AsyncOpenAI(base_url="http://localhost", api_key="none").chat  # noqa: B018


class Letters(cb.ResidentActor):
    def embed(self, texts: list[str]) -> Any:
        return np.array([[1 + text.lower().count(letter) for letter in "abcdefghijklmnop"] for text in texts], "f4")


def answering(isolation: str) -> App:
    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            device: Any = await stack.enter_async_context(cb.device("cpu", isolation=isolation, max_restarts=None))
            actor = device.actor_of(cb.Props(Letters))
            docs = await stack.enter_async_context(cb.RagPipeline(partial(actor.call, Letters.embed)))
            await docs.ingest(DOCUMENTS)
            add_answers(app, "docs", docs, device=device, top_k=1)
            yield

    # A busy machine may take long to start the next host: requests wait for it.
    return App(lifespan=lifespan, limits=EdgeLimits(ready_timeout=TIMEOUT))


@asynccontextmanager
async def asking(app: App) -> AsyncIterator[Any]:
    async with (
        listening(app, port=0) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=TIMEOUT) as client,
        asyncio.timeout(TIMEOUT),
    ):
        yield client


def question(text: str, **options: Any) -> dict[str, Any]:
    return {"model": "docs", "messages": [{"role": "user", "content": text}], **options}


@pytest.mark.timeout(TIMEOUT + 10, func_only=True)
async def test_answers_have_citations_whole_and_streamed() -> None:
    expected = "A full queue refuses requests at once. [1]\n\n[1] queues.md:3 Queues"
    async with asking(answering("thread")) as client:
        whole = await client.chat.completions.create(**question("What does a full queue refuse?"))
        assert whole.choices[0].message.content == expected
        assert whole.choices[0].finish_reason == "stop"
        assert whole.usage.completion_tokens == len(expected.split())
        stream = await client.chat.completions.create(**question("What does a full queue refuse?", stream=True))
        pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
        assert "".join(pieces) == expected
        assert len(pieces) > 2
        other = await client.chat.completions.create(**question("Was heißt Generation?"))
        assert other.choices[0].message.content.startswith("Ein Kontext heißt Generation – immer. 👍 [1]")
        plain = await client.completions.create(model="docs", prompt="What does a full queue refuse?", max_tokens=3)
        assert (plain.choices[0].text, plain.choices[0].finish_reason) == ("A full queue", "length")
        for wrong in ([{"role": "assistant", "content": "hi"}], [{"role": "user", "content": " "}]):
            with pytest.raises(openai.BadRequestError):
                await client.chat.completions.create(model="docs", messages=wrong)
        with pytest.raises(openai.BadRequestError, match="no vocabulary"):
            await client.completions.create(model="docs", prompt=[5, 6])


@pytest.mark.fault
@pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only")
@pytest.mark.timeout(TIMEOUT + 10, func_only=True)
async def test_a_host_that_is_killed_under_load_fails_no_request() -> None:
    app, each = answering("process"), 6
    async with asking(app) as client:
        device: Any = app.models["docs"].device
        under_way, killed = asyncio.Event(), asyncio.Event()

        async def ask(number: int) -> None:
            for turn in range(each):
                asked = question(f"What does a full queue refuse? ({number} {turn})")  # no vector of it is kept
                answer = await client.chat.completions.create(**asked)
                assert "[1] queues.md:3 Queues" in answer.choices[0].message.content
                under_way.set()
                if turn == each - 2:  # the last question comes after the loss
                    await killed.wait()

        async with asyncio.TaskGroup() as clients:  # a client that fails ends the wait for the first answer
            for number in range(8):
                clients.create_task(ask(number))
            await under_way.wait()
            os.kill(device.health().host_pid, signal.SIGKILL)
            killed.set()
        assert device.health().restarts == 1
