"""Handlers of OpenAI's ``/v1/completions`` and ``/v1/chat/completions``."""

import time
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Literal

import msgspec

from callboard.serve.app import App
from callboard.serve.edge import Body, decode_json
from callboard.serve.errors import BadRequest, HttpError
from callboard.serve.generation.events import Events, event, events_of
from callboard.serve.generation.model import Asked, Generation, TextModel
from callboard.serve.http.request import Request

__all__ = ["ChatRequest", "CompletionRequest", "chat", "completions"]

DEFAULT_TOKENS = 16
"""The default of ``max_tokens`` of ``/v1/completions``, as in OpenAI's API."""

DONE = b"data: [DONE]\n\n"


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    """Fields common to both. An unsupported option that would change the answer accepts only its neutral values."""

    model: str
    stream: bool = False
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    n: int | None = 1
    top_p: float | None = 1
    frequency_penalty: float | None = 0
    presence_penalty: float | None = 0
    logit_bias: dict[str, float] | None = None
    user: Any = None
    metadata: Any = None
    safety_identifier: Any = None

    def check(self) -> None:
        """Raise for unsupported options.

        Raises:
            BadRequest: An option has another value than its neutral one.
        """
        for name, neutral in NEUTRAL.items():
            value = getattr(self, name, None)
            if value is not None and value != neutral:
                raise BadRequest(f"{name} is {value!r}, but only {neutral!r} is supported")

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []


NEUTRAL: dict[str, Any] = {
    "n": 1,
    "best_of": 1,
    "top_p": 1,
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "logit_bias": {},
    "echo": False,
    "logprobs": False,
    "top_logprobs": 0,
    "suffix": "",
    "tools": [],
}


class CompletionRequest(_Request, kw_only=True):
    """The body of ``/v1/completions``."""

    prompt: str | list[str | int | list[int]]
    best_of: int | None = 1
    echo: bool | None = False
    logprobs: int | bool | None = None
    suffix: str | None = None

    @property
    def one_prompt(self) -> str | list[int]:
        """The prompt.

        Raises:
            BadRequest: There are several, or tokens and texts are mixed.
        """
        given: Any = self.prompt
        if isinstance(given, list) and given and not all(isinstance(each, int) for each in given):
            if len(given) > 1:
                raise BadRequest(f"prompt has {len(given)} entries, but only one prompt per request is supported")
            given = given[0]
        prompt: str | list[int] = given
        return prompt


class _ResponseFormat(msgspec.Struct):
    type: Literal["text"] = "text"


class ChatRequest(_Request, kw_only=True):
    """The body of ``/v1/chat/completions``."""

    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = None
    logprobs: bool | None = False
    top_logprobs: int | None = 0
    tools: list[Any] | None = None
    response_format: _ResponseFormat | None = None


class _Form:
    """The response format of one of the two APIs: complete, and in chunks."""

    def __init__(self, kind: str, prefix: str, whole: Callable[[str], Any], piece: Callable[[str], Any]) -> None:
        self.kind = kind
        self.prefix = prefix
        self.whole = whole
        self.piece = piece


COMPLETION = _Form("text_completion", "cmpl", lambda text: {"text": text}, lambda text: {"text": text})
CHAT = _Form(
    "chat.completion",
    "chatcmpl",
    lambda text: {"message": {"role": "assistant", "content": text}},
    lambda text: {"delta": {"content": text} if text else {}},
)
FIRST_DELTA: Any = {"delta": {"role": "assistant", "content": ""}}


async def completions(app: App, request: Request, body: memoryview) -> Body | Events:
    """Continue a text."""
    asked: CompletionRequest = decode_json(body, CompletionRequest)
    model = await _model(app, asked)
    limit = min(DEFAULT_TOKENS, model.most) if asked.max_tokens is None else asked.max_tokens
    return await _answer(app, request, model, asked, asked.one_prompt, limit, COMPLETION)


async def chat(app: App, request: Request, body: memoryview) -> Body | Events:
    """Answer a conversation."""
    asked: ChatRequest = decode_json(body, ChatRequest)
    model = await _model(app, asked)
    if model.chat is None:
        raise HttpError(f"model {model.name!r} has no chat template: ask it under /v1/completions", 404)
    if not asked.messages:
        raise BadRequest("messages is empty")
    try:
        prompt = model.chat(asked.messages)
    except (KeyError, TypeError, ValueError) as e:
        raise BadRequest(f"the messages do not fit the chat template of {model.name!r}") from e
    limit = asked.max_tokens if asked.max_completion_tokens is None else asked.max_completion_tokens
    return await _answer(app, request, model, asked, prompt if isinstance(prompt, str) else list(prompt), limit, CHAT)


async def _model(app: App, asked: _Request) -> TextModel:
    app.check_accepting()
    found = app.find(asked.model)
    if not isinstance(found, TextModel):
        raise HttpError(f"model {found.name!r} does not generate text", 404)
    await app.until_ready(found)
    asked.check()
    return found


async def _answer(
    app: App,
    request: Request,
    model: TextModel,
    asked: _Request,
    prompt: str | list[int],
    limit: int | None,
    form: _Form,
) -> Body | Events:
    what = Asked(prompt, limit, asked.stops, asked.temperature or 0.0, asked.seed)
    generation = model.begin(what, app.limits.request_timeout, app.tenant_of(request.headers))
    head = {
        "id": f"{form.prefix}-{uuid.uuid4().hex}",
        "object": form.kind,
        "created": int(time.time()),
        "model": model.name,
    }
    if asked.stream:
        with_usage = asked.stream_options is not None and asked.stream_options.include_usage
        return await events_of(_chunks(generation, head, form, with_usage))
    text = await generation.whole()
    choice = {"index": 0, **form.whole(text), "logprobs": None, "finish_reason": generation.finish}
    return Body({**head, "choices": [choice], "usage": _usage(generation)})


async def _chunks(
    generation: Generation, head: dict[str, Any], form: _Form, with_usage: bool
) -> AsyncGenerator[bytes, None]:
    if form is CHAT:
        head = {**head, "object": "chat.completion.chunk"}
    if with_usage:
        head = {**head, "usage": None}

    def chunk(content: Any, finish: str | None = None) -> bytes:
        return event({**head, "choices": [{"index": 0, **content, "logprobs": None, "finish_reason": finish}]})

    begun = form is not CHAT
    async with aclosing(generation.texts()) as texts:
        async for piece in texts:
            if not begun:  # not before the model has answered: earlier failures have a status of their own
                begun = True
                yield chunk(FIRST_DELTA)
            yield chunk(form.piece(piece))
    if not begun:
        yield chunk(FIRST_DELTA)
    yield chunk(form.piece(""), generation.finish)
    if with_usage:
        yield event({**head, "choices": [], "usage": _usage(generation)})
    yield DONE


def _usage(generation: Generation) -> dict[str, int]:
    prompt, new = generation.prompt_tokens, generation.new_tokens
    return {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new}
