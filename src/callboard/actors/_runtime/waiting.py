"""Waiting for an actor from outside: for room in its mailbox, and for its end."""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from callboard.actors._runtime import lifecycle
from callboard.actors._runtime.envelopes import carried
from callboard.actors.errors import ActorStopped, MailboxFull
from callboard.events.ring import EVENTS

if TYPE_CHECKING:
    from callboard.actors._runtime.cell import Cell

__all__ = ["offer", "wait_stopped"]


async def offer(cell: "Cell", message: Any, timeout: float | None) -> None:
    """See :meth:`ActorRef.offer`."""
    if cell.closed:
        raise lifecycle.stopped_error(cell)
    port = cell.system._port_of(asyncio.get_running_loop())
    future: asyncio.Future[bool | None] = port.loop.create_future()
    admitted = partial(port.run, _resolve, future)
    if cell.lane.wait_for_room(message if EVENTS.ring is None else carried(message), admitted):
        if not cell.awake:
            cell.wake()
        return
    if cell.closed:  # closed meanwhile by another thread, which may have overlooked this one
        cell.lane.close()
    timer = None if timeout is None else port.clock.call_later(timeout, _resolve, future, None)
    try:
        done = await future
    except asyncio.CancelledError:
        cell.lane.give_up(admitted)
        raise
    finally:
        if timer is not None:
            timer.cancel()
    if done is None and cell.lane.give_up(admitted):
        raise MailboxFull(f"{cell.path} had no room for {type(message).__qualname__} within {timeout:g} s")
    if done is False:
        raise ActorStopped(
            f"{cell.path} stopped ({lifecycle.cause_of(cell)}) before it had room for {type(message).__qualname__}"
        ) from cell.cause


async def wait_stopped(cell: "Cell", timeout: float) -> BaseException | None:
    """See :meth:`ActorRef.stopped`."""
    port = cell.system._port_of(asyncio.get_running_loop())
    future: asyncio.Future[BaseException | None] = port.loop.create_future()
    cell.post_system(lifecycle.on_listen, future, partial(port.run, _resolve, future))
    late = TimeoutError(f"{cell.path} still runs after {timeout:g} s")
    timer = port.clock.call_later(timeout, _resolve, future, late)
    try:
        outcome = await future
    finally:
        timer.cancel()
        if not cell.gone:
            cell.post_system(lifecycle.on_unlisten, future)
    if outcome is late:
        raise late
    return outcome


def _resolve(future: "asyncio.Future[Any]", value: Any) -> None:
    if not future.done():
        future.set_result(value)
