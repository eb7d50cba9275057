"""Completions: a handler returned a future; the mailbox continues, and the reply is sent when the future completes."""

import asyncio
import concurrent.futures
from functools import partial
from typing import TYPE_CHECKING, Any

from callboard.actors._runtime import lifecycle
from callboard.actors._runtime.envelopes import Ask, message_of
from callboard.actors.errors import HandlerCancelled, ReplyError
from callboard.actors.supervision import unwrap

if TYPE_CHECKING:
    from callboard.actors._runtime.cell import Cell

__all__ = ["as_failure", "follow"]


def follow(cell: "Cell", result: Any, item: Any) -> None:
    """Reply to ``item`` when ``result`` completes; on the cell's thread, whichever loop or thread completes it."""
    ask = item if type(item) is Ask and cell.current is item else None
    if ask is not None:
        cell.inflight.add(ask)
    done = partial(_completed, cell, ask, message_of(item), cell.incarnation)
    if isinstance(result, concurrent.futures.Future):
        result.add_done_callback(partial(cell.port.run, done))
        return
    future: asyncio.Future[Any] = asyncio.ensure_future(result)
    loop = future.get_loop()
    if loop is cell.port.loop:
        future.add_done_callback(done)
    else:
        loop.call_soon_threadsafe(future.add_done_callback, partial(cell.port.run, done))


def _completed(cell: "Cell", ask: Ask | None, message: Any, incarnation: int, future: Any) -> None:
    if ask is not None:
        cell.inflight.discard(ask)
    error = asyncio.CancelledError() if future.cancelled() else future.exception()
    if error is None:
        if ask is not None:
            ask.answer(future.result(), cell.port)
        return
    error = as_failure(unwrap(error), cell.path, message)
    cell.answer_error(error, ask, message)
    if not isinstance(error, ReplyError):
        cell.post_system(lifecycle.on_failure, incarnation, error, message)


def as_failure(error: BaseException, path: str, message: Any) -> BaseException:
    """The error itself; for a cancellation, a :class:`HandlerCancelled` in its place."""
    if not isinstance(error, asyncio.CancelledError):
        return error
    failure = HandlerCancelled(f"{path}: something {type(message).__qualname__} waited for was cancelled")
    failure.__cause__ = error
    return failure
