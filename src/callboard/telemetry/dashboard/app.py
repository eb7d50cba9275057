"""``dashboard``: the ASGI application of the page. Read only; without the token it gives nothing."""

import asyncio
import functools
import hashlib
import hmac
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from importlib import resources
from typing import Any

from callboard.telemetry.dashboard.feed import Feed
from callboard.telemetry.observed import snapshot_of_all

__all__ = ["COOKIE", "dashboard", "process_dashboard"]

COOKIE = "callboard_dashboard"
"""How the names of cookies with tokens begin."""

Allowed = Callable[[Mapping[str, str]], bool]

LIFE = 20.0
"""Seconds of one response with events: then the page asks again. A server that ends waits for no page longer."""

KINDS = {"dashboard.css": "text/css", "dashboard.js": "text/javascript"}

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def process_dashboard(token: str) -> Any:
    """The page of this process, as an ASGI application that another one mounts, such as at ``/dashboard``.

    It shows the systems that are observed (``cb.observe(system)``) and the servers of the process, to those who know
    the token: the first address is ``/dashboard/?token=…``. ASGI servers that wait for open responses at their end,
    such as uvicorn, wait up to 20 s for an open page unless they have a limit (``timeout_graceful_shutdown``).

    Args:
        token: What a viewer must know.

    Returns:
        An ASGI application of Starlette.

    Raises:
        ValueError: The token is empty.
        ImportError: Starlette is not installed: ``pip install "callboard[serve]"``.
    """
    return dashboard(Feed(snapshot_of_all), token)


def dashboard(feed: Feed, token: str | Allowed) -> Any:
    """The application: ``/`` (the page), ``/events`` (Server-Sent Events), and the page's own files.

    ``/?token=…`` keeps the token in a cookie that scripts cannot read and other sites do not send.

    Args:
        feed: The snapshots.
        token: What a viewer must know; or a function that tells whether a request with these headers may see the page.
            What the viewer gave as ``token`` is ``authorization: Bearer …`` in them.

    Returns:
        An ASGI application of Starlette.

    Raises:
        ValueError: The token is empty.
        ImportError: Starlette is not installed: ``pip install "callboard[serve]"``.
    """
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import RedirectResponse, Response, StreamingResponse
    from starlette.routing import Route

    allowed = _knows(token) if isinstance(token, str) else token

    def known(request: Request) -> bool:
        given = [value for name, value in request.cookies.items() if name.startswith(COOKIE)]
        return allowed(request.headers) or any(allowed(_with(request.headers, each)) for each in given)

    def refused() -> Response:
        return Response("open the address of the dashboard with its token: …/?token=…\n", 403, HEADERS)

    async def page(request: Request) -> Response:
        if (given := request.query_params.get("token")) is not None:
            if not allowed(_with(request.headers, given)):
                return refused()
            path, secure = request.url.path, request.url.scheme == "https"
            response: Response = RedirectResponse(path, 303, HEADERS)
            response.set_cookie(_cookie(given), given, httponly=True, samesite="strict", path=path, secure=secure)
            return response
        if not known(request):
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
        if not known(request):
            return refused()
        if feed.full:
            return Response("too many pages are open\n", 503, HEADERS)
        return StreamingResponse(_events(feed), 200, HEADERS, "text/event-stream")

    return Starlette(routes=[Route("/", page), Route("/events", events), Route("/{name}", file)])


def _knows(token: str) -> Allowed:
    if not token.strip():
        raise ValueError("the token of the dashboard is empty: give one that others cannot guess")

    def allowed(headers: Mapping[str, str]) -> bool:
        given = headers.get("authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode("utf-8", "replace"))

    return allowed


def _with(headers: Mapping[str, str], given: str) -> dict[str, str]:
    """Headers of a client that sends what a viewer gave."""
    return {**headers, "authorization": f"Bearer {given}"}


def _cookie(token: str) -> str:
    """The cookie of a token: browsers send one to all ports of a host, where other pages have others."""
    return f"{COOKIE}_{hashlib.sha256(token.encode('utf-8', 'replace')).hexdigest()[:8]}"


async def _events(feed: Feed) -> AsyncIterator[bytes]:
    yield b"retry: 300\n\n"
    end = asyncio.get_running_loop().time() + LIFE
    try:
        async with aclosing(feed.frames()) as frames:
            async for frame in frames:
                yield b"data: " + frame + b"\n\n"
                if asyncio.get_running_loop().time() >= end:
                    return
    except Exception as error:  # of the application, which has ended mostly
        yield f"event: ended\ndata: {' '.join(str(error).split())}\n\n".encode(errors="replace")


@functools.cache
def _file(name: str) -> bytes:
    return (resources.files("callboard.telemetry.dashboard") / "data" / name).read_bytes()
