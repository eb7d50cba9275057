"""``Opened``: the devices of a trainer, given open or opened here by their names."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from callboard.device.client.handle import Device
from callboard.train.replicas.calls import every

if TYPE_CHECKING:
    from callboard.system import System

__all__ = ["Opened"]


class Opened:
    """Devices for the replicas.

    Args:
        trainer: Its class, for errors.
        devices: Open devices, and names of devices to open.

    Raises:
        TypeError, ValueError: No device, or something else.
    """

    def __init__(self, trainer: str, devices: Sequence[Device | str]) -> None:
        self._trainer = trainer
        self._devices = self._checked(devices)
        self._system: System | None = None
        self._own: dict[str, Device] = {}
        self._taking: list[Device] = []

    async def open(self, devices: Sequence[Device | str] | None = None) -> list[Device]:
        """The devices, each ready; those of :class:`Opened` itself if None. Those that are named open side by side.

        Raises:
            BackendUnavailable, DeviceStopped: One cannot be opened.
        """
        given = self._devices if devices is None else self._checked(devices)
        names = dict.fromkeys(one for one in given if isinstance(one, str) and one not in self._own)
        if names:
            system = await self._running()
            await every(self._open(name, system) for name in names)
        opened = [self._own[one] if isinstance(one, str) else await one.ready() for one in given]
        if len({device.uuid for device in opened}) < len(opened):
            raise ValueError(f"{self._trainer}: devices names a device twice; each replica has a device of its own")
        self._devices, self._taking = given, opened
        return opened

    async def close_others(self) -> None:
        """Close what was opened by name and does not take part any more."""
        for name in [name for name, device in self._own.items() if device not in self._taking]:
            await self._own.pop(name).close()

    async def close(self) -> None:
        """Close what was opened by name."""
        system, self._system = self._system, None
        self._own.clear()
        if system is not None:
            await system.__aexit__(None, None, None)

    async def _running(self) -> "System":
        if self._system is None:
            from callboard.system import System

            self._system = await System("trainer").__aenter__()
        return self._system

    async def _open(self, name: str, system: "System") -> None:
        self._own[name] = await system.device(name, isolation="process", standby="hot")

    def _checked(self, devices: Sequence[Device | str]) -> tuple[Device | str, ...]:
        if isinstance(devices, str | Device):
            devices = (devices,)
        for device in devices:
            if not isinstance(device, str | Device):
                raise TypeError(f"{self._trainer}: {device!r:.80} is no device; pass open devices, or names of devices")
        if not devices:
            raise ValueError(f"{self._trainer}: devices is empty; a trainer has at least one")
        return tuple(devices)
