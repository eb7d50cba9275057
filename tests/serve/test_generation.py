"""Text generation with the client of OpenAI, and under the Open Inference Protocol."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from generation_lab import EOS, Writer, decode, encode, logits, writing
from serve_lab import TIMEOUT, client_of, small_app, until
from tests import lazily

import callboard as cb
from callboard.actors import ManualClock
from callboard.serve import App, EdgeLimits, listening

openai = lazily.importorskip("openai", reason="for the extra test")


@asynccontextmanager
async def asking(app: App) -> AsyncIterator[Any]:
    """OpenAI's client, against the app on a real port."""
    async with (
        listening(app, port=0) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=TIMEOUT) as client,
        asyncio.timeout(TIMEOUT),
    ):
        yield client


async def test_completions() -> None:
    async with asking(writing(Writer())) as client:
        found = await client.completions.create(model="writer", prompt="äbc", max_tokens=64)
        assert (found.object, found.model, len(found.choices)) == ("text_completion", "writer", 1)
        assert (found.choices[0].text, found.choices[0].finish_reason) == ("cb\ufffd\ufffd", "stop")
        assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.total_tokens) == (4, 5, 9)
        tokens = await client.completions.create(model="writer", prompt=[97, 98])
        assert tokens.choices[0].text == "ba"
        cut = await client.completions.create(model="writer", prompt="abcd", max_tokens=2)
        assert (cut.choices[0].text, cut.choices[0].finish_reason) == ("dc", "length")
        counted = await client.completions.create(model="counter", prompt="w", max_tokens=9)
        assert (counted.choices[0].text, counted.choices[0].finish_reason) == ("xyz", "stop")
        assert {each.id async for each in client.models.list()} == {"writer", "counter"}


async def test_completions_as_a_stream() -> None:
    async with asking(writing(Writer())) as client:
        stream = await client.completions.create(
            model="writer", prompt="abc", stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    assert [chunk.choices[0].text for chunk in chunks[:-1]] == ["c", "b", "a", ""]
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None, None, None, "stop"]
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 4


async def test_chat() -> None:
    messages = [{"role": "system", "content": "x"}, {"role": "user", "content": "hi"}]
    async with asking(writing(Writer())) as client:
        found = await client.chat.completions.create(model="writer", messages=messages)
        backwards = "ih>resu<x>metsys<"
        assert (found.object, found.choices[0].message.role) == ("chat.completion", "assistant")
        assert (found.choices[0].message.content, found.choices[0].finish_reason) == (backwards, "stop")
        stream = await client.chat.completions.create(
            model="writer", messages=messages, stream=True, max_completion_tokens=4
        )
        chunks = [chunk async for chunk in stream]
        assert chunks[0].choices[0].delta.role == "assistant"
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "ih>r"
        assert [chunk.choices[0].finish_reason for chunk in chunks][-2:] == [None, "length"]
        assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
        with pytest.raises(openai.NotFoundError, match="no chat template"):
            await client.chat.completions.create(model="counter", messages=messages)
        with pytest.raises(openai.BadRequestError, match="do not fit the chat template"):
            await client.chat.completions.create(model="writer", messages=[{"role": "user"}])
        with pytest.raises(openai.BadRequestError, match="messages is empty"):
            await client.chat.completions.create(model="writer", messages=[])


@pytest.mark.parametrize("stream", [False, True])
async def test_stop_strings_end_the_text_and_the_decoding(stream: bool) -> None:
    writer = Writer()
    app = writing(writer)
    async with asking(app) as client:
        found = await client.completions.create(
            model="writer", prompt="x" * 40 + "DNE ab", max_tokens=60, stop=["END", "never"], stream=stream
        )
        if stream:
            chunks = [chunk async for chunk in found]
            text, finish = "".join(chunk.choices[0].text for chunk in chunks), chunks[-1].choices[0].finish_reason
        else:
            text, finish = found.choices[0].text, found.choices[0].finish_reason
        assert (text, finish) == ("ba ", "stop")
        await until(lambda: app.models["writer"].stats().completed == 1)
    assert writer.steps < 40
    assert (app.models["writer"].failures, app.models["writer"].stats().cancelled) == (0, 0)


