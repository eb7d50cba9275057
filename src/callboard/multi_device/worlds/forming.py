"""Forming a world: every rank makes an offer, is given those of all, and connects."""

import asyncio
import itertools
import time
from collections.abc import Sequence

from callboard.core.errors import AccelError, AskTimeout, BackendUnavailable, ContextLost, LibraryError, MailboxFull
from callboard.device.client.handle import Device
from callboard.device.protocol.control import EndWorld
from callboard.device.protocol.wire import as_text
from callboard.kernel.collective.library import JOINING, READY
from callboard.kernel.collective.messages import Join, Leave, Look, Offer

__all__ = ["end", "form", "leave", "next_world"]

LOOK = 0.002, 0.05
"""Seconds between two looks whether a rank has connected: at first, and at most."""

REASON = 1024
"""Bytes of the reason that is sent to a rank, at most."""

_counter = itertools.count()


def next_world() -> int:
    """A number that no world has had, in this process or an earlier one.

    So a rank of an older world is never taken for one of this.
    """
    return int(time.time() * 1000) << 20 | next(_counter) & 0xFFFFF


async def form(devices: Sequence[Device], world: int, timeout: float, hang: float) -> list[int]:
    """Form a world of these devices, when all are ready.

    Args:
        devices: The devices, in order of rank.
        world: Number of the world.
        timeout: Seconds that it may take once all are ready.
        hang: See :class:`.Join`.

    Returns:
        The generation of each device that it was formed in.

    Raises:
        ContextLost: A device was lost meanwhile.
        DeviceStopped, BackendUnavailable: A device is of no use.
        AskTimeout: It took too long.
        AccelError: A rank could not connect.
    """
    for device in devices:
        await device.ready()
    generations = [device.generation for device in devices]
    try:
        async with asyncio.timeout(timeout):
            asked = [device.ask(Offer(world=world, rank=r, size=len(devices))) for r, device in enumerate(devices)]
            offers = tuple([await reply for reply in asked])
            joined = [device.ask(Join(world=world, offers=offers, timeout=hang)) for device in devices]
            states = [await reply for reply in joined]
            pause, most = LOOK
            while JOINING in states:
                await asyncio.sleep(pause)
                pause = min(2 * pause, most)
                _check_generations(devices, generations)
                looks = [device.ask(Look(world=world)) for device in devices]
                states = [await reply for reply in looks]
    except TimeoutError:
        late = [f"rank {r} ({device.name})" for r, device in enumerate(devices)]
        raise AskTimeout(f"the world did not form within {timeout:g} s; its ranks are {', '.join(late)}") from None
    for rank, (device, state) in enumerate(zip(devices, states, strict=True)):
        if state != READY:
            raise LibraryError(f"rank {rank} ({device.name}) cannot join: {state}", "collective")
    _check_generations(devices, generations)
    return generations


def _check_generations(devices: Sequence[Device], generations: Sequence[int]) -> None:
    for rank, (device, generation) in enumerate(zip(devices, generations, strict=True)):
        if device.generation != generation:
            raise ContextLost(f"rank {rank} ({device.name}) was lost while the world formed")


async def leave(devices: Sequence[Device], message: Leave) -> None:
    """Have all ranks leave a world; those that cannot be reached have lost it with their context.

    Each host gets two messages: one on its control socket, because its serving thread may be blocked by the lost rank,
    and an op, whose answer confirms that no part of the world follows.
    """
    end(devices, message)
    await asyncio.gather(*(_tell(device, message) for device in devices))


def end(devices: Sequence[Device], message: Leave) -> None:
    """Have the members of a world in all hosts end, whatever their threads do; does not wait."""
    reason = as_text(message.reason or "the world was closed", REASON)
    for device in devices:
        host = device._port.outbox.host
        if host is not None:
            host.end_world(EndWorld(message.world, message.lost, reason, message.formation))


async def _tell(device: Device, message: Leave) -> None:
    while True:
        try:
            await device.ask(message)
        except MailboxFull:
            try:
                await device.room(1)
            except AccelError:
                return
            continue
        except (AccelError, BackendUnavailable):
            pass
        return
