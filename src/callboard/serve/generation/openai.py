"""Handlers of OpenAI's ``/v1/completions`` and ``/v1/chat/completions``."""

import time
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Annotated, Any

import msgspec

from callboard.serve.app import App
from callboard.serve.edge import Body, decode_json
from callboard.serve.errors import BadRequest, HttpError
from callboard.serve.generation.choices import Choices
from callboard.serve.generation.events import Events, event, events_of
from callboard.serve.generation.ids import check_bias, check_ids
from callboard.serve.generation.model import Asked, Generation, TextModel, Token
from callboard.serve.generation.parameters import check_stop, parameters_of
from callboard.serve.generation.quoting import quoted
from callboard.serve.http.compression import off_loop
from callboard.serve.http.request import Request

__all__ = ["ChatRequest", "CompletionRequest", "chat", "completions"]

DEFAULT_TOKENS = 16
"""The default of ``max_tokens`` of ``/v1/completions``, as in OpenAI's API."""

MOST_CHOICES = 128
"""Texts for one prompt at most, as in OpenAI's API."""

MOST_PROMPTS = 2048
"""Prompts of a request at most, as in OpenAI's API; and its texts, which are ``n`` for each."""

DONE = b"data: [DONE]\n\n"


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = False


Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Penalty = Annotated[float, msgspec.Meta(ge=-2, le=2)]


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    """Fields common to both. Those in :data:`PARAMETERS` need a model that takes them, unless their value is neutral.

    The last ones change no answer.
    """

    model: str
    stream: bool | None = False
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    n: Annotated[int, msgspec.Meta(ge=1, le=MOST_CHOICES)] | None = 1
    top_p: Share | None = None
    top_k: int | None = None
    min_p: Share | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    response_format: dict[str, Any] | None = None
    user: Any = None
    metadata: Any = None
    store: Any = None
    service_tier: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    prompt_cache_retention: Any = None

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []


class CompletionRequest(_Request, kw_only=True):
    """The body of ``/v1/completions``."""

    prompt: str | list[str | int | list[int]]
    best_of: int | None = None
    echo: bool | None = None
    logprobs: int | bool | None = None
    suffix: str | None = None

    def prompts(self, vocabulary: int | None) -> list[str | list[int]]:
        """The prompts: texts, or lists of tokens that a vocabulary of this size has.

        Raises:
            BadRequest: Tokens and texts are mixed, or there are none, or too many; or one is not a token.
        """
        given: Any = self.prompt
        if isinstance(given, str) or (given and all(isinstance(each, int) for each in given)):
            check_ids("prompt", given, vocabulary)
            return [given]
        if not given or len({type(each) for each in given}) > 1:
            raise BadRequest("prompt must be a text, texts, a list of tokens, or lists of tokens, not empty or mixed")
        if len(given) > MOST_PROMPTS:
            raise BadRequest(f"prompt has {len(given)} entries, and may have {MOST_PROMPTS}")
        check_ids("prompt", given, vocabulary)
        prompts: list[str | list[int]] = given
        return prompts


class ChatRequest(_Request, kw_only=True):
    """The body of ``/v1/chat/completions``."""

    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=20)] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    functions: list[dict[str, Any]] | None = None
    function_call: str | dict[str, Any] | None = None
    modalities: list[str] | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    prediction: Any = None
    audio: Any = None
    web_search_options: Any = None


class _Form:
    """The response format of one of the two APIs: complete, and in chunks."""

    def __init__(
        self,
        kind: str,
        prefix: str,
        whole: Callable[[str], Any],
        piece: Callable[[str], Any],
        logprobs: Callable[[TextModel, list[Token]], Any],
    ) -> None:
        self.kind = kind
        self.prefix = prefix
        self.whole = whole
        self.piece = piece
        self.logprobs = logprobs

    def logprobs_of(self, model: TextModel, generation: Generation) -> Any:
        """The log probabilities of the tokens since the last time; None if they were not asked for."""
        found = generation.taken_logprobs()
        return None if found is None else self.logprobs(model, found)


