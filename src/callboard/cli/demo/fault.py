"""How the demo loses the context: a real illegal access on CUDA, SIGKILL of the context host on the CPU."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from callboard.actors import Props
from callboard.core.errors import ContextLost
from callboard.device.handle import Device

__all__ = ["Fault", "arm", "standby_ready"]

STANDBY_TIME = 120.0
"""Seconds that a standby gets to start (a CUDA context with its libraries takes a few)."""
LOOK = 0.01
"""Seconds between looks at it."""


class Fault(NamedTuple):
    """A loss of the context, ready to happen.

    Attributes:
        what: In words.
        strike: Sets it going; ops called before are in flight then.
    """

    what: str
    strike: Callable[[], Awaitable[None]]


async def arm(device: Device) -> Fault:
    """Prepare the loss of the context that ``device`` has now."""
    if device.backend == "cuda":
        return _illegal_access(device)
    pid = device.health().host_pid
    if pid is None or pid == os.getpid():
        raise ValueError(f"{device!r} has no context host that could be killed; open it with isolation='process'")

    async def kill() -> None:
        os.kill(pid, signal.SIGKILL)

    return Fault(f"SIGKILL to the context host, process {pid}", kill)


def _illegal_access(device: Device) -> Fault:
    from callboard.cli.illegal_actor import IllegalWrite

    actor = device.actor_of(Props(IllegalWrite), name="illegal-write")

    async def strike() -> None:
        with contextlib.suppress(ContextLost):  # the loss may be seen before the turn has been answered
            await actor.call(IllegalWrite.strike)

    return Fault("a kernel writes to an illegal address", strike)


async def standby_ready(device: Device) -> bool:
    """Wait until the standby of a device is ready; False when there is none, or none in time."""
    deadline = asyncio.get_running_loop().time() + STANDBY_TIME
    while device.health().standby != "ready":
        if device.health().standby == "none" or asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(LOOK)
    return True
