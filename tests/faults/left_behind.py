"""A program whose op runs on when nobody waits for it any more, and then reads and writes the memory that it was given.

``left_behind.py WAY``: the op is held back until the device has been left in this way, everything has been dropped, and
the memory would have been unmapped. It then has to end well, and its threads with it. Prints what it observed.
"""

import asyncio
import contextlib
import gc
import os
import signal
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np

import callboard as cb
from callboard.backends.cpu import memory
from callboard.backends.cpu.cub import selection

BOUND = 30.0
N = 4 << 20
"""Elements: far more than an allocator keeps when they are freed."""

begun, goes_on = threading.Event(), threading.Event()
copied: list[bool] = []


def slow_copy(out: Any, src: Any) -> None:
    """``np.copyto``, when ``goes_on`` is set, where the destination is as large as the op that this is about."""
    if out.size < N or begun.is_set():
        np.copyto(out, src)
        return
    begun.set()
    goes_on.wait()
    np.copyto(out, src)
    copied.append(bool((out == src).all()))


def interrupt_when_begun() -> None:
    def interrupt() -> None:
        if begun.wait(BOUND):
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()


async def made(dev: cb.Device) -> cb.GpuRef:
    return await dev.xp.zeros(N, dtype="f4")


async def begin(reply: Any) -> Any:
    assert await asyncio.to_thread(begun.wait, BOUND)
    return reply


class Leaves(Exception):
    """Ends a body."""


async def interrupted(dispatcher: str, get: bool) -> None:
    async with cb.device("cpu", isolation="thread", dispatcher=dispatcher) as dev:
        a = await made(dev)
        interrupt_when_begun()
        await (a.get() if get else dev.copy(dev.copy(a)))


async def put_interrupted() -> None:
    async with cb.device("cpu", isolation="thread") as dev:
        interrupt_when_begun()
        await dev.put(np.ones(N, "f4"))


async def left(dispatcher: str, how: str) -> None:
    """An ordinary exception, and less time to close than the op takes; or a body that ends."""
    async with cb.device("cpu", isolation="thread", dispatcher=dispatcher, close_timeout=0.05) as dev:
        a = await made(dev)
        kept = [dev.copy(dev.copy(a)), a.get()]
        await begin(kept)
        if how == "raises":
            raise Leaves


async def stalled(dispatcher: str) -> None:
    async with cb.device("cpu", isolation="thread", dispatcher=dispatcher, stall_after=0.2) as dev:
        a = await made(dev)
        with contextlib.suppress(cb.AccelError):
            await dev.copy(a)


async def between_devices() -> None:
    async with cb.System() as system:
        one = await system.device("cpu:0", isolation="thread", close_timeout=0.05)
        other = await system.device("cpu:1", isolation="thread", close_timeout=0.05)
        a = await made(one)
        await begin(a.to(other))


class Copier(cb.ResidentActor):
    def copy(self, x: Any) -> int:
        out = np.empty_like(x)
        slow_copy(out, x)
        return int(out.size)


async def in_a_resident(interrupt: bool) -> None:
    async with cb.device("cpu", isolation="thread", close_timeout=0.05) as dev:
        a = await made(dev)
        actor = await dev.actor_of(cb.Props(Copier), "copier").ready()
        if interrupt:
            interrupt_when_begun()
        call = actor.call(Copier.copy, a)
        await (call if interrupt else begin(call))


async def sizes_asked() -> None:
    """A size query, which runs on the helper's thread and reads the array."""
    query = selection.Found.query_size

    def slow_query(found: Any, stream: Any, *addresses: Any) -> Any:
        begun.set()
        goes_on.wait()
        extents = query(found, stream, *addresses)
        copied.append(list(extents) == [(1,)])
        return extents

    selection.Found.query_size = slow_query  # type: ignore[method-assign]
    async with cb.device("cpu", isolation="thread", close_timeout=0.05) as dev:
        await begin(dev.cub.unique(await made(dev)))


def blocking() -> None:
    dev = cb.sync.device("cpu", isolation="thread")
    a = dev.xp.zeros(N, dtype="f4")
    interrupt_when_begun()
    try:
        dev.copy(a).get()
    finally:
        dev.close()


WAYS: dict[str, Any] = {
    "interrupted": lambda: interrupted("own", get=False),
    "interrupted-get": lambda: interrupted("own", get=True),
    "interrupted-caller": lambda: interrupted("caller", get=False),
    "interrupted-caller-get": lambda: interrupted("caller", get=True),
    "interrupted-put": put_interrupted,
    "raises": lambda: left("own", "raises"),
    "raises-caller": lambda: left("caller", "raises"),
    "ends": lambda: left("own", "ends"),
    "stalled": lambda: stalled("own"),
    "stalled-caller": lambda: stalled("caller"),
    "devices": between_devices,
    "resident": lambda: in_a_resident(interrupt=False),
    "resident-interrupted": lambda: in_a_resident(interrupt=True),
    "sizes": sizes_asked,
    "sync": blocking,
}


def leave(way: str) -> str:
    """Leave a device in this way; returns how long that took after the op had begun."""
    run = WAYS[way]
    done: list[float] = []

    def note() -> None:
        begun.wait()
        done.append(time.monotonic())

    threading.Thread(target=note, daemon=True).start()
    try:
        run() if way == "sync" else asyncio.run(run())
    except (KeyboardInterrupt, Leaves, cb.AccelError) as e:
        print("left by", type(e).__name__, flush=True)
    return f"{time.monotonic() - done[0]:.1f}"


def main(way: str) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    memory.np = SimpleNamespace(copyto=slow_copy, asarray=np.asarray, ndarray=np.ndarray)  # type: ignore[attr-defined]
    before = set(threading.enumerate())
    print("seconds", leave(way), flush=True)
    gc.collect()
    ballast = [np.ones(N, "f4") for _ in range(4)]  # the place of what was freed is taken
    goes_on.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(BOUND)
    print("copied", copied, flush=True)
    print("untouched", all((block == 1).all() for block in ballast), flush=True)
    left = [t.name for t in set(threading.enumerate()) - before if t.name.startswith("callboard-")]
    print("threads", [name for name in left if "host" in name or "left" in name or "stream" in name], flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
