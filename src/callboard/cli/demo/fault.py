"""Context loss in the demo: a real illegal access on CUDA, SIGKILL of the context host on the CPU."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from callboard.actors import Props
from callboard.core.errors import ContextLost
from callboard.device.client.handle import Device

__all__ = ["Fault", "fault_of", "standby_ready"]

STANDBY_TIME = 120.0
"""Seconds that a standby gets to start (a CUDA context with its libraries takes a few)."""


class Fault(NamedTuple):
    """A way to lose the context, as often as wanted.

    Attributes:
        what: Description of the fault.
        ready: Waits until the context that the device has now can be lost this way.
        strike: Sets it going; ops called before are in flight then.
    """

    what: str
    ready: Callable[[], Awaitable[None]]
    strike: Callable[[], Awaitable[None]]


def fault_of(device: Device, illegal: bool | None = None) -> Fault:
    """Return the fault that loses the context of a device.

    Args:
        device: Open; its context in a process of its own.
        illegal: Lose it by an illegal access (CUDA) rather than SIGKILL; None: an illegal access if the backend is
            CUDA.
    """
    if device.backend == "cuda" if illegal is None else illegal:
        return _illegal_access(device)
    return _kill(device)


def _kill(device: Device) -> Fault:
    async def ready() -> None:
        if device.isolation != "process":
            raise ValueError(f"{device!r} has no context host that could be killed; open it with isolation='process'")

    async def strike() -> None:
        pid = device.health().host_pid
        if pid is not None and pid != os.getpid():
            os.kill(pid, signal.SIGKILL)

    return Fault("SIGKILL to the context host", ready, strike)


def _illegal_access(device: Device) -> Fault:
    from callboard.cli.demo.illegal_actor import IllegalWrite

    actor = device.actor_of(Props(IllegalWrite), name="illegal-write")

    async def ready() -> None:
        await actor.call(IllegalWrite.ready)

    async def strike() -> None:
        with contextlib.suppress(ContextLost):  # the loss may be seen before the turn has been answered
            await actor.call(IllegalWrite.strike)

    return Fault("a kernel writes to an illegal address", ready, strike)


async def standby_ready(device: Device) -> bool:
    """Wait until the standby of a device is ready; False when there is none, or none in time."""
    try:
        async with asyncio.timeout(STANDBY_TIME):
            return await device.standby_ready()
    except TimeoutError:
        return False
