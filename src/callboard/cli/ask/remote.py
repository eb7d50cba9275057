"""A generator on another server: chat completions of OpenAI's API, read as they are written."""

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, Iterator
from typing import Any

__all__ = ["RemoteModel"]

TIMEOUT = 60.0
"""Seconds without a byte."""
LONGEST = 300
"""Characters of a server's error that are shown."""


class RemoteModel:
    """Calls a server that speaks OpenAI's API.

    Args:
        url: Its base, such as ``http://127.0.0.1:8000/v1``; ``/v1`` may be left out.
        model: Name of the model; None: the first one of the server's list.
        token: Bearer token; None: none is sent.

    Raises:
        ValueError: The URL is not one of HTTP.
    """

    def __init__(self, url: str, model: str | None = None, token: str | None = None) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"the model's URL is {url!r}; give one such as http://127.0.0.1:8000/v1")
        base = url.rstrip("/")
        self._base = base if base.endswith("/v1") else f"{base}/v1"
        self._model = model
        self._headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})

    async def __call__(self, messages: list[dict[str, Any]]) -> AsyncGenerator[str, None]:
        """The answer to a conversation, piece by piece.

        Raises:
            ConnectionError: The server cannot be reached, or answers with an error.
        """
        if self._model is None:
            self._model = await asyncio.to_thread(self._first_model)
        return self._pieces({"model": self._model, "messages": messages, "stream": True})

    async def _pieces(self, body: dict[str, Any]) -> AsyncGenerator[str, None]:
        loop, left = asyncio.get_running_loop(), threading.Event()
        come: asyncio.Queue[str | BaseException | None] = asyncio.Queue()

        def tell(what: str | BaseException | None) -> None:
            if not left.is_set():
                loop.call_soon_threadsafe(come.put_nowait, what)

        def read() -> None:
            try:
                for piece in self._read(body):
                    if left.is_set():
                        return
                    tell(piece)
                tell(None)
            except Exception as e:  # it is the caller's
                tell(e)

        threading.Thread(target=read, name="callboard ask", daemon=True).start()
        try:
            while (piece := await come.get()) is not None:
                if isinstance(piece, BaseException):
                    raise piece
                yield piece
        finally:
            left.set()

    def _read(self, body: dict[str, Any]) -> Iterator[str]:
        with self._opened("/chat/completions", json.dumps(body).encode()) as response:
            for raw in response:
                line = raw.decode("utf-8", "replace").strip()
                if not line.startswith("data:") or line == "data: [DONE]":
                    continue
                event = json.loads(line.removeprefix("data:"))
                if "error" in event:
                    raise ConnectionError(f"{self._base}: {str(event['error'])[:LONGEST]}")
                for choice in event.get("choices", ())[:1]:
                    if text := choice.get("delta", {}).get("content"):
                        yield text

    def _first_model(self) -> str:
        with self._opened("/models", None) as response:
            models = json.load(response).get("data") or []
        if not models:
            raise ConnectionError(f"{self._base} lists no model; name one with --model-name")
        return str(models[0]["id"])

    def _opened(self, path: str, body: bytes | None) -> Any:
        request = urllib.request.Request(self._base + path, body, self._headers)
        try:
            return urllib.request.urlopen(request, timeout=TIMEOUT)
        except urllib.error.HTTPError as e:
            text = e.read(4 * LONGEST).decode("utf-8", "replace")[:LONGEST]
            raise ConnectionError(f"{self._base}{path} answered {e.code}: {text}") from e
        except urllib.error.URLError as e:
            raise ConnectionError(f"{self._base} cannot be reached: {e.reason}") from e
