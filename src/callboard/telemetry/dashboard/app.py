"""``dashboard``: the ASGI application of the page. Read only; without the token it gives nothing."""

import hmac
from collections.abc import AsyncIterator
from importlib import resources
from typing import Any

from callboard.telemetry.dashboard.feed import Feed

__all__ = ["COOKIE", "dashboard"]

COOKIE = "callboard_dashboard"

KINDS = {"dashboard.css": "text/css", "dashboard.js": "text/javascript"}

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def dashboard(feed: Feed, token: str) -> Any:
    """The application: ``/`` (the page), ``/events`` (Server-Sent Events), and the page's own files.

    ``/?token=…`` keeps the token in a cookie that scripts cannot read and other sites do not send.

    Args:
        feed: The snapshots.
        token: What a viewer must know.

    Returns:
        An ASGI application of Starlette.

    Raises:
        ImportError: Starlette is not installed: ``pip install "callboard[serve]"``.
    """
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import RedirectResponse, Response, StreamingResponse
    from starlette.routing import Route

    def allowed(given: str | None) -> bool:
        return hmac.compare_digest((given or "").encode("utf-8", "replace"), token.encode())

    def refused() -> Response:
        return Response("open the address that `callboard dashboard` printed, with its token\n", 403, HEADERS)

    async def page(request: Request) -> Response:
        if (given := request.query_params.get("token")) is not None:
            if not allowed(given):
                return refused()
            response: Response = RedirectResponse(request.url.path, 303, HEADERS)
            response.set_cookie(COOKIE, token, httponly=True, samesite="strict", path=request.url.path)
            return response
        if not allowed(request.cookies.get(COOKIE)):
            return refused()
        return Response(_file("dashboard.html"), 200, HEADERS, "text/html")

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        if name == "favicon.ico":  # every browser asks; there is none
            return Response(None, 204, HEADERS)
        if name not in KINDS:
            return Response("not found\n", 404, HEADERS)
        return Response(_file(name), 200, HEADERS, KINDS[name])

    async def events(request: Request) -> Response:
        if not allowed(request.cookies.get(COOKIE)):
            return refused()
        if feed.full:
            return Response("too many pages are open\n", 503, HEADERS)
        return StreamingResponse(_events(feed), 200, HEADERS, "text/event-stream")

    return Starlette(routes=[Route("/", page), Route("/events", events), Route("/{name}", file)])


async def _events(feed: Feed) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n\n"
    try:
        async for frame in feed.frames():
            yield b"data: " + frame + b"\n\n"
    except Exception as error:  # of the application, which has ended mostly
        yield f"event: ended\ndata: {' '.join(str(error).split())}\n\n".encode()


def _file(name: str) -> bytes:
    return (resources.files("callboard.telemetry.dashboard") / "data" / name).read_bytes()
