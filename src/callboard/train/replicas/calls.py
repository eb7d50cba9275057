"""Calls of several actors at once: their results, or the error that caused the others."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from callboard.core.errors import ContextLost, DeviceStopped, WorldLost

__all__ = ["every", "together"]


async def every(calls: Iterable[Any]) -> list[Any]:
    """The results of all, when all have ended.

    Raises:
        ContextLost, DeviceStopped: One failed with it, whatever the others did.
        Exception: The first one that failed.
    """
    results = await asyncio.gather(*_made(calls), return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    for error in errors:
        if isinstance(error, ContextLost | DeviceStopped):
            raise error
    if errors:
        raise errors[0]
    return results


async def together(calls: Iterable[Any], abort: Callable[[str], None]) -> list[Any]:
    """The results of calls that wait for each other.

    Args:
        calls: The calls.
        abort: Ends the waiting, for a reason, when one has failed or this is cancelled.

    Raises:
        ContextLost, DeviceStopped: A device was lost.
        Exception: What one raised, before what that meant for the others.
    """
    tasks = [asyncio.ensure_future(call) for call in _made(calls)]
    try:
        _, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        if waiting:
            abort("another one has failed")
            await asyncio.wait(waiting)
    except BaseException:  # cancelled: none may wait for one whose call was withdrawn
        abort("the step was cancelled")
        for task in tasks:
            task.cancel()
        raise
    errors = [error for error in (task.exception() for task in tasks) if error is not None]
    for error in sorted(errors, key=_rank_of):
        raise error
    return [task.result() for task in tasks]


def _rank_of(error: BaseException) -> int:
    """Causes before consequences: a lost device, a failure of the model, a world that has ended."""
    if isinstance(error, WorldLost):
        return 2
    return 0 if isinstance(error, ContextLost | DeviceStopped) else 1


def _made(calls: Iterable[Any]) -> list[Coroutine[Any, Any, Any]]:
    """The calls; the last one fails if it was refused, and those behind it are not made."""
    made: list[Coroutine[Any, Any, Any]] = []
    try:
        made.extend(map(_awaited, calls))
    except Exception as error:  # raised by the refused call, when it is awaited beside the others
        made.append(_refused(error))
    return made


async def _awaited(call: Any) -> Any:
    return await call


async def _refused(error: Exception) -> Any:
    raise error
