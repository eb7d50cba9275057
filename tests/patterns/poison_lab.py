"""A device that some requests kill, as its supervisor sees it."""

import asyncio

import callboard as cb
from callboard.actors import Directive
from callboard.core.errors import Suspect
from callboard.device.client.line.entries import GuardedKey, request_key
from callboard.device.supervision.supervisor import DeviceSupervisor

__all__ = ["Card"]


class Card:
    """It is lost with all its work by a negative number, and stops at the first loss without guarded work.

    Attributes:
        now: The time that its supervisor is told.
        losses: Contexts lost so far.
        stopped: True if there is no other.
    """

    def __init__(self) -> None:
        self.supervisor = DeviceSupervisor(max_restarts=0, within=60.0)
        self.now = 0.0
        self.losses = 0
        self.stopped = False
        self._running: dict[asyncio.Future[None], str | None] = {}

    async def double(self, numbers: list[int]) -> list[int]:
        if self.stopped:
            raise cb.DeviceStopped("it has lost too many contexts")
        over = asyncio.get_running_loop().create_future()
        self._running[over] = request_key.get()
        if any(number < 0 for number in numbers):
            asyncio.get_running_loop().call_soon(self._lose)
        else:
            asyncio.get_running_loop().call_soon(asyncio.get_running_loop().call_soon, self._end, over)
        await over
        return [2 * number for number in numbers]

    def _end(self, over: "asyncio.Future[None]") -> None:
        if self._running.pop(over, over) is not over and not over.done():
            over.set_result(None)

    def _lose(self) -> None:
        if not self._running:  # by another
            return
        lost, self._running = self._running, {}
        self.losses += 1
        suspects = [Suspect("gpu", "op", key, "a.py:1") for key in lost.values()]
        for over in lost:
            error = cb.ContextPoisoned("lost", suspects)
            error.device, error.generation = "gpu", self.losses
            error.guarded = any(isinstance(key, GuardedKey) for key in lost.values())
            if not over.done():
                over.set_exception(error)
        self.stopped |= self.supervisor.on_context_lost(error, self.now) is not Directive.RESTART

    async def one(self, number: int) -> int:
        return (await self.double([number]))[0]
