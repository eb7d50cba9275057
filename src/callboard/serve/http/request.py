"""``Request``: an HTTP request as handlers receive it. ``Fields``: its headers. ``receive_soon``: its next message."""

import asyncio
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from starlette.types import Message, Receive, Scope

__all__ = ["Fields", "Request", "receive_soon"]


class Fields(Mapping[str, str]):
    """Headers by name, case-insensitive. For a repeated header, the first value counts.

    Args:
        raw: Headers from ASGI: names in lower case.

    Attributes:
        raw: The same as a dict.
    """

    __slots__ = ("raw",)

    def __init__(self, raw: Iterable[tuple[bytes, bytes]]) -> None:
        self.raw = dict(reversed(list(raw)))

    def __getitem__(self, name: str) -> str:
        return self.raw[name.lower().encode("latin-1")].decode("latin-1")

    def get(self, name: str, default: Any = None) -> Any:
        value = self.raw.get(name.lower().encode("latin-1"))
        return default if value is None else value.decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in reversed(self.raw))

    def __len__(self) -> int:
        return len(self.raw)


class Request:
    """A request; its body is given apart.

    Attributes:
        path: Path of the URL, without that under which the app is mounted.
        path_params: The parts of the path that its route names.
        headers: See :class:`Fields`.
        held: Bytes of its body in memory.
    """

    __slots__ = ("headers", "held", "path", "path_params", "receive", "scope")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.receive = receive
        self.path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        self.path_params: dict[str, Any] = scope.get("path_params", {})
        self.headers = Fields(scope["headers"])
        self.held = 0


async def receive_soon(receive: Receive, seconds: float) -> Message:
    """The next message. There is a timer only if it is not there yet, as a small body is: a timer costs more.

    Raises:
        TimeoutError: The message did not arrive within ``seconds``.
    """
    found: Message
    steps = receive().__await__()
    try:
        waits_for = next(steps)
    except StopIteration as done:
        found = done.value
        return found
    async with asyncio.timeout(seconds):
        found = await _Rest(steps, waits_for)
        return found


class _Rest:
    """The rest of an awaitable that was run up to its first wait."""

    def __init__(self, steps: Generator[Any, Any, Any], waits_for: Any) -> None:
        self._steps = steps
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        waits_for = self._waits_for
        while True:
            resume: Callable[[], Any] = partial(next, self._steps)
            try:
                yield waits_for
            except BaseException as e:  # cancelled, by the timer for example
                resume = partial(self._steps.throw, e)
            try:
                waits_for = resume()
            except StopIteration as done:
                return done.value