class Endless(Writer):
    """It says "ab" for ever, whatever its item asks for."""

    def after(self, slot: Any) -> Any:
        return b"ab"[len(slot.parts) % 2]


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "tenants"])
async def test_texts_that_the_edge_ends_are_completed(shared: bool) -> None:
    async with cb.ContinuousBatchingServer[cb.Decode, int](Endless()) as server:
        front = cb.FairShareScheduler[cb.Decode, Any](server.stream) if shared else server
        app = App()
        app.add_decoder("m", front, encode=encode, decode=decode, eos=ord("b"))
        app.add_decoder("endless", front, encode=encode, decode=decode)
        async with client_of(app) as http:
            for model, options in (("m", {}), ("endless", {"stop": "ba"}), ("endless", {"max_tokens": 3})):
                for stream in (False, True):
                    body = {"model": model, "prompt": "x", "stream": stream, **options}
                    assert (await http.post("/v1/completions", json=body)).status_code == 200
            await until(lambda: not server.stats().running)
            assert (server.stats().completed, server.stats().cancelled) == (6, 0)
            assert (front.stats().completed, front.stats().cancelled) == (6, 0)


async def test_seed_and_temperature_reach_the_decoder() -> None:
    writer = Writer()
    async with asking(writing(writer)) as client:
        await client.completions.create(model="writer", prompt="a", temperature=0.5, seed=7)
        await client.completions.create(model="writer", prompt="a")
    assert [(item.temperature, item.seed) for item in writer.items] == [(0.5, 7), (0.0, None)]


@pytest.mark.parametrize(
    "options, says",
    [
        ({"n": 129}, "Expected `int` <= 128"),
        ({"n": 0}, "Expected `int` >= 1"),
        ({"best_of": 3}, "best_of is 3, but only 1 is supported"),
        ({"logprobs": 2}, "logprobs is 2, but only False is supported"),
        ({"top_p": 0.5}, "top_p is 0.5"),
        ({"logit_bias": {"5": 1}}, "logit_bias is"),
        ({"max_tokens": 0}, "max_tokens must be from 1 to 64"),
        ({"max_tokens": 65}, "max_tokens must be from 1 to 64, but is 65"),
        ({"temperature": -1}, "temperature must be a number of at least 0"),
        ({"prompt": ""}, "the prompt has no tokens; give at least one"),
        ({"prompt": ["a", [1]]}, "not empty or mixed"),
        ({"prompt": []}, "not empty or mixed"),
        ({"stop": ["a", ""]}, "stop has an empty string"),
        ({"suffix": "x"}, "suffix is 'x'"),
        ({"extra_body": {"guided_regex": "a"}}, "unknown field `guided_regex`"),
    ],
)
async def test_requests_that_are_refused(options: Any, says: str) -> None:
    async with asking(writing(Writer())) as client:
        with pytest.raises(openai.BadRequestError) as e:
            await client.completions.create(**{"model": "writer", "prompt": "a", **options})
    assert says in e.value.body["message"]


NEUTRAL: dict[str, Any] = {
    "n": 1,
    "top_p": 1,
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "logit_bias": {},
    "seed": None,
    "stop": None,
    "stream": False,
    "stream_options": None,
    "temperature": None,
    "user": "u",
    "store": False,
    "metadata": {"a": "b"},
    "service_tier": "auto",
    "response_format": {"type": "text"},
}
OF_CHAT: dict[str, Any] = {
    **dict.fromkeys(("top_logprobs", "functions", "max_tokens", "reasoning_effort", "prediction", "audio")),
    "logprobs": False,
    "tools": [],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "function_call": "none",
    "modalities": ["text"],
}
OF_COMPLETIONS = {"best_of": 1, "echo": False, "logprobs": None, "suffix": None}


async def test_neutral_values_are_accepted() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]}]
    prompts = {"messages": messages, **OF_CHAT}, {"prompt": "a", **OF_COMPLETIONS}
    paths = ("/v1/chat/completions", "/v1/completions")
    async with client_of(writing(Writer())) as http:
        for path, body in zip(paths, prompts, strict=True):
            for more in ({}, dict.fromkeys(NEUTRAL)):
                found = await http.post(path, json={"model": "writer", **body, **NEUTRAL, **more})
                assert found.status_code == 200, found.text
                if path == "/v1/chat/completions":
                    assert found.json()["choices"][0]["message"]["content"].startswith("ih>")


