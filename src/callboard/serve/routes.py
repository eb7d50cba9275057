"""The URLs of an app, and the Starlette application that has them."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request as StarletteRequest
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from callboard.events.concerns import REQUEST_ID, TRACE
from callboard.serve import inference, openai
from callboard.serve.app import App
from callboard.serve.chains.names import NAME
from callboard.serve.chains.typed import TypedModel
from callboard.serve.edge import Body, Endpoint, Handler, error_response
from callboard.serve.encoding.messages import InferBody
from callboard.serve.errors import HttpError, NotReady, Refusal, refusal_of
from callboard.serve.figures import all_metrics
from callboard.serve.generation import oip
from callboard.serve.generation import openai as generation
from callboard.serve.generation.events import Events, events_of
from callboard.serve.http.compression import off_loop
from callboard.serve.http.noted import Noted, noted
from callboard.serve.http.openapi import described, page
from callboard.serve.http.quarantine import PardonRequest, pardon, quarantine
from callboard.serve.http.request import Request
from callboard.serve.http.rights import Right, check_right
from callboard.telemetry.dashboard.app import dashboard
from callboard.telemetry.dashboard.feed import Feed
from callboard.telemetry.export.prometheus import CONTENT_TYPE
from callboard.telemetry.observed import snapshot_of_all
from callboard.telemetry.sampling.snapshot import Snapshot

__all__ = ["asgi"]

GETS: dict[str, Handler] = {
    "/v2": inference.server_metadata,
    "/v2/models/stats": inference.statistics,
    "/v2/models/{model}": inference.model_metadata,
    "/v2/models/{model}/versions/{version}": inference.model_metadata,
    "/v2/models/{model}/ready": inference.model_ready,
    "/v2/models/{model}/versions/{version}/ready": inference.model_ready,
    "/v2/models/{model}/config": inference.config,
    "/v2/models/{model}/versions/{version}/config": inference.config,
    "/v2/models/{model}/stats": inference.model_statistics,
    "/v2/models/{model}/versions/{version}/stats": inference.model_statistics,
    "/v2/trace/setting": inference.trace_setting,
    "/v2/models/{model}/trace/setting": inference.trace_setting,
    "/v2/quarantine": quarantine,
    "/v2/systemsharedmemory/status": inference.region_status,
    "/v2/systemsharedmemory/region/{region}/status": inference.region_status,
    "/v1/models": openai.models,
    "/v1/models/{model}": openai.model,
}
POSTS: dict[str, Handler] = {
    "/v2/models/{model}/infer": inference.infer,
    "/v2/models/{model}/versions/{version}/infer": inference.infer,
    "/v2/quarantine/pardon": pardon,
    "/v2/repository/index": inference.index,
    "/v2/repository/models/{model}/load": inference.load,
    "/v2/repository/models/{model}/unload": inference.unload,
    "/v2/trace/setting": inference.update_trace_setting,
    "/v2/models/{model}/trace/setting": inference.update_trace_setting,
    "/v2/systemsharedmemory/unregister": inference.unregister_region,
    "/v2/systemsharedmemory/region/{region}/register": inference.register_region,
    "/v2/systemsharedmemory/region/{region}/unregister": inference.unregister_region,
    "/v1/embeddings": openai.embeddings,
    "/v1/completions": generation.completions,
    "/v1/chat/completions": generation.chat,
    "/v2/models/{model}/generate": oip.generate,
    "/v2/models/{model}/versions/{version}/generate": oip.generate,
    "/v2/models/{model}/generate_stream": oip.generate_stream,
    "/v2/models/{model}/versions/{version}/generate_stream": oip.generate_stream,
}
BODIES: dict[Handler, Any] = {
    pardon: PardonRequest,
    inference.infer: InferBody,
    inference.index: inference.IndexRequest,
    inference.load: inference.ControlRequest,
    inference.unload: inference.ControlRequest,
    inference.register_region: inference.RegionRequest,
    openai.embeddings: openai.EmbeddingRequest,
    generation.completions: generation.CompletionRequest,
    generation.chat: generation.ChatRequest,
    oip.generate: oip.GenerateRequest,
    oip.generate_stream: oip.GenerateRequest,
}
"""The type of the JSON that each takes."""
PUBLIC: dict[str, Handler] = {"/v2/health/live": inference.live, "/v2/health/ready": inference.ready}


async def metrics(app: App, request: Request, body: memoryview) -> Body:
    """The figures for Prometheus."""
    text = await (app.all_figures() if app.all_figures is not None else all_metrics(app))
    return Body([text.encode()], {"content-type": CONTENT_TYPE})


READ: frozenset[Right] = frozenset({"read"})
"""The right that the page of the process needs."""
ASKS: frozenset[Right] = frozenset({"infer"})
"""The right that routes of one's own need."""


async def own(app: App, request: Request, body: memoryview) -> Body | Events:
    """Ask a model at a route of its own."""
    app.check_accepting()
    model = app.route(app.own[request.path])
    assert isinstance(model, TypedModel)
    await app.until_ready(model)
    value = await off_loop(len(body), lambda: model.request.read(body))
    timeout, tenant = app.limits.request_timeout, app.tenant_of(request.headers)
    if model.streams:
        parts = model.parts(value, timeout=timeout, tenant=tenant)
        return await events_of(_events(parts), oip.failed)
    return Body([await model.answer(value, timeout=timeout, tenant=tenant)], {"content-type": "application/json"})


