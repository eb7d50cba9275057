"""``Group``: several collectives that begin together."""

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from callboard.multi_device.worlds.calls import Collectives
from callboard.multi_device.worlds.reply import Collective
from callboard.multi_device.worlds.requests import Request, Requests

__all__ = ["Group"]


class Group(Collectives):
    """Collectives that every rank is given at once, when the block is left (``ncclGroupStart``, ``ncclGroupEnd``).

    ::

        with world.group() as group:
            right = [group.send(edge, to=(r + 1) % world.size) for r, edge in enumerate(edges)]
        await right[0]

    They run concurrently if their arrays allow it, cost one launch, and succeed or fail together. Their refs exist once
    the block has been left; awaiting one inside it raises ``RuntimeError``. If an exception leaves the block, or the
    call is refused at its end, none of them is called, and all fail with a ``RuntimeError`` that names the reason.
    Arrays that one of them writes cannot be used by another.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        requests: Requests,
        submit: Callable[[Sequence[Request], Sequence[Collective[Any]]], object],
    ) -> None:
        self._loop = loop
        self._requests = requests
        self._submit = submit
        self._asked: list[Request] | None = []
        self._replies: list[Collective[Any]] = []

    def _call(self, request: Request, result: Any) -> Any:
        if self._asked is None:
            raise RuntimeError("the group's block has been left; begin another one (world.group())")
        reply: Collective[Any] = Collective(self._loop, request.kind, result)
        self._asked.append(request)
        self._replies.append(reply)
        return reply

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        asked, self._asked = self._asked, None
        if error is None and asked:
            try:
                self._submit(asked, self._replies)
            except BaseException as e:  # of any class: the replies get it, too
                self._not_called(e)
                raise
        elif error is not None:
            self._not_called(error)

    def _not_called(self, error: BaseException) -> None:
        text = f"the group was not called: {type(error).__name__}: {error}"
        for reply in self._replies:
            if not reply.done():
                reply.fail(lambda: RuntimeError(text))
