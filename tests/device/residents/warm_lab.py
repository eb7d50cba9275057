"""An actor with a ``warm_up``, which notes what is called where; importable by context hosts."""

import os
from pathlib import Path

from tests.device.residents.lab import wait_at

import callboard as cb

__all__ = ["AsyncWarm", "FailingWarm", "Warm", "noted"]


def noted(log: Path, pid: int) -> list[str]:
    """What was called in a process, in order."""
    lines = [line.rpartition(" ") for line in log.read_text().splitlines()]
    return [what for what, _, process in lines if int(process) == pid]


class Warm(cb.ResidentActor):
    """Its ``warm_up`` waits at a gate, if it has one."""

    def __init__(self, log: str, gate: str = "") -> None:
        self.log, self.gate = log, gate
        self.fresh = True

    def note(self, what: str) -> None:
        with open(self.log, "a") as file:
            file.write(f"{what} {os.getpid()}\n")

    def prepare(self) -> None:
        self.note("prepare")

    def setup(self, ctx: cb.HostContext) -> None:
        self.note(f"setup {self.fresh} {ctx.generation > 0}")
        self.fresh = False

    def warm_up(self, ctx: cb.HostContext) -> None:
        if self.gate:
            wait_at(self.gate)
        self.setup(ctx)
        self.add(1)
        self.note("warmed up")

    def add(self, x: int) -> int:
        return x + 1

    def pid(self) -> int:
        return os.getpid()


class FailingWarm(Warm):
    def warm_up(self, ctx: cb.HostContext) -> None:
        self.note("fails")
        raise ValueError("no sample")


class AsyncWarm(Warm):
    async def warm_up(self, ctx: cb.HostContext) -> None:  # type: ignore[override]
        self.note(f"warmed up {await self.later(1)}")

    async def later(self, x: int) -> int:
        return x + 1