async def _events(parts: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(parts):
        async for part in parts:
            yield b"data: " + part + b"\n\n"


def _document(app: App, request: Request) -> dict[str, Any]:
    gets = {**GETS, "/metrics": metrics, "/openapi.json": openapi, "/docs": docs}
    document = described(app, gets=gets, posts=POSTS, public=PUBLIC, bodies=BODIES)
    if root := request.scope.get("root_path"):
        document["servers"] = [{"url": root}]
    return document


async def openapi(app: App, request: Request, body: memoryview) -> Body:
    """All of this as an OpenAPI document."""
    return Body(_document(app, request))


async def docs(app: App, request: Request, body: memoryview) -> Body:
    """The same as a page for people."""
    return Body([page(_document(app, request), app.served).encode()], {"content-type": "text/html; charset=utf-8"})


async def _no_icon(request: StarletteRequest) -> Response:
    """Every browser that shows a page asks; there is none."""
    return Response(None, 204)


def _dashboard(app: App) -> Mount:
    """The page of this process, for clients that may read."""

    async def seen() -> Snapshot:
        if app.draining:  # the page would keep the server from its end
            raise NotReady(app.why_not_ready())
        return await snapshot_of_all()

    def may_see(headers: Mapping[str, str]) -> bool:
        try:
            check_right(app.dashboard_token or app.token, app.rights, READ, headers)
        except HttpError:
            return False
        return True

    return Mount("/dashboard", dashboard(Feed(seen), may_see))


class Routes:
    """The ASGI application of an app: Starlette's, which is asked once for the route of each path of a model."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._starlette = _starlette(app)
        self._own = 0  # routes of the app's own that Starlette knows
        self._found: dict[tuple[str, str], tuple[Endpoint, dict[str, Any]]] = {}  # as many as models have routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._starlette(scope, receive, send)
            return
        about = Noted(scope)
        token, named, within = noted.set(about), REQUEST_ID.set(about.id), TRACE.set(about.trace)
        try:
            await self._answer(scope, receive, about.sending(send, lambda: self._app.draining))
        finally:
            about.end()  # the line of the log has the ids, too
            noted.reset(token)
            REQUEST_ID.reset(named)
            TRACE.reset(within)

    def _add_own(self) -> None:
        """Add the routes that the app has got meanwhile, as in its ``lifespan``."""
        for path in list(self._app.own)[self._own :]:
            endpoint = Endpoint(self._app, path, own, watched=True, method="POST", needed=ASKS)
            self._starlette.router.routes.append(Route(path, endpoint, methods=["POST"]))
        self._own = len(self._app.own)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._own < len(self._app.own):
            self._add_own()
        if scope["method"] != "POST":
            await self._starlette(scope, receive, send)
            return
        key = scope.get("root_path", ""), scope["path"]
        found = self._found.get(key)
        if found is None:
            await self._starlette(scope, receive, send)
            endpoint, params = scope.get("endpoint"), scope.get("path_params", {})
            if isinstance(endpoint, Endpoint) and endpoint.watched and self._is_of_app(params):
                self._found[key] = endpoint, params
        else:
            endpoint, scope["path_params"] = found
            await endpoint(scope, receive, send)

    def _is_of_app(self, params: dict[str, str]) -> bool:
        """True if the path names an existing model, or none: clients can invent any number of other paths."""
        if "model" not in params:
            return not params
        versions = self._app.versions.get(params["model"])
        return versions is not None and params.get("version", versions.default.version) in versions.all


def asgi(app: App) -> Routes:
    """The ASGI application of an app."""
    return Routes(app)


class _Name(StringConvertor):
    regex = NAME


register_url_convertor("callboard_name", _Name())


def _route(path: str, endpoint: Endpoint, method: str) -> Route:
    return Route(path.replace("{model}", "{model:callboard_name}"), endpoint, methods=[method])


def _starlette(app: App) -> Starlette:
    # Routes are tried one after the other: first those of requests that are many.
    routes = [
        *(
            _route(path, Endpoint(app, path, handler, watched=True, method="POST"), "POST")
            for path, handler in POSTS.items()
        ),
        *(_route(path, Endpoint(app, path, handler, public=True), "GET") for path, handler in PUBLIC.items()),
        *(
            _route(path, Endpoint(app, path, handler), "GET")
            for path, handler in {**GETS, "/metrics": metrics, "/openapi.json": openapi, "/docs": docs}.items()
        ),
        Route("/favicon.ico", _no_icon, methods=["GET"]),
        *([_dashboard(app)] if app.dashboard else ()),
    ]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with app.running():
            yield

    async def not_found(request: StarletteRequest, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.url.path.removeprefix(request.scope.get("root_path", ""))
        refusal = Refusal(error.status_code, f"{request.method} {path}: {error.detail}")
        if not app.accepting:  # its lifespan may add the route
            refusal = refusal_of(NotReady(app.why_not_ready()))
        body = error_response(path, refusal)
        return Response(body.bytes, body.status, {**body.headers, **(error.headers or {})})

    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: not_found})
