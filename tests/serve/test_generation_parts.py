"""Messages of a chat whose contents are lists: texts are joined, other parts are for models that take them."""

from typing import Any

import pytest
from generation_lab import EOS, Writer, decode, encode, writing
from serve_lab import client_of

import callboard as cb
from callboard.serve import App

IMAGE = {"type": "image_url", "image_url": {"url": "data:"}}


@pytest.mark.parametrize(
    "content, status, says",
    [
        ([{"type": "text", "text": "hi"}], 200, ""),
        ([{"type": "text", "text": "hi"}, IMAGE], 400, "messages[1].content[1] has the type 'image_url'"),
        ([{"type": "sound"}], 400, "messages[1].content[0] is {'type': 'sound'}, and must be a part"),
        ([{"type": "text"}], 400, "must be a part"),
        ([{"type": {}}], 400, "must be a part"),
        (["hi"], 400, "must be a part"),
        (7, 400, "messages[1].content is 7, and must be a text"),
        ({"type": "text", "text": "hi"}, 400, "must be a text or a list"),
    ],
)
async def test_parts_of_a_message(content: Any, status: int, says: str) -> None:
    messages = [{"role": "system", "content": "a"}, {"role": "user", "content": content}]
    async with client_of(writing(Writer())) as http:
        found = await http.post("/v1/chat/completions", json={"model": "writer", "messages": messages})
    assert (found.status_code, says in found.text) == (status, True), found.text


async def test_a_chat_that_takes_images_gets_the_parts() -> None:
    asked: list[Any] = []
    app, server = App(), cb.ContinuousBatchingServer[cb.Decode, int](Writer())

    def chat(messages: list[dict[str, Any]]) -> str:
        asked.extend(each["content"] for each in messages)
        return "x"

    app.add_decoder("sees", server, encode=encode, decode=decode, eos=EOS, chat=chat, takes={"image_url"})
    parts = [[{"type": "text", "text": "h"}, IMAGE], [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]]
    messages = [{"role": "user", "content": each} for each in [*parts, "text", None]]
    async with client_of(app) as http:
        found = await http.post("/v1/chat/completions", json={"model": "sees", "messages": messages})
    assert (found.status_code, asked) == (200, [parts[0], "hi", "text", None])