@pytest.mark.parametrize(
    "options",
    [
        {"response_format": {"type": "json_object"}},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"tool_choice": "required"},
        {"logprobs": True},
        {"top_p": 0.5},
        {"presence_penalty": 1},
        {"reasoning_effort": "high"},
    ],
)
async def test_parameters_reach_a_model_that_takes_them(options: dict[str, Any]) -> None:
    (name,) = options
    writer, told = Pairs(), []

    def template(messages: list[dict[str, Any]], tools: Any = None) -> str:
        told.append(tools)
        return str(messages[0]["content"])

    app = writing(Writer())
    server = cb.ContinuousBatchingServer[cb.Decode, Any](writer)
    app.add_decoder("taker", server, encode=encode, decode=decode, eos=EOS, chat=template, takes={name})
    async with client_of(app) as http:
        body = {"messages": [{"role": "user", "content": "ab"}], **options}
        found = await http.post("/v1/chat/completions", json={"model": "taker", **body})
        refused = await http.post("/v1/chat/completions", json={"model": "writer", **body})
    assert (refused.status_code, refused.json()["error"]["message"].startswith(f"{name} is ")) == (400, True)
    assert found.json()["choices"][0]["message"]["content"] == "ba"
    assert writer.items[0].parameters == options
    assert told == [options.get("tools")]


class Pairs(Writer):
    """Its tokens come with log probabilities, where they are asked for."""

    def after(self, slot: Any) -> Any:
        part = super().after(slot)
        if not slot.item.parameters.get("logprobs"):
            return part
        if isinstance(part, cb.Last):
            return cb.Last((part.part, -0.5))
        return part, -0.5, {part: -0.5, ord("q"): -2.0}


async def test_log_probabilities() -> None:
    app, server = writing(Writer()), cb.ContinuousBatchingServer[cb.Decode, Any](Pairs())
    app.add_decoder("pairs", server, encode=encode, decode=decode, eos=EOS, chat=lambda _: "ab", takes=["logprobs"])
    lazy = cb.ContinuousBatchingServer[cb.Decode, Any](Writer())
    app.add_decoder("lazy", lazy, encode=encode, decode=decode, eos=EOS, takes=["logprobs"])
    async with asking(app) as client:
        asked = {"model": "pairs", "messages": [{"role": "user", "content": "x"}], "logprobs": True}
        found = await client.chat.completions.create(**asked)
        content = found.choices[0].logprobs.content
        assert [(each.token, each.logprob, each.bytes) for each in content] == [("b", -0.5, [98]), ("a", -0.5, [97])]
        assert [each.token for each in content[0].top_logprobs] == ["b", "q"]
        stream = await client.chat.completions.create(**asked, stream=True)
        chunks = [chunk.choices[0].logprobs async for chunk in stream]
        assert [each.token for chunk in chunks if chunk for each in chunk.content or ()] == ["b", "a"]
        listed = (await client.completions.create(model="pairs", prompt="ab", logprobs=1)).choices[0].logprobs
        assert (listed.tokens, listed.token_logprobs) == (["b", "a"], [-0.5, -0.5])
        plain = await client.completions.create(model="pairs", prompt="ab")
        assert (plain.choices[0].text, plain.choices[0].logprobs) == ("ba", None)
        with pytest.raises(openai.InternalServerError, match="something else than it declares"):
            await client.completions.create(model="lazy", prompt="ab", logprobs=1)


async def test_several_texts_enter_the_queue_as_it_has_room() -> None:
    writer = Writer()
    app = writing(writer)  # two run, and two wait
    async with asking(app) as client:
        asked = {"model": "writer", "prompt": ["ab", "cd", "ef"], "n": 3, "seed": 5}
        found = await client.completions.create(**asked)
        texts = ["ba"] * 3 + ["dc"] * 3 + ["fe"] * 3
        assert [choice.text for choice in found.choices] == texts
        assert [choice.index for choice in found.choices] == list(range(9))
        assert {choice.finish_reason for choice in found.choices} == {"stop"}
        assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (6, 27)
        assert {item.seed for item in writer.items} == {5, 6, 7}
        streamed, ends = [""] * 9, [0] * 9
        async for chunk in await client.completions.create(**asked, stream=True):
            (choice,) = chunk.choices
            streamed[choice.index] += choice.text
            ends[choice.index] += choice.finish_reason == "stop"
        assert (streamed, ends) == (texts, [1] * 9)
        writer.fails_after = writer.steps + 1
        for stream in (False, True):
            with pytest.raises(openai.APIError, match="the model failed"):
                await all_texts(await client.completions.create(**asked, stream=stream), [])
        await until(lambda: not app.models["writer"].stats().running)


