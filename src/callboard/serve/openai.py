"""Handlers of OpenAI's API: ``/v1/embeddings`` and ``/v1/models``."""

import base64
from typing import Any, Literal

import msgspec
import numpy as np

from callboard.serve.app import App
from callboard.serve.chains.embedding import EmbeddingModel
from callboard.serve.edge import Body, decode_json
from callboard.serve.errors import BadRequest, HttpError
from callboard.serve.generation.ids import check_ids
from callboard.serve.http.compression import off_loop
from callboard.serve.http.request import Request
from callboard.serve.models import Model

__all__ = ["EmbeddingRequest", "embeddings", "model", "models"]


class EmbeddingRequest(msgspec.Struct):
    """The body of ``/v1/embeddings``."""

    model: str
    input: str | list[str | int | list[int]]
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: int | None = None


async def embeddings(app: App, request: Request, body: memoryview) -> Body:
    """Vectors of texts, or of lists of tokens."""
    app.check_accepting()
    asked: EmbeddingRequest = await decode_json(body, EmbeddingRequest)
    found = app.route(asked.model)
    if not isinstance(found, EmbeddingModel):
        raise HttpError(f"model {found.name!r} has no embeddings: ask it under {found.url}", 404)
    await app.until_ready(found)
    inputs = await off_loop(len(body), lambda: _inputs(asked.input, found))
    if asked.dimensions is not None:
        found.check_dimensions(asked.dimensions)
    tenant = app.tenant_of(request.headers)
    vectors, tokens = await found.embed(inputs, timeout=app.limits.request_timeout, tenant=tenant)
    if asked.dimensions is not None:
        vectors = found.cut(vectors, asked.dimensions)

    def body_of() -> Body:
        return Body(
            {
                "object": "list",
                "model": found.name,
                "data": [
                    {"object": "embedding", "index": index, "embedding": _encoded(row, asked.encoding_format)}
                    for index, row in enumerate(vectors)
                ],
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            }
        )

    return await off_loop(vectors.nbytes, body_of)


def _inputs(given: Any, model: EmbeddingModel) -> list[Any]:
    """The single inputs: a text, texts, a list of tokens, or lists of tokens, which the model takes."""
    inputs: list[Any] = [given] if isinstance(given, str) else given
    if inputs and all(isinstance(each, int) for each in inputs):
        inputs = [inputs]
    if not inputs or any(each == "" or each == [] for each in inputs):
        raise BadRequest("input must not be empty")
    if len({type(each) for each in inputs}) > 1:
        raise BadRequest("input must be a text, texts, a list of tokens, or lists of tokens, but mixes them")
    check_ids("input", given, model.vocabulary)
    if not isinstance(inputs[0], str) and not model.takes_tokens:
        raise BadRequest(
            f"input has tokens, but model {model.name!r} takes texts: add_embeddings(vocabulary=) lets it take tokens"
        )
    return inputs


def _encoded(row: np.ndarray[Any, Any], how: str | None) -> Any:
    if how == "base64":
        return base64.b64encode(row.astype("<f4").tobytes()).decode()
    if not np.isfinite(row).all():
        raise BadRequest("the vector has NaN or infinities, which JSON lacks: ask for encoding_format base64")
    return msgspec.Raw(msgspec.json.encode(row.tolist()))  # row by row: an encoder holds Python's lock until it is done


async def models(app: App, request: Request, body: memoryview) -> Body:
    """All models."""
    return Body({"object": "list", "data": [_described(each) for each in app.models.values()]})


async def model(app: App, request: Request, body: memoryview) -> Body:
    """One model."""
    return Body(_described(app.find(request.path_params["model"])))


def _described(found: Model) -> dict[str, Any]:
    return {"id": found.name, "object": "model", "created": int(found.created), "owned_by": "callboard"}
