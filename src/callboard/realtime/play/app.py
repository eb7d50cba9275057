"""``play_app``: the ASGI application that shows a simulation live; without the token it gives nothing."""

import hmac
import json
from importlib import resources
from typing import Any

from callboard.realtime.play.show import Show

__all__ = ["play_app"]

COOKIE = "callboard_play"
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
KINDS = {"play.css": "text/css", "play.js": "text/javascript"}


def play_app(show: Show, name: str, token: str) -> Any:
    """The application: ``/``, ``/about`` (sliders), ``/frame?after=7`` (pixels), ``/set`` (a slider), and its files.

    A viewer asks for the next frame when it has drawn one, so a slow one gets fewer frames, and nothing is queued.

    Args:
        show: Entered.
        name: Of the player.
        token: What a viewer must know; ``/?token=…`` keeps it in a cookie that other sites cannot send.

    Raises:
        ImportError: Starlette is not installed: ``pip install "callboard[serve]"``.
    """
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import RedirectResponse, Response
    from starlette.routing import Route

    def allowed(given: str | None) -> bool:
        return hmac.compare_digest((given or "").encode("utf-8", "replace"), token.encode())

    def answer(content: Any, status: int = 200, kind: str = "application/json") -> Response:
        return Response(content if isinstance(content, bytes) else json.dumps(content), status, HEADERS, kind)

    async def page(request: Request) -> Response:
        given = request.query_params.get("token")
        if given is not None and allowed(given):
            response: Response = RedirectResponse(request.url.path, 303, HEADERS)
            response.set_cookie(COOKIE, token, httponly=True, samesite="strict", path=request.url.path)
            return response
        return answer(_file("play.html"), kind="text/html") if allowed(request.cookies.get(COOKIE)) else refused()

    def refused() -> Response:
        return answer({"error": "open the address that `callboard play` printed, with its token"}, 403)

    async def about(request: Request) -> Response:
        if not allowed(request.cookies.get(COOKIE)):
            return refused()
        sliders = [one._replace(value=show.values[one.name])._asdict() for one in show.player.sliders]
        return answer({"name": name, "about": show.player.about, "sliders": sliders})

    async def frame(request: Request) -> Response:
        if not allowed(request.cookies.get(COOKIE)):
            return refused()
        try:
            after = int(request.query_params.get("after", "-1"))
        except ValueError:
            return answer({"error": "after must be the number of a frame"}, 400)
        shown = await show.newest(after)
        said = {
            "X-Frame": f"{shown.frame.number}",
            "X-Size": f"{shown.width} {shown.height}",
            "X-Time": f"{shown.frame.time:.3f}",
        }
        return Response(shown.pixels, 200, HEADERS | said, "application/octet-stream")

    async def change(request: Request) -> Response:
        if not allowed(request.cookies.get(COOKIE)):
            return refused()
        try:
            given = await request.json()
            await show.set(given["name"], given["value"])
        except (ValueError, TypeError, KeyError) as error:
            return answer({"error": str(error)}, 400)
        return answer({})

    async def file(request: Request) -> Response:
        asked = request.path_params["file"]
        if asked == "favicon.ico":  # every browser asks; there is none
            return Response(None, 204, HEADERS)
        return answer(_file(asked), kind=KINDS[asked]) if asked in KINDS else answer({"error": "not found"}, 404)

    return Starlette(
        routes=[
            Route("/", page),
            Route("/about", about),
            Route("/frame", frame),
            Route("/set", change, methods=["POST"]),
            Route("/{file}", file),
        ]
    )


def _file(name: str) -> bytes:
    return (resources.files("callboard.realtime.play") / "data" / name).read_bytes()
