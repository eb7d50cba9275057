"""``Stream``: when the parts of a streamed text came, by OpenAI's server-sent events."""

import json
from collections.abc import Callable
from typing import Any

__all__ = ["Stream"]


class Stream:
    """The parts of one response.

    Args:
        now: The time.

    Attributes:
        times: When each part with text came.
        tokens: Tokens that the server counted; without its count, the number of parts.
        error: The first event that is an error, or is none of this API.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._rest = b""
        self._counted: int | None = None
        self.error: bytes | None = None
        self._done = False
        self.times: list[float] = []

    @property
    def tokens(self) -> int:
        return len(self.times) if self._counted is None else self._counted

    def feed(self, data: bytes) -> None:
        """Note bytes of the response."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            name, _, value = line.partition(b":")
            if name == b"data":
                self._event(value.strip())

    def end(self, status: int) -> str:
        """How the request ended: the status, unless a stream that began well did not end so."""
        if status >= 300:
            return str(status)
        if self.error is not None:
            return "error in the stream"
        return str(status) if self._done else "unfinished stream"

    def _event(self, value: bytes) -> None:
        if value == b"[DONE]":
            self._done = True
            return
        try:
            found: Any = json.loads(value)
        except ValueError:
            found = None
        if not isinstance(found, dict) or "error" in found:
            self.error = self.error or value
            return
        if any(_text(choice) for choice in found.get("choices") or ()):
            self.times.append(self._now())
        if usage := found.get("usage"):
            self._counted = usage.get("completion_tokens")


def _text(choice: Any) -> Any:
    """The new text of a choice, of a chat or of a completion."""
    delta = choice.get("delta") or {}
    return choice.get("text") or delta.get("content") or delta.get("reasoning_content") or delta.get("tool_calls")
