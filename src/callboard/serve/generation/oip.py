"""Handlers of the Open Inference Protocol for text: ``generate`` and ``generate_stream``."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec

from callboard.serve.app import App
from callboard.serve.edge import Body, decode_json
from callboard.serve.errors import BadRequest, HttpError, Refusal, code_of
from callboard.serve.generation.events import Events, event, events_of
from callboard.serve.generation.model import Asked, Generation, TextModel
from callboard.serve.generation.parameters import check_stop, parameters_of
from callboard.serve.generation.quoting import quoted
from callboard.serve.http.request import Request

__all__ = ["GenerateRequest", "failed", "generate", "generate_stream"]


class _Parameters(msgspec.Struct, forbid_unknown_fields=True):
    """Parameters of a request. The last ones need a model that takes them, unless their value is neutral."""

    max_tokens: int | None = 20
    temperature: float | None = None
    seed: int | None = None
    stop: list[str] | None = None
    best_of: int | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None


class GenerateRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of ``generate`` and ``generate_stream``."""

    text_input: str
    id: str = ""
    parameters: _Parameters = msgspec.field(default_factory=_Parameters)


async def generate(app: App, request: Request, body: memoryview) -> Body:
    """Continue a text, and answer with all of it."""
    generation, head = await _begun(app, request, body)
    text = await generation.whole()
    return Body({**head, "text_output": text, "details": _details(generation)})


async def generate_stream(app: App, request: Request, body: memoryview) -> Events:
    """Continue a text, and send each piece as soon as it is available."""
    generation, head = await _begun(app, request, body)
    return await events_of(_pieces(generation, head), failed)


async def _begun(app: App, request: Request, body: memoryview) -> tuple[Generation, dict[str, Any]]:
    app.check_accepting()
    model = app.find(request.path_params["model"], request.path_params.get("version"))
    if not isinstance(model, TextModel):
        raise HttpError(f"model {model.name!r} does not generate text", 404)
    await app.until_ready(model)
    asked: GenerateRequest = await decode_json(body, GenerateRequest)
    given = asked.parameters
    if given.best_of not in (None, 1):
        raise BadRequest(f"best_of is {quoted(given.best_of)}, but only 1 is supported")
    parameters = parameters_of(given, model.takes)
    check_stop(given.stop or [])
    [prompt] = await model.encoded([asked.text_input])
    what = Asked(prompt, given.max_tokens, given.stop or [], given.temperature or 0.0, given.seed, parameters)
    head = {"model_name": model.name, "model_version": model.version, **({"id": asked.id} if asked.id else {})}
    return model.begin(what, app.limits.request_timeout, app.tenant_of(request.headers)), head


async def _pieces(generation: Generation, head: dict[str, Any]) -> AsyncGenerator[bytes, None]:
    async with aclosing(generation.texts()) as texts:
        async for piece in texts:
            yield event({**head, "text_output": piece, "done": False})
    yield event({**head, "text_output": "", "done": True, "details": _details(generation)})


def _details(generation: Generation) -> dict[str, Any]:
    return {
        "finish_reason": generation.finish,
        "prompt_tokens": generation.prompt_tokens,
        "new_tokens": generation.new_tokens,
    }


def failed(error: Exception, refusal: Refusal) -> bytes:
    """The last event of a stream that fails."""
    return event({"error": refusal.reason, "code": code_of(error), "status": refusal.status})
