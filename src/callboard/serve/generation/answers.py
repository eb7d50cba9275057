"""``add_answers``: a pipeline over documents as a model that chats, for clients of OpenAI's API."""

import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from callboard.agents.rag.answer import Citation
from callboard.agents.rag.pipeline import RagPipeline
from callboard.device.client.handle import Device
from callboard.patterns.batching.server import DynamicBatchingServer
from callboard.patterns.speculative.requests import Decode
from callboard.serve.app import App
from callboard.serve.errors import BadRequest

__all__ = ["add_answers"]

AT_ONCE = 64
"""Answers that are made at the same time."""
_PIECE = re.compile(r"\s*\S+|\s+")


def add_answers(
    app: App, name: str, pipeline: RagPipeline, *, device: Device | None = None, top_k: int = 5, max_tokens: int = 8192
) -> None:
    """Serve a pipeline's answers under ``/v1/chat/completions`` and ``/v1/completions``, whole or streamed.

    The last message is the question; the generator gets those before it. The sources follow the answer, in lines such
    as ``[1] docs/guide.md:12 Heading``. A token of the usage is a word.

    Args:
        app: The app.
        name: Name in the field ``model`` of requests.
        pipeline: The pipeline, which is open as long as the app runs.
        device: Device that it uses: the app is ready when that is.
        top_k: Passages in the context at most.
        max_tokens: Words of an answer at most.

    Raises:
        ValueError: The name is taken.
    """

    async def answered(items: list[Decode]) -> list[AsyncGenerator[int, None]]:
        return [_answer(pipeline, _text(list(items[0].prefix)), top_k)]

    server: DynamicBatchingServer[Decode, Any] = DynamicBatchingServer(
        *(answered,), max_batch=1, max_concurrent_batches=AT_ONCE, idempotent=False, executor="loop", name=name
    )
    app.add_decoder(name, server, encode=_tokens, decode=_text, chat=_chat, max_tokens=max_tokens, device=device)


async def _answer(pipeline: RagPipeline, asked: str, top_k: int) -> AsyncGenerator[int, None]:
    """The words of an answer, then those of its sources."""
    async with aclosing(pipeline.stream(_question(asked), top_k=top_k)) as stream:
        async for piece in stream:
            for token in _tokens(piece):
                yield token
        for token in _tokens(_sources(stream.answer.citations)):
            yield token


def _chat(messages: Sequence[Mapping[str, Any]]) -> str:
    """A conversation as one text, from which :func:`_question` reads it.

    Raises:
        ValueError: Its last message is not a question.
    """
    last = messages[-1]
    if last.get("role") != "user" or not isinstance(last.get("content"), str) or not last["content"].strip():
        raise ValueError("the last message must be a question of the user")
    return json.dumps(list(messages), ensure_ascii=False)


def _question(asked: str) -> str | list[dict[str, Any]]:
    if asked.startswith('[{"'):
        try:
            messages: list[dict[str, Any]] = json.loads(asked)
            return messages
        except ValueError:  # a question that only looks like a conversation
            return asked
    return asked


def _sources(citations: Sequence[Citation]) -> str:
    used = [each for each in citations if each.cited] or citations
    lines = [f"[{each.number}] {each.place} {each.passage.heading}".rstrip() for each in used]
    return "\n\n" + "\n".join(lines) if lines else ""


def _tokens(text: str) -> list[int]:
    """A number for each word, with the space in front of it: its bytes, behind a one that keeps leading zeros."""
    words = (word.encode("utf-8", "surrogatepass") for word in _PIECE.findall(text))
    return [int.from_bytes(b"\1" + word) for word in words]


def _text(tokens: list[int]) -> str:
    """The text of such numbers.

    Raises:
        BadRequest: A number is none of them.
    """
    words = [token.to_bytes(-(-token.bit_length() // 8) or 1) for token in tokens if token >= 0]
    if len(words) < len(tokens) or any(word[0] != 1 for word in words):
        raise BadRequest("the prompt is a list of tokens; send a text, this model has no vocabulary")
    return b"".join(word[1:] for word in words).decode("utf-8", "surrogatepass")
