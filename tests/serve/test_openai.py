"""OpenAI's API: request by request, and with its own client."""

import asyncio
import base64
from typing import Any

import numpy as np
import pytest
from serve_lab import TIMEOUT, client_of, small_app, until
from tests import lazily

import callboard as cb
from callboard.serve import App, listening

openai = lazily.importorskip("openai", reason="for the extra test")


def lengths(texts: list[Any]) -> list[list[float]]:
    return [[len(text), 1.0] for text in texts]


def letters(**options: Any) -> App:
    app = small_app()
    app.add_embeddings("letters", options.pop("model", lengths), **options)
    return app


@pytest.mark.parametrize(
    "given, vectors, tokens",
    [
        ("two words", [[9, 1]], 2),
        (["a", "b c d"], [[1, 1], [5, 1]], 4),
        ([1, 2, 3], [[3, 1]], 3),
        ([[1, 2], [3]], [[2, 1], [1, 1]], 3),
    ],
)
async def test_embeddings(given: Any, vectors: Any, tokens: int) -> None:
    async with client_of(letters(vocabulary=256)) as http:
        found = (await http.post("/v1/embeddings", json={"model": "letters", "input": given})).json()
    assert [each["embedding"] for each in found["data"]] == vectors
    assert [each["index"] for each in found["data"]] == list(range(len(vectors)))
    assert found["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    assert (found["object"], found["model"]) == ("list", "letters")


@pytest.mark.parametrize("given", [[1, 2], [[1], [2]]])
@pytest.mark.parametrize(
    "model, options, status",
    [
        (lambda texts: [[float(len(text.encode()))] for text in texts], {}, 400),
        ("server", {}, 400),
        ("server", {"vocabulary": 3}, 200),
        (lengths, {"tokenize": str.split}, 400),
        (lengths, {"tokenize": list}, 200),
    ],
)
async def test_tokens_for_a_model_of_texts(model: Any, options: Any, status: int, given: Any) -> None:
    if model == "server":
        model = cb.DynamicBatchingServer[Any, Any](lengths, executor="loop")
    async with client_of(letters(model=model, **options)) as http:
        found = await http.post("/v1/embeddings", json={"model": "letters", "input": given})
    assert found.status_code == status, found.text
    assert status == 200 or "'letters'" in found.json()["error"]["message"]


async def test_vectors_as_base64_and_tokens_that_are_counted() -> None:
    body = {"model": "letters", "input": "abc", "encoding_format": "base64", "dimensions": 2}
    async with client_of(letters(model=lambda _: np.array([[np.nan, 2]]), count_tokens=len)) as http:
        found = (await http.post("/v1/embeddings", json=body)).json()
        refused = await http.post("/v1/embeddings", json={"model": "letters", "input": "abc"})
    vector = np.frombuffer(base64.b64decode(found["data"][0]["embedding"]), "<f4")
    assert np.array_equal(vector, [np.nan, 2], equal_nan=True)
    assert found["usage"]["prompt_tokens"] == 3
    assert (refused.status_code, "ask for encoding_format base64" in refused.text) == (400, True)


@pytest.mark.parametrize(
    "body, status, says",
    [
        ({"model": "none", "input": "a"}, 404, "there is no model 'none'"),
        ({"model": "double", "input": "a"}, 404, "has no embeddings: ask it under /v2/models/double/infer"),
        ({"model": "letters"}, 400, "missing required field `input`"),
        ({"model": "letters", "input": ""}, 400, "input must not be empty"),
        ({"model": "letters", "input": []}, 400, "input must not be empty"),
        ({"model": "letters", "input": [[]]}, 400, "input must not be empty"),
        ({"model": "letters", "input": ["a", [1]]}, 400, "mixes them"),
        ({"model": "letters", "input": ["a", 1]}, 400, "mixes them"),
        ({"model": "letters", "input": 5}, 400, "cannot be read"),
        ({"model": "letters", "input": "a", "dimensions": 3}, 400, "dimensions is 3, but vectors of 'letters' have 2"),
        ({"model": "letters", "input": "a", "dimensions": 0}, 400, "dimensions is 0, but vectors of 'letters' have"),
        ({"model": "letters", "input": "a", "encoding_format": "hex"}, 400, "Invalid enum value 'hex'"),
    ],
)
async def test_requests_that_are_refused(body: Any, status: int, says: str) -> None:
    async with client_of(letters()) as http:
        found = await http.post("/v1/embeddings", json=body)
    assert found.status_code == status
    assert says in found.json()["error"]["message"]
    assert found.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "value, says",
    [
        ([[1.0]] * 3, "returned shape [3, 1] for 2 inputs"),
        ([[1.0], [1.0, 2.0]], "vectors that are not an array of numbers"),
        (["a", "b"], "vectors that are not an array of numbers"),
        ([1.0, 2.0], "returned shape [2] for 2 inputs"),
    ],
)
async def test_vectors_that_do_not_fit(value: Any, says: str, caplog: pytest.LogCaptureFixture) -> None:
    async with client_of(letters(model=lambda _: value)) as http:
        found = await http.post("/v1/embeddings", json={"model": "letters", "input": ["a", "b"]})
    assert found.status_code == 500
    assert "something else than it declares" in found.json()["error"]["message"]
    assert says in caplog.text
    assert found.json()["error"]["type"] == "server_error"