async def test_a_prompt_that_never_fits() -> None:
    app = App()
    decoder = cb.SpeculativeDecoder(cb.Cacheless(logits), max_total_tokens=4)
    app.add_decoder("short", decoder, encode=encode, decode=decode)
    server = cb.ContinuousBatchingServer[cb.Decode, int](
        Writer(), cost=lambda item: len(item.prefix), max_batch_cost=4, queue=cb.QueueOptions(max_cost=8)
    )
    app.add_decoder("small", server, encode=encode, decode=decode, eos=EOS)
    async with client_of(app) as http:
        for model in ("short", "small"):
            found = await http.post("/v1/completions", json={"model": model, "prompt": "abcdefghijk"})
            assert (found.status_code, "retry-after" in found.headers) == (413, False)


async def test_a_model_that_does_not_generate() -> None:
    async with client_of(small_app()) as http:
        for path, body in (
            ("/v1/completions", {"model": "double", "prompt": "a"}),
            ("/v2/models/double/generate", {"text_input": "a"}),
        ):
            found = await http.post(path, json=body)
            assert (found.status_code, "does not generate text" in found.text) == (404, True)


async def test_an_error_before_the_first_token_has_its_own_status() -> None:
    writer = Writer()
    writer.fails_after = 0
    async with asking(writing(writer)) as client:
        for stream in (False, True):
            with pytest.raises(openai.InternalServerError, match="the model failed; request "):
                await client.completions.create(model="writer", prompt="abc", stream=stream)


async def all_texts(stream: Any, texts: list[str]) -> None:
    async for chunk in stream:
        texts.append(chunk.choices[0].text)  # noqa: PERF401 -- what came before an error counts


async def test_an_error_in_the_middle_of_a_stream_is_an_event() -> None:
    writer = Writer()
    writer.fails_after = 2
    app = writing(writer)
    async with asking(app) as client:
        stream = await client.completions.create(model="writer", prompt="abc", stream=True)
        texts: list[str] = []
        with pytest.raises(openai.APIError, match="the model failed; request ") as e:
            await all_texts(stream, texts)
    assert texts == ["c", "b"]
    assert (e.value.code, e.value.type) == ("DriverError", "server_error")
    assert app.models["writer"].failures == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_cancels(stream: bool) -> None:
    writer = Writer()
    app = writing(writer)
    async with listening(app, port=0) as url, httpx.AsyncClient(base_url=url) as http, asyncio.timeout(TIMEOUT):
        body = {"model": "writer", "prompt": "x" * 50, "max_tokens": 60, "stream": stream}
        if stream:
            async with http.stream("POST", "/v1/completions", json=body) as response:
                async for _ in response.aiter_lines():
                    writer.go.clear()
                    break
        else:
            writer.go.clear()
            task = asyncio.create_task(http.post("/v1/completions", json=body))
            await until(lambda: app.models["writer"].stats().running)
            task.cancel()
        await until(lambda: app.models["writer"].stats().cancelled)
        await until(lambda: ("/v1/completions", 499) in app.figures.responses)
        writer.go.set()
        await until(lambda: app.models["writer"].stats().running == 0)
    assert writer.steps < 50


def running_and_queued(app: App) -> tuple[int, int]:
    stats = app.models["writer"].stats()
    return stats.running, stats.queued


async def test_a_full_queue_and_a_deadline() -> None:
    writer, clock = Writer(), ManualClock()
    writer.go.clear()
    app = writing(writer, clock, limits=EdgeLimits(request_timeout=5.0))
    async with listening(app, port=0) as url, httpx.AsyncClient(base_url=url) as http, asyncio.timeout(TIMEOUT):
        body = {"model": "writer", "prompt": "abc", "stream": True}
        open_ = []
        for expected in ((2, 0), (2, 2)):
            open_ += [asyncio.create_task(http.post("/v1/completions", json=body)) for _ in range(2)]
            await until(lambda: running_and_queued(app) == expected)  # noqa: B023 -- waited for in this turn of the loop
        refused = await http.post("/v1/completions", json=body)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        clock.advance(5.0)
        assert {(await task).status_code for task in open_} == {504}
        writer.go.set()


