"""Resident actors with async methods, for tests; importable by context hosts."""

import asyncio
import contextlib
import sys
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
from tests.device.residents.lab import Add, OwnError, enter, local, made, own_thread

import callboard as cb


class Later(cb.ResidentActor):
    """Waits for events that other calls set."""

    supervision = cb.OneForOne(
        {KeyError: cb.Directive.RESTART, Exception: cb.Directive.RESUME},
        default=cb.Directive.RESTART,
        max_restarts=3,
        within=60.0,
    )
    max_concurrency = 4

    def __init__(self, ended: str = "") -> None:
        self.ended = ended
        self.log: list[str] = []
        self.running = self.most = 0

    def setup(self, ctx: cb.HostContext) -> None:
        self.ctx = enter(ctx)
        self.thread = threading.get_ident()
        self.events: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.background = asyncio.get_running_loop().create_task(self.wait("background"))

    def note(self, text: str) -> None:
        self.log.append(text)
        if self.ended:
            with open(self.ended, "a") as file:
                file.write(text + "\n")

    def leave(self) -> None:
        asyncio.get_running_loop().call_soon(sys.exit, 3)

    # -- waiting -------------------------------------------------------------------------------------------------------

    async def wait(self, name: str) -> str:
        self.running += 1
        self.most = max(self.most, self.running)
        self.log.append(f"{name} begins")
        try:
            await self.events[name].wait()
        except asyncio.CancelledError:
            self.note(f"{name} cancelled")
            raise
        finally:
            self.running -= 1
        assert threading.get_ident() == self.thread
        return name

    def open(self, name: str) -> None:
        assert threading.get_ident() == self.thread
        self.events[name].set()

    def open_all(self, names: list[str]) -> None:
        for name in names:
            self.open(name)

    def state(self) -> tuple[int, int, list[str]]:
        return self.running, self.most, self.log

    def open_streams(self) -> int:
        return len(own_thread()._streams)

    def cancel(self, call: int) -> None:
        own_thread().cancel(call)

    async def add_later(self, name: str, array: Any) -> None:
        await self.events[name].wait()
        self.add_now(array)

    def add_now(self, array: Any) -> None:
        device = self.ctx.device
        device.copy(device.put(device.copy(array).get() + 1.0), array)

    async def stubborn(self, name: str) -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await self.events[name].wait()
        return "in the end"

    async def endless(self) -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    # -- values --------------------------------------------------------------------------------------------------------

    async def echo(self, value: Any) -> Any:
        await asyncio.sleep(0)
        return value

    async def lend(self, n: int) -> cb.GpuRef:
        await asyncio.sleep(0)
        return self.ctx.ref(made(self.ctx, np.arange(n, dtype=np.float32)))

    async def lend_argument(self, array: Any) -> cb.GpuRef:
        await asyncio.sleep(0)
        return self.ctx.ref(array)

    def plain_later(self, value: int) -> Any:
        return self.echo(value)

    async def nested(self) -> Any:
        return self.echo(1)

    @Add.handles
    async def on_add(self, m: Add) -> int:
        await asyncio.sleep(0)
        return m.n + 1

    # -- device arrays -------------------------------------------------------------------------------------------------

    async def increment(self, array: Any, name: str = "", by: float = 1.0) -> None:
        before = local(array).copy()
        self.log.append("writing")
        if name:
            await self.events[name].wait()
        else:
            await asyncio.sleep(0)
        local(array)[...] = before + by  # lost updates, if two run at once
        self.log.append("written")

    async def total(self, array: cb.In, name: str = "") -> float:
        self.log.append("reading")
        if name:
            await self.events[name].wait()
        return float(local(array).sum())

    async def spoil(self, array: Any) -> None:
        await asyncio.sleep(0)
        raise OwnError("spoilt", 1)

    # -- failures ------------------------------------------------------------------------------------------------------

    async def fail(self, how: str) -> None:
        await asyncio.sleep(0)
        match how:
            case "own":
                raise OwnError("bad", 7)
            case "key":
                raise KeyError("restart")
            case "exit":
                sys.exit(3)
            case "cancelled":
                raise asyncio.CancelledError

    async def fail_after(self, name: str) -> None:
        await self.wait(name)
        raise KeyError("restart")

    def fail_at_once(self, how: str) -> None:
        if how == "exit":
            sys.exit(3)
        raise KeyError("restart")

    # -- streams -------------------------------------------------------------------------------------------------------

    async def count(self, n: int, name: str = "count") -> AsyncIterator[int]:
        try:
            for i in range(n):
                await asyncio.sleep(0)
                yield i
        finally:
            await asyncio.sleep(0)
            self.note(f"{name} closed")

    async def gated(self, n: int, name: str) -> AsyncIterator[int]:
        try:
            for i in range(n):
                if i:
                    await self.wait(name)
                yield i
        finally:
            await asyncio.sleep(0)
            self.note(f"{name} closed")

    async def fails(self, n: int, how: str) -> AsyncIterator[int]:
        for i in range(n):
            yield i
        await self.fail(how)

    def plain_count(self, n: int) -> Iterator[int]:
        yield from range(n)


class AsyncSetup(cb.ResidentActor):
    async def setup(self, ctx: cb.HostContext) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        self.number = 5

    def get(self) -> int:
        return self.number


class AsyncPrepare(cb.ResidentActor):
    async def prepare(self) -> None:  # type: ignore[override]
        ...

    def get(self) -> int:
        return 1


class Plain(cb.ResidentActor):
    """Has no async methods, but returns what they would."""

    def waits(self) -> Any:
        return asyncio.sleep(0)

    def yields(self) -> Any:
        async def items() -> AsyncIterator[int]:
            yield 1

        return items()

    def has_loop(self) -> bool:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return False
        return True