async def test_vectors_are_cut_where_the_model_says_so() -> None:
    asked: list[Any] = []

    def embed(texts: list[str]) -> list[list[float]]:
        asked.append(texts)
        return [[3.0, 4.0, 12.0] if text else [0.0] * 3 for text in map(str.strip, texts)]

    async with client_of(letters(model=embed, dimensions=(1, 2, 7))) as http:

        async def cut(dimensions: int | None, encoding: str | None = None) -> Any:
            body = {"model": "letters", "input": ["a", " "], "dimensions": dimensions, "encoding_format": encoding}
            return await http.post("/v1/embeddings", json={**body, "user": "u"})

        for dimensions, vector in ((None, [3, 4, 12]), (3, [3, 4, 12]), (2, [0.6, 0.8]), (1, [1])):
            found = [each["embedding"] for each in (await cut(dimensions)).json()["data"]]
            assert np.allclose(found, [vector, [0] * len(vector)])
        calls = len(asked)
        refused = [await cut(each) for each in (4, 7, 8)]
    assert {each.status_code for each in refused} == {400}
    assert len(asked) == calls + 1  # of 7: the model is known to have 3 in time for the others


async def test_many_inputs_enter_a_small_queue() -> None:
    server = cb.DynamicBatchingServer[Any, Any](lengths, max_batch=16, max_queue=16, executor="loop")
    app = App(tenant=lambda headers: "a")
    app.add_embeddings("letters", server, tenants={"a": 1}, max_queue=16, vocabulary=2)
    async with client_of(app) as http:
        found = await http.post(
            "/v1/embeddings", json={"model": "letters", "input": [[1] * (n % 9 + 1) for n in range(2048)]}
        )
    assert [each["embedding"][0] for each in found.json()["data"]] == [n % 9 + 1 for n in range(2048)]


async def test_inputs_that_never_fit() -> None:
    server = cb.DynamicBatchingServer[Any, Any](lengths, cost=len, max_batch_cost=4, queue=cb.QueueOptions(max_cost=8))
    async with client_of(letters(model=server)) as http:
        found = await http.post("/v1/embeddings", json={"model": "letters", "input": ["abcde", "a"]})
    assert (found.status_code, "retry-after" in found.headers) == (413, False)


async def test_texts_of_several_requests_share_batches() -> None:
    batches: list[int] = []
    go = asyncio.Event()

    async def embed(texts: list[str]) -> list[list[float]]:
        batches.append(len(texts))
        await go.wait()
        return lengths(texts)

    server = cb.DynamicBatchingServer(embed, max_batch=8, batches=cb.BatchOptions(dispatch="idle"))
    async with client_of(letters(model=server)) as http, asyncio.timeout(TIMEOUT):
        asking = [asyncio.create_task(http.post("/v1/embeddings", json={"model": "letters", "input": "a"}))]
        await until(lambda: batches)
        for texts in (["aa", "b"], ["ccc"]):
            body = {"model": "letters", "input": texts}
            asking.append(asyncio.create_task(http.post("/v1/embeddings", json=body)))
        await until(lambda: server.stats().queued == 3)
        go.set()
        found = [[each["embedding"][0] for each in (await reply).json()["data"]] for reply in asking]
    assert found == [[1], [2, 1], [3]]
    assert batches == [1, 3]


async def test_texts_wait_for_room_that_their_request_takes_and_not_for_that_of_others() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def embed(texts: list[str]) -> list[list[float]]:
        begun.set()
        await go.wait()
        return lengths(texts)

    server = cb.DynamicBatchingServer(embed, max_batch=1, max_queue=1)
    async with client_of(letters(model=server)) as http, asyncio.timeout(TIMEOUT):

        def asked(*texts: str) -> "asyncio.Task[Any]":
            return asyncio.create_task(http.post("/v1/embeddings", json={"model": "letters", "input": texts}))

        others = [asked("a")]
        await begun.wait()
        others.append(asked("b"))
        await until(lambda: server.stats().queued == 1)
        refused = await asked("c", "dd", "eee")
        go.set()
        assert [(await each).status_code for each in others] == [200, 200]
        found = await asked("c", "dd", "eee")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert [each["embedding"][0] for each in found.json()["data"]] == [1, 2, 3]
    stats = server.stats()
    assert (stats.queued, stats.completed) == (0, 5)


async def test_models() -> None:
    async with client_of(letters()) as http:
        found = (await http.get("/v1/models")).json()
        one = (await http.get("/v1/models/letters")).json()
        none = await http.get("/v1/models/none")
    assert one in found["data"]
    assert {each["id"] for each in found["data"]} >= {"letters", "double"}
    assert (none.status_code, none.json()["error"]["message"]) == (404, "there is no model 'none'")


async def test_openai() -> None:
    app = small_app(token="secret")
    app.add_embeddings("letters", lambda texts: np.array([[len(text), text.count("a")] for text in texts], "f4"))
    async with listening(app, port=0) as url:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="secret", max_retries=0) as client:
            found = await client.embeddings.create(model="letters", input=["banana", "x y"])  # it asks for base64
            assert [each.embedding for each in found.data] == [[6, 3], [3, 0]]
            assert (found.usage.prompt_tokens, found.model) == (3, "letters")
            plain = await client.embeddings.create(model="letters", input="aa", encoding_format="float")
            assert plain.data[0].embedding == [2, 2]
            assert "letters" in [model.id async for model in client.models.list()]
            assert (await client.models.retrieve("letters")).owned_by == "callboard"
            with pytest.raises(openai.NotFoundError, match="there is no model 'none'"):
                await client.embeddings.create(model="none", input="a")
            with pytest.raises(openai.BadRequestError, match="input must not be empty"):
                await client.embeddings.create(model="letters", input=[])
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="wrong", max_retries=0) as client:
            with pytest.raises(openai.AuthenticationError):
                await client.models.list()