def _listed(model: TextModel, tokens: list[Token]) -> dict[str, Any]:
    """Log probabilities as ``/v1/completions`` gives them."""
    return {
        "tokens": [model.text_of(token.id) for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [{model.text_of(other): value for other, value in token.top.items()} for token in tokens],
    }


def _in_chat(model: TextModel, tokens: list[Token]) -> dict[str, Any]:
    def one(token: int, logprob: float | None) -> dict[str, Any]:
        text = model.text_of(token)
        return {"token": text, "logprob": logprob, "bytes": list(text.encode(errors="replace"))}

    content = [
        {**one(token.id, token.logprob), "top_logprobs": [one(*other) for other in token.top.items()]}
        for token in tokens
    ]
    return {"content": content, "refusal": None}


COMPLETION = _Form("text_completion", "cmpl", lambda text: {"text": text}, lambda text: {"text": text}, _listed)
CHAT = _Form(
    "chat.completion",
    "chatcmpl",
    lambda text: {"message": {"role": "assistant", "content": text}},
    lambda text: {"delta": {"content": text} if text else {}},
    _in_chat,
)
FIRST_DELTA: Any = {"delta": {"role": "assistant", "content": ""}}


async def completions(app: App, request: Request, body: memoryview) -> Body | Events:
    """Continue texts."""
    asked: CompletionRequest = await decode_json(body, CompletionRequest)
    model = await _model(app, asked)
    if asked.best_of not in (None, 1, asked.n):
        raise BadRequest(f"best_of is {quoted(asked.best_of)}, but only {asked.n} is supported, which is n")
    limit = min(DEFAULT_TOKENS, model.most) if asked.max_tokens is None else asked.max_tokens
    prompts = await off_loop(len(body), lambda: asked.prompts(model.vocabulary))
    return await _answer(app, request, model, asked, prompts, limit, COMPLETION)


async def chat(app: App, request: Request, body: memoryview) -> Body | Events:
    """Answer a conversation."""
    asked: ChatRequest = await decode_json(body, ChatRequest)
    model = await _model(app, asked)
    if model.chat is None:
        raise HttpError(f"model {model.name!r} has no chat template: ask it under /v1/completions", 404)
    if not asked.messages:
        raise BadRequest("messages is empty")
    tools = {"tools": asked.tools} if asked.tools and "tools" in model.takes else {}
    try:
        prompt = await off_loop(len(body), lambda: _prompt(model, asked, tools))
    except (KeyError, TypeError, ValueError) as e:
        raise BadRequest(f"the messages do not fit the chat template of {model.name!r}") from e
    limit = asked.max_tokens if asked.max_completion_tokens is None else asked.max_completion_tokens
    return await _answer(app, request, model, asked, [prompt], limit, CHAT)


def _prompt(model: TextModel, asked: ChatRequest, tools: dict[str, Any]) -> str | list[int]:
    """The conversation as its model's template writes it."""
    assert model.chat is not None
    prompt = model.chat([_as_text(message) for message in asked.messages], **tools)
    return prompt if isinstance(prompt, str) else list(prompt)


def _as_text(message: dict[str, Any]) -> dict[str, Any]:
    """A message whose content, if it is a list of texts, is one text."""
    parts = message.get("content")
    if not isinstance(parts, list) or not all(isinstance(part, dict) and part.get("type") == "text" for part in parts):
        return message
    return {**message, "content": "".join(str(part.get("text", "")) for part in parts)}


async def _model(app: App, asked: _Request) -> TextModel:
    app.check_accepting()
    found = app.find(asked.model)
    if not isinstance(found, TextModel):
        raise HttpError(f"model {found.name!r} does not generate text", 404)
    await app.until_ready(found)
    return found


async def _answer(
    app: App,
    request: Request,
    model: TextModel,
    asked: _Request,
    prompts: Sequence[str | list[int]],
    limit: int | None,
    form: _Form,
) -> Body | Events:
    count, seed = asked.n or 1, asked.seed
    parameters = parameters_of(asked, model.takes)
    check_bias(parameters.get("logit_bias"), model.vocabulary)
    check_stop(asked.stops)
    if len(prompts) * count > MOST_PROMPTS:
        raise BadRequest(
            f"{len(prompts)} prompts with n={count} are {len(prompts) * count} texts: ask for {MOST_PROMPTS} at most"
        )
    encoded = await model.encoded(prompts)
    tenant = app.tenant_of(request.headers)
    choices = Choices(
        [
            model.begin(
                Asked(
                    *(prompt, limit, asked.stops, asked.temperature or 0.0),
                    seed=None if seed is None else seed + number,
                    parameters=parameters,
                ),
                app.limits.request_timeout,
                tenant,
            )
            for prompt in encoded
            for number in range(count)
        ]
    )
    head = {
        "id": f"{form.prefix}-{uuid.uuid4().hex}",
        "object": form.kind,
        "created": int(time.time()),
        "model": model.name,
    }
    if asked.stream:
        with_usage = asked.stream_options is not None and bool(asked.stream_options.include_usage)
        return await events_of(_chunks(model, choices, count, head, form, with_usage))
    texts = await choices.whole()
    found = [
        {
            "index": index,
            **form.whole(text),
            "logprobs": form.logprobs_of(model, generation),
            "finish_reason": generation.finish,
        }
        for index, (text, generation) in enumerate(zip(texts, choices.generations, strict=True))
    ]
    return Body({**head, "choices": found, "usage": _usage(choices, count)})


async def _chunks(
    model: TextModel, choices: Choices, count: int, head: dict[str, Any], form: _Form, with_usage: bool
) -> AsyncGenerator[bytes, None]:
    if form is CHAT:
        head = {**head, "object": "chat.completion.chunk"}
    if with_usage:
        head = {**head, "usage": None}

    def chunk(index: int, content: Any, logprobs: Any = None, finish: str | None = None) -> bytes:
        return event({**head, "choices": [{"index": index, **content, "logprobs": logprobs, "finish_reason": finish}]})

    begun: set[int] = set()
    async with aclosing(choices.pieces()) as pieces:
        async for index, piece in pieces:
            if form is CHAT and index not in begun:  # not before the model has answered: earlier failures have a status
                begun.add(index)
                yield chunk(index, FIRST_DELTA)
            generation = choices.generations[index]
            finish = None if piece is not None else generation.finish
            yield chunk(index, form.piece(piece or ""), form.logprobs_of(model, generation), finish)
    if with_usage:
        yield event({**head, "choices": [], "usage": _usage(choices, count)})
    yield DONE


def _usage(choices: Choices, count: int) -> dict[str, int]:
    prompt = sum(each.prompt_tokens for each in choices.generations[::count])  # those of a prompt have it once
    new = sum(each.new_tokens for each in choices.generations)
    return {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new}