async def test_generate() -> None:
    async with client_of(writing(Writer())) as http:
        body = {"text_input": "abc", "id": "r1", "parameters": {"max_tokens": 9, "stop": ["a"]}}
        found = (await http.post("/v2/models/writer/generate", json=body)).json()
        assert found == {
            "model_name": "writer",
            "model_version": "1",
            "id": "r1",
            "text_output": "cb",
            "details": {"finish_reason": "stop", "prompt_tokens": 3, "new_tokens": 3},
        }
        refused = await http.post("/v2/models/writer/generate", json={"text_input": "a", "parameters": {"top_p": 0.5}})
        assert (refused.status_code, refused.json()["error"]) == (400, "top_p is 0.5, but only 1 is supported")


async def test_generate_stream() -> None:
    writer = Writer()
    async with client_of(writing(writer)) as http:
        found = await http.post("/v2/models/writer/versions/1/generate_stream", json={"text_input": "ab"})
        assert found.headers["content-type"].startswith("text/event-stream")
        events = [json.loads(line[6:]) for line in found.text.splitlines() if line]
        assert [each["text_output"] for each in events] == ["b", "a", ""]
        assert [each["done"] for each in events] == [False, False, True]
        assert events[-1]["details"]["new_tokens"] == 3
        writer.fails_after = writer.steps + 1
        found = await http.post("/v2/models/writer/generate_stream", json={"text_input": "ab"})
        last = json.loads(found.text.splitlines()[-2][6:])
        told = f"the model failed; request {found.headers['x-request-id']}"
        assert last == {"error": told, "code": "DriverError", "status": 500}


async def test_the_end_finishes_streams_that_were_accepted() -> None:
    writer = Writer()
    app = writing(writer)
    async with httpx.AsyncClient() as http, asyncio.timeout(TIMEOUT):
        async with listening(app, port=0) as url:
            body = {"model": "writer", "prompt": "abcdef", "stream": True}
            writer.go.clear()
            task = asyncio.create_task(http.post(f"{url}/v1/completions", json=body))
            await until(lambda: app.models["writer"].stats().running)
            ending = asyncio.get_running_loop().create_task(until(lambda: not app.accepting))
            ending.add_done_callback(lambda _: writer.go.set())
        found = await task
    assert found.text.endswith("data: [DONE]\n\n")


async def test_tenants_share_a_decoder() -> None:
    writer = Writer()
    async with cb.ContinuousBatchingServer[cb.Decode, int](writer) as server:
        shared = cb.FairShareScheduler[cb.Decode, Any](server.stream, tenants={"a": 1}, default=None)
        app = App("shared", tenant=lambda headers: headers.get("x-tenant"))
        app.add_decoder("writer", shared, encode=encode, decode=decode, eos=0)
        async with client_of(app) as http:
            body = {"model": "writer", "prompt": "abc", "stream": True}
            found = await http.post("/v1/completions", json=body, headers={"x-tenant": "a"})
            assert (found.status_code, found.text.count("data: {")) == (200, 4)
            refused = await http.post("/v2/models/writer/generate", json={"text_input": "a"}, headers={"x-tenant": "b"})
            assert refused.status_code == 403
            assert shared.stats().tenants["a"].started == 1


def test_what_is_no_decoder() -> None:
    app = App()
    not_a_server: Any = len
    with pytest.raises(TypeError, match="must be a server, such as SpeculativeDecoder"):
        app.add_decoder("a", not_a_server, encode=list, decode=str)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_tokens must be at least 1"):
        app.add_decoder("a", cb.ContinuousBatchingServer(len), encode=list, decode=str, max_tokens=0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="takes has 'topp'; it may have"):
        app.add_decoder("a", cb.ContinuousBatchingServer(len), encode=list, decode=str, takes={"topp"})  # type: ignore[arg-type]
    decoder = cb.SpeculativeDecoder(cb.Cacheless(logits))
    with pytest.raises(ValueError, match="takes has 'top_p', which a SpeculativeDecoder does not read"):
        app.add_decoder("a", decoder, encode=list, decode=str, takes={"top_p", "tools"})  # type: ignore[arg-type]
