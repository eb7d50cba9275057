"""Devices for copies between them, and the checks of those copies."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from tests.device.residents.lab import wait_at

import callboard as cb

BOUND = 30.0


class Slow(cb.ResidentActor):
    """Owes an array until it is let through."""

    def fill(self, array: Any, value: float, gate: str) -> None:
        wait_at(gate)
        array[...] = value

    def fail(self, array: Any, gate: str) -> None:
        wait_at(gate)
        raise ArithmeticError("no numbers")


@asynccontextmanager
async def pair(one: str, other: str, which: str = "cpu", **options: Any) -> AsyncIterator[tuple[cb.Device, cb.Device]]:
    """Two devices of these isolations (``"loop"``: a context on the loop's thread)."""
    async with (
        cb.device(f"{which}:0", standby=None, close_timeout=5.0, **how(one), **options) as a,
        cb.device(f"{which}:1", standby=None, close_timeout=5.0, **how(other), **options) as b,
    ):
        yield a, b


def how(isolation: str) -> dict[str, Any]:
    return {"isolation": "thread", "dispatcher": "caller"} if isolation == "loop" else {"isolation": isolation}


async def kill(device: cb.Device) -> None:
    """Kill the device's host, and wait until that has been noticed."""
    generation = device.generation
    pid = device.health().host_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(BOUND):
        while device.generation == generation:  # noqa: ASYNC110 - it changes when the loss is noticed
            await asyncio.sleep(0)


def numbers(n: int = 12) -> "np.ndarray[Any, Any]":
    return np.arange(float(n), dtype="f4")
