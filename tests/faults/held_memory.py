"""A program that reads memory of a device which has been closed, by a pointer or a view that it holds.

``held_memory.py WAY``: prints whether the values are there, and whether the memory goes when its holder does.
"""

import asyncio
import ctypes
import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

import callboard as cb

N = 16 << 20
"""Elements of 4 bytes: an allocator unmaps as much when it is freed."""

Array = np.ndarray[Any, Any]
kept: list[Any] = []


class Keeper(cb.ResidentActor):
    """Keeps an array over its own memory longer than it lives itself."""

    def setup(self, ctx: Any) -> None:
        self._device = ctx.device

    def make(self) -> None:
        kept.append(np.from_dlpack(self._device.put(np.full(N, 7, "f4"))))


def by_address(ref: cb.GpuRef) -> tuple[Any, Callable[[], Array]]:
    address, nbytes = ref.raw_device_ptr(), ref.nbytes
    return ref, lambda: np.frombuffer(ctypes.string_at(address, nbytes), "f4")


def by_view(view: Array) -> tuple[Any, Callable[[], Array]]:
    held = [view]
    del view
    return held, lambda: held[0]


async def in_a_resident(dev: cb.Device) -> tuple[Any, Callable[[], Array]]:
    actor = await dev.actor_of(cb.Props(Keeper), "keeper").ready()
    await actor.call(Keeper.make)
    return kept, lambda: kept[0]


async def held(way: str) -> tuple[Any, Callable[[], Array]]:
    """What holds the memory, and what reads it."""
    async with cb.device("cpu", isolation="thread") as dev:
        match way:
            case "managed":
                return by_view(dev.host_view(dev.put(np.full(N, 7, "f4"), out=dev.managed.allocate((N,), dtype="f4"))))
            case "shared":
                return by_address(dev.put(np.full(N, 7, "f4"), out=dev.ipc.empty((N,), dtype="f4")))
            case "leased":
                lease = dev.host_empty((N,), "f4")
                lease[:] = 7
                return by_view(lease[1:])
            case "resident":
                return await in_a_resident(dev)
        a = dev.put(np.full(N, 7, "f4"))
        match way:
            case "address":
                return by_address(a)
            case "address of a view":
                return by_address(a[N // 2 :])
            case "host_view":
                return by_view(dev.host_view(a))
            case _:
                return by_view(np.from_dlpack(a))


def main(way: str) -> None:
    holder, read = asyncio.run(held(way))
    gc.collect()
    ballast = [np.ones(N, "f4") for _ in range(2)]  # the place of what was freed is taken
    print("values", bool((read() == 7).all()), flush=True)
    del ballast
    if isinstance(holder, cb.GpuRef):
        memory: Any = holder.allocation.memory
        memory = getattr(memory, "memory", memory)  # of memory that can be exported
        gone = weakref.ref(memory)
        del memory, holder, read
        gc.collect()
        print("goes", gone() is None, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
