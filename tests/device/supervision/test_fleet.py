"""The arenas of a device: given up when two periods did not need them, by every host that maps them."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.device.host.context.serve import ContextHost
from callboard.device.protocol.arena import Arena
from callboard.device.protocol.messages import MapArena, UnmapArena
from callboard.device.supervision.fleet import Fleet

MIB = 1 << 20


class Timers:
    """Stands for a loop: what is to be called later is called by the test."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def call_later(self, delay: float, call: Callable[[], None]) -> Any:
        self.due.append(call)
        return SimpleNamespace(cancel=lambda: self.due.remove(call))

    def call_soon_threadsafe(self, call: Callable[..., None], *args: Any) -> None:
        call(*args)

    def pass_on(self) -> None:
        due, self.due = self.due, []
        for call in due:
            call()


class Mapping:
    """Stands for a host: the arenas that it maps."""

    def __init__(self) -> None:
        self.arenas: set[int] = set()

    def send_arena(self, arena: Arena) -> None:
        self.arenas.add(arena.id)

    def retire_arena(self, arena: Arena) -> None:
        self.arenas.remove(arena.id)


async def test_idle_arenas_are_given_up_and_the_timer_rests() -> None:
    loop: Any = Timers()
    host: Any = Mapping()
    fleet = Fleet(loop, 256 * MIB, False, lambda: [host])
    assert loop.due == []
    for _ in range(2):
        slots = [fleet.arenas.take(nbytes) for nbytes in (100, 9 * MIB, 20 * MIB)]
        assert len(host.arenas) == 3
        assert len(loop.due) == 1
        for slot in slots:
            fleet.arenas.give(slot)
        loop.pass_on()
        assert len(host.arenas) == 3
        loop.pass_on()
        assert host.arenas == set()
        assert loop.due == []
    fleet.arenas.take(100)
    await fleet.close(1.0)
    assert loop.due == []


class Closing:
    """Stands for a host that does not end before it is killed: the times that it was given."""

    def __init__(self) -> None:
        self.given: list[float] = []
        self.killed = asyncio.Event()

    def send_arena(self, arena: Arena) -> None: ...

    def retire_arena(self, arena: Arena) -> None: ...

    async def close(self, timeout: float) -> None:
        self.given.append(timeout)
        await self.killed.wait()


async def test_a_host_is_asked_again_only_for_a_shorter_time() -> None:
    loop: Any = Timers()
    host: Any = Closing()
    fleet = Fleet(loop, 256 * MIB, False, lambda: [host])
    fleet.hosts.add(host)
    fleet.hurry(0.5)  # nothing is being closed
    closing = asyncio.create_task(fleet.close(600.0))
    for within in (600.0, 0.75, 0.75, 0.5):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        fleet.hurry(within)
    for _ in range(5):
        await asyncio.sleep(0)
    assert host.given == [600.0, 0.75]
    host.killed.set()
    await asyncio.wait_for(closing, 30.0)

    again = asyncio.create_task(fleet.close(0.75))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    fleet.hurry(0.75)
    await asyncio.wait_for(again, 30.0)
    assert host.given == [600.0, 0.75, 0.75]


async def test_a_standby_without_a_context_keeps_no_memory_of_an_arena_that_is_gone() -> None:
    calls: list[Any] = []
    channel: Any = SimpleNamespace(
        map_arena=lambda *arguments: calls.append(arguments), unmap_arena=lambda arena: calls.append(arena)
    )
    host = ContextHost(channel)
    for message in (MapArena(1, 4096), MapArena(2, 8192), UnmapArena(1)):
        host.handle(message)
    assert calls == [(1, 4096, 0), 1]  # mapped and unmapped, so that its descriptor is closed
    assert host._early == [MapArena(2, 8192)]


@pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only")
async def test_a_host_unmaps_what_is_given_up() -> None:
    async with cb.device("cpu", isolation="process", standby=None) as dev:
        maps = Path(f"/proc/{dev.health().host_pid}/maps")
        await dev.put(np.zeros(20 * MIB, np.uint8)).get()
        assert "callboard-arena" in await asyncio.to_thread(maps.read_text)
        assert dev._actor.arenas.trim() > 0
        await dev.stats()  # the host has come to what was sent before
        assert "callboard-arena" not in await asyncio.to_thread(maps.read_text)
        await dev.put(np.ones(20 * MIB, np.uint8)).get()


async def test_a_thread_is_done_with_the_memory_before_it_goes() -> None:
    async with cb.device("cpu", isolation="thread") as dev:
        await dev.put(np.zeros(20 * MIB, np.uint8)).get()
        host: Any = dev._actor.host
        assert dev._actor.arenas.trim() > 0
        await dev.stats()
        assert host._channel.arenas == {}
