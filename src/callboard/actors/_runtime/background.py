"""Background tasks of an actor: they belong to one incarnation, and their failure is the actor's failure."""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from callboard.actors._runtime import lifecycle

if TYPE_CHECKING:
    from callboard.actors._runtime.cell import Cell

__all__ = ["Background"]


class Background:
    """The running background tasks of one actor."""

    __slots__ = ("_owner", "_tasks")

    def __init__(self, owner: "Cell") -> None:
        self._owner = owner
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, coro: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run ``coro`` concurrently with the mailbox until it ends, or the actor restarts or stops."""
        task = self._owner.port.loop.create_task(coro, name=f"{self._owner.path} background")
        self._tasks.add(task)
        incarnation = self._owner.incarnation

        def ended(task: asyncio.Task[Any]) -> None:
            self._tasks.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None:
                self._owner.post_system(lifecycle.on_failure, incarnation, error, None)

        task.add_done_callback(ended)
        return task

    async def cancel_all(self) -> None:
        """Cancel all and wait until they have ended, for at most the grace time."""
        tasks = list(self._tasks)
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=lifecycle.GRACE)
