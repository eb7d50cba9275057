"""Large requests for text: refused above a limit that the error names, or prepared off the event loop."""

import threading
from typing import Any

import pytest
from generation_lab import EOS, Writer, chat, decode, encode
from serve_lab import client_of

import callboard as cb
from callboard.serve import App
from callboard.serve.generation import openai
from callboard.serve.generation.quoting import quoted

LONG = 70_000
PATHS = ("/v1/completions", "/v1/chat/completions", "/v2/models/writer/generate", "/v2/models/writer/generate_stream")


class Noting(Writer):
    """Notes the threads on which prompts are prepared."""

    def __init__(self) -> None:
        super().__init__()
        self.encoded: list[threading.Thread] = []
        self.chatted: list[threading.Thread] = []

    def encode(self, text: str) -> list[int]:
        self.encoded.append(threading.current_thread())
        return encode(text)

    def chat(self, messages: list[dict[str, Any]]) -> str:
        self.chatted.append(threading.current_thread())
        return chat(messages)


def app_of(writer: Noting, takes: tuple[str, ...] = ()) -> App:
    app = App("limits")
    server = cb.ContinuousBatchingServer[cb.Decode, int](writer, max_batch=4)
    app.add_decoder(
        "writer", server, encode=writer.encode, decode=decode, eos=EOS, chat=writer.chat, max_tokens=8, takes=takes
    )
    return app


def body_of(path: str, text: str, **more: Any) -> dict[str, Any]:
    if path.startswith("/v2"):
        return {"text_input": text, "parameters": {"max_tokens": 2, **more}}
    asked = {"messages": [{"role": "user", "content": text}]} if "chat" in path else {"prompt": text}
    return {"model": "writer", "max_tokens": 2, **asked, **more}


@pytest.mark.parametrize("path", PATHS)
async def test_stop_strings_are_few_and_short(path: str) -> None:
    writer = Noting()
    async with client_of(app_of(writer)) as http:
        for stop, says in (
            (["x"] * 17, "stop has 17 strings, and may have 16"),
            (["x", "y" * 257], "stop[1] has 257 characters, and may have 256"),
            (["x", ""], "stop has an empty string"),
        ):
            answer = await http.post(path, json=body_of(path, "ab", stop=stop))
            assert (answer.status_code, says in answer.text) == (400, True), answer.text
        assert writer.encoded == []
        answer = await http.post(path, json=body_of(path, "ab", stop=["y" * 256] * 16))
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("path", PATHS)
async def test_a_long_prompt_is_encoded_once_and_on_a_thread(path: str) -> None:
    writer = Noting()
    here = threading.current_thread()
    choices = {} if path.startswith("/v2") else {"n": 3}
    async with client_of(app_of(writer)) as http:
        for text, is_long in (("ab", False), ("a" * LONG, True)):
            writer.encoded, writer.chatted, writer.items = [], [], []
            answer = await http.post(path, json=body_of(path, text, **choices))
            assert answer.status_code == 200, answer.text
            assert [(thread is not here) for thread in writer.encoded] == [is_long]
            assert all((thread is not here) is is_long for thread in writer.chatted)
            assert len(writer.items) == choices.get("n", 1)
            assert len({id(item.prefix) for item in writer.items}) == 1


async def test_many_short_prompts_are_a_long_one() -> None:
    writer = Noting()
    async with client_of(app_of(writer)) as http:
        prompts = ["a" * (LONG // 8)] * 8
        answer = await http.post("/v1/completions", json={"model": "writer", "prompt": prompts, "max_tokens": 1})
        assert answer.status_code == 200, answer.text
    assert len(writer.encoded) == 8
    assert threading.current_thread() not in writer.encoded


async def test_many_tokens_are_checked_on_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    check = openai.check_ids

    def noting(*given: Any) -> None:
        threads.append(threading.current_thread())
        check(*given)

    monkeypatch.setattr(openai, "check_ids", noting)
    async with client_of(app_of(Noting())) as http:
        for prompt, status in (([97], 200), ([97] * LONG, 200), ([97] * LONG + [-1], 400)):
            answer = await http.post("/v1/completions", json={"model": "writer", "prompt": prompt, "max_tokens": 1})
            assert answer.status_code == status, answer.text
    assert [thread is threading.current_thread() for thread in threads] == [True, False, False]


async def test_the_texts_of_a_request_are_bounded() -> None:
    writer = Noting()
    async with client_of(app_of(writer)) as http:
        for more, says in (
            ({"prompt": ["a"] * 33, "n": 64}, "33 prompts with n=64 are 2112 texts: ask for 2048 at most"),
            ({"prompt": "a", "n": 129}, "128"),
            ({"prompt": "a", "best_of": 10**60}, "best_of is a number of 200 bits, but"),
            ({"prompt": "a", "max_tokens": 10**60}, "max_tokens must be from 1 to 8, but is a number of 200 bits"),
        ):
            answer = await http.post("/v1/completions", json={"model": "writer", **more})
            assert (answer.status_code, says in answer.text) == (400, True), answer.text
    assert writer.items == []


@pytest.mark.parametrize(
    "takes, says",
    [
        (("logit_bias",), "logit_bias has 1025 entries, and may have 1024"),
        ((), "logit_bias is an object of 1025 entries, but only {} is supported"),
    ],
)
@pytest.mark.parametrize("path", PATHS[:2])
async def test_a_logit_bias_is_bounded(path: str, takes: tuple[str, ...], says: str) -> None:
    async with client_of(app_of(Noting(), takes)) as http:
        bias = {str(token): 1 for token in range(1025)}
        answer = await http.post(path, json=body_of(path, "ab", logit_bias=bias))
        assert (answer.status_code, says in answer.text) == (400, True), answer.text
        if takes:
            del bias["0"]
            assert (await http.post(path, json=body_of(path, "ab", logit_bias=bias))).status_code == 200


async def test_errors_quote_little() -> None:
    """Of values that a client sends: their beginning, or their size."""
    huge = "x" * LONG
    async with client_of(app_of(Noting(), ("logit_bias",))) as http:
        for more in (
            {"prompt": [[[97] * LONG]]},
            {"prompt": [97, {huge: 1}]},
            {"prompt": "a", "logit_bias": {huge: 1}},
            {"prompt": "a", "suffix": huge},
        ):
            answer = await http.post("/v1/completions", json={"model": "writer", **more})
            assert answer.status_code == 400, answer.text
            assert len(answer.text) < 500
        for more in ({"response_format": {huge: huge}}, {"prediction": [[huge] * 4] * 4}, {"tools": [{}] * LONG}):
            answer = await http.post("/v1/chat/completions", json=body_of("chat", "ab", **more))
            assert answer.status_code == 400, answer.text
            assert len(answer.text) < 2000


def test_quoted() -> None:
    assert quoted({"type": "json_object", "n": [1, None]}) == "{'type': 'json_object', 'n': [1, None]}"
    assert quoted([[[]], [[1]]]) == "[[[]], [[...]]]".replace("[...]", "a list of 1 entries")
    assert quoted("y" * 41) == f"{'y' * 40!r}... (41 characters)"
    assert quoted([1, 2, 3, 4, 5]) == "a list of 5 entries"
    assert quoted(2.5) == "2.5"
