"""What is written by hand of :mod:`callboard.sync`'s ``System`` and ``Cluster``; the rest is generated."""

import contextlib
import functools
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from callboard._background import BackgroundLoop, open_loop
from callboard.actors.handles import Handle
from callboard.clusters import Cluster as AsyncCluster
from callboard.clusters import OpenCluster
from callboard.core.errors import DeviceStopped
from callboard.device.client.handle import Device as AsyncDevice
from callboard.device.protocol.residents.importing import note_importing
from callboard.system import System as AsyncSystem

if TYPE_CHECKING:
    from callboard._blocking import Device

__all__ = ["ClusterBase", "SystemBase"]


class SystemBase(Handle):
    """Devices that are closed together: ``with cb.sync.System("demo") as system: gpu = system.device()``."""

    def __init__(self, name: str = "callboard") -> None:
        self.name = name
        self._lock = threading.Lock()
        self._background: BackgroundLoop | None = None
        self._system: AsyncSystem | None = None
        self._user: Callable[[], None] = self.close
        self._devices: dict[AsyncDevice, Device] = {}
        self._opening: list[AsyncSystem] = []  # the system of each call that opens a device now; it stays for them

    def _opened(
        self, made: "type[Device]", opening: Callable[[AsyncSystem], Coroutine[Any, Any, AsyncDevice]]
    ) -> "Device":
        note_importing()  # of this thread; the other one opens the device
        with self._lock:
            if self._background is None or self._background.forked:
                self._user = functools.partial(self.close)  # of its own: an earlier one may not have left yet
                self._background = open_loop(self._user)
                self._system = self._background.run(_started(self.name))
                self._devices = {}
            background, system = self._background, self._system
            assert system is not None
            self._opening.append(system)
        try:
            opened = background.run(opening(system))
            with self._lock:
                if self._system is not system:  # closed by another thread
                    return made(background, opened, self._close)
                return self._devices.get(opened) or self._devices.setdefault(
                    opened, made(background, opened, self._close)
                )
        finally:
            with self._lock:
                self._opening.remove(system)
            self._close_all(if_unused=True)

    def close(self) -> None:
        """Close all devices; their processes have ended and their memory is free when this returns.

        Closing twice is harmless. Ctrl-C ends the wait within two seconds; the devices are closed in the background.
        """
        self._close_all()

    def _close_all(self, *, if_unused: bool = False) -> None:
        background = self._background  # another thread may close it meanwhile
        if background is not None:
            background.check_thread()
        with self._lock:
            if if_unused and (self._devices or self._system in self._opening):
                return
            background, system, user = self._background, self._system, self._user
            self._background = self._system = None
            self._devices = {}
        if background is not None and system is not None:
            background.finish(system.stop(), system._hurry, user)

    def _close(self, device: AsyncDevice) -> None:
        background = self._background  # another thread may close it meanwhile
        if background is not None:
            background.check_thread()
        with self._lock:
            background = self._background
            known = self._devices.pop(device, None)
        if known is not None and background is not None:
            try:
                background.finish(device.close(), device._hurry)
            finally:
                self._close_all(if_unused=True)

    def __repr__(self) -> str:
        return (
            f"<cb.sync.System {self.name!r}: {', '.join(d.name for d in self._devices.values()) or 'no device open'}>"
        )


async def _started(name: str) -> AsyncSystem:
    return await AsyncSystem(name).start()


class ClusterBase(Handle):
    """Blocking :class:`callboard.Cluster`; made by :func:`callboard.sync.cluster`. Any thread.

    Args:
        opening: An unopened cluster, as returned by :func:`callboard.cluster`.
    """

    def __init__(self, opening: OpenCluster) -> None:
        self._opening = opening
        self._devices: set[AsyncDevice] = set()
        self._cluster: AsyncCluster | None = None
        self._user: Callable[[], None] = self.close
        self._background: BackgroundLoop = open_loop(self._user)
        try:
            self._cluster = self._background.run(opening.__aenter__())
        except BaseException:  # Ctrl-C, too
            self._background.leave(self._user)
            raise

    def where(self, device: "Device") -> str | None:
        """Id of the node that a device is on; None while it is being placed, and of other devices."""
        return self._open.where(device._device)

    def _opened(self, opening: Coroutine[Any, Any, AsyncDevice]) -> AsyncDevice:
        note_importing()  # of this thread; the other one opens the device
        opened = self._background.run(opening)
        self._devices.add(opened)
        return opened

    def close(self) -> None:
        """Close the devices and leave the cluster. Closing twice is harmless."""
        self._background.check_thread()
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            devices, self._devices = list(self._devices), set()
            self._background.finish(self._opening.__aexit__(None, None, None), lambda: _hurry(devices), self._user)

    def _close(self, device: AsyncDevice) -> None:
        try:
            self._devices.remove(device)
        except KeyError:
            return  # closed already
        with contextlib.suppress(DeviceStopped):  # the cluster was left meanwhile
            self._background.finish(device.close(), device._hurry)

    @property
    def _open(self) -> AsyncCluster:
        if self._cluster is None:
            raise DeviceStopped("the cluster was left")
        return self._cluster


def _hurry(devices: list[AsyncDevice]) -> None:
    for device in devices:
        device._hurry()
