"""The check of the devices that a world, a placement or a region is given."""

import asyncio
from collections.abc import Iterable
from typing import Any

from callboard.device.client.handle import Device

__all__ = ["check_members"]


def check_members(what: str, devices: Iterable[Any]) -> None:
    """Refuse what is no device of the running loop: waiting for it would never end.

    Raises:
        TypeError: Not a device of asyncio, as those of ``cb.sync``.
        ValueError: A device of another event loop.
    """
    for at, device in enumerate(devices):
        if not isinstance(device, Device):
            raise TypeError(
                f"{what}: devices[{at}] is {device!r}; pass open devices, as of `async with cb.device(...)`"
            )
        if device._port.loop is not asyncio.get_running_loop():
            raise ValueError(
                f"{what}: devices[{at}] ({device.name}) belongs to another event loop; open it in this one"
            )
