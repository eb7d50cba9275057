"""A context without a device: operations that a test answers, or loses together."""

import asyncio
from typing import Any

import callboard as cb
from callboard.core.errors import Suspect
from callboard.device.client.line.port import request_key


class Lab:
    """Operations stay in flight until the test ends them."""

    def __init__(self, name: str = "lab") -> None:
        self.name = name
        self.generation = 0
        self.in_flight: list[tuple[str, asyncio.Future[Any]]] = []
        self.began: list[str] = []

    async def op(self) -> str:
        key = request_key.get()
        assert key is not None
        self.began.append(key)
        future = asyncio.get_running_loop().create_future()
        self.in_flight.append((key, future))
        await future  # cancelling this leaves the operation in flight, as on a device
        return key

    @property
    def keys(self) -> list[str]:
        return [key for key, _ in self.in_flight]

    async def answer(self, key: str, error: BaseException | None = None) -> None:
        """Answer the oldest operation of a request."""
        found = next(each for each in self.in_flight if each[0] == key)
        self.in_flight.remove(found)
        if not found[1].done():
            found[1].set_result(None) if error is None else found[1].set_exception(error)
        await settle()

    async def lose(self, *, starting: tuple[str, ...] = (), unsent: bool = False) -> None:
        """All operations in flight fail."""
        suspects = [Suspect("lab", "lab.op", key, "lab.py:1") for key, _ in self.in_flight]
        lost, self.in_flight = self.in_flight, []
        for _, future in lost:
            error = cb.ContextPoisoned(f"{self.name}: lost", suspects)
            error.device, error.generation = self.name, self.generation
            error.starting, error.unsent = starting, unsent
            if not future.done():
                future.set_exception(error)
        self.generation += 1
        await settle()


async def settle() -> None:
    """Until no task can go on without the test."""
    for _ in range(12):
        await asyncio.sleep(0)


def start(quarantine: cb.Quarantine[Lab], *keys: str) -> list["asyncio.Task[str]"]:
    return [asyncio.create_task(quarantine.run(key, Lab.op), name=key) for key in keys]
