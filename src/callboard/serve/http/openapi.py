"""The API of an app, as an OpenAPI 3.1 document and as a page: made from the routes, their bodies and docstrings."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from html import escape
from typing import Any

import msgspec

import callboard
from callboard.serve.app import App
from callboard.serve.chains.embedding import EmbeddingModel
from callboard.serve.chains.typed import TypedModel
from callboard.serve.encoding.typed import REFERENCE
from callboard.serve.http.rights import right_of
from callboard.serve.models import Model, TensorModel

__all__ = ["described", "page"]

Routes = Mapping[str, Callable[..., Any]]
JSON = "application/json"
ABOUT = "The Open Inference Protocol under /v2, with raw tensor data behind the JSON too, and OpenAI's API under /v1."
STYLE = """
body { font: 16px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }
td { padding: .2em 1em .2em 0; vertical-align: top }
code { white-space: nowrap }
"""
ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "description": "Why: a text under /v2, an object with a message under /v1.",
            "oneOf": [{"type": "string"}, {"type": "object", "properties": {"message": {"type": "string"}}}],
        }
    },
}


def described(
    app: App, *, gets: Routes, posts: Routes, public: Routes, bodies: Mapping[Callable[..., Any], Any]
) -> dict[str, Any]:
    """The document of an app, with the models that it has now.

    Args:
        app: The app to describe.
        gets, posts, public: Handlers by the patterns of their URLs; ``public`` are GET, and need no token.
        bodies: The type of the JSON that a handler takes.
    """
    types = list(dict.fromkeys(bodies.values()))
    references, schemas = msgspec.json.schema_components(types, ref_template=REFERENCE)
    by_type = dict(zip(types, references, strict=True))
    paths: dict[str, Any] = {}
    for routes, method in ((public, "get"), (gets, "get"), (posts, "post")):
        for path, handler in routes.items():
            operation = _operation(app, path, _first_line(handler))
            if routes is public:
                operation["security"] = []
            elif app.has_rules:
                needed = " or ".join(sorted(right_of(method.upper(), path)))
                operation["description"] = f"It needs the right {needed}."
            if handler in bodies:
                content = {JSON: {"schema": by_type[bodies[handler]]}}
                operation["requestBody"] = {"required": "repository" not in path, "content": content}
            paths.setdefault(path, {})[method] = operation
    schemas["Error"] = ERROR
    for path, name in app.own.items():
        paths[path] = {"post": _own(app, path, app.models[name], schemas)}
    components: dict[str, Any] = {"schemas": schemas}
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": app.name,
            "version": callboard.__version__,
            "description": ABOUT,
        },
        "paths": paths,
        "components": components,
    }
    if app.has_rules:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


def _operation(app: App, path: str, summary: str) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", path)
    versions = sorted({model.version for model in app.served})
    allowed = {"model": {"enum": list(app.models)}, "version": {"enum": versions}}
    error = {"description": "an error", "content": {JSON: {"schema": {"$ref": REFERENCE.format(name="Error")}}}}
    return {
        "summary": summary,
        "tags": [path.split("/")[1]],
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string", **allowed.get(name, {})}}
            for name in names
        ],
        "responses": {"200": {"description": "the response"}, "default": error},
    }


def _own(app: App, path: str, model: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """A route of the app's own."""
    operation = _operation(app, path, f"Ask model {model.name!r}.")
    if app.has_rules:
        operation["description"] = "It needs the right infer."
    schema = model.request.schema(schemas, result=False)
    operation["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
    answer = {("text/event-stream" if model.streams else JSON): {"schema": model.response.schema(schemas, result=True)}}
    operation["responses"]["200"]["content"] = answer
    return operation


def _first_line(handler: Callable[..., Any]) -> str:
    return (handler.__doc__ or "").strip().partition("\n")[0]


def page(document: Mapping[str, Any], models: Iterable[Model]) -> str:
    """The document as HTML that needs nothing else.

    Args:
        document: Document from :func:`described`.
        models: Models of the app.
    """
    info = document["info"]
    lines = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        f"<title>{escape(info['title'])}</title>",
        f"<style>{STYLE}</style>",
        f"<h1>{escape(info['title'])}</h1>",
        f"<p>{escape(info['description'])} <a href=openapi.json>As an OpenAPI document</a></p>",
        "<h2>Models</h2><table>",
        *_rows((model.name, _tensors(model), model.why_not_ready() or "ready") for model in models),
        "</table><h2>Requests</h2><table>",
        *_rows(
            (f"{method.upper()} {path}", operation["summary"])
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        ),
        "</table></html>",
    ]
    return "\n".join(lines)


def _rows(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for first, *others in rows:
        yield f"<tr><td><code>{escape(first)}</code>" + "".join(f"<td>{escape(each)}" for each in others)


def _tensors(model: Model) -> str:
    if isinstance(model, TypedModel):
        return f"{model.request!r} to {model.response!r}"
    if not isinstance(model, TensorModel | EmbeddingModel):
        return "text to text"
    sides = (
        ", ".join(f"{tensor.name} {tensor.datatype} {list(tensor.shape)}" for tensor in side)
        for side in (model.inputs, model.outputs)
    )
    return " to ".join(sides)
