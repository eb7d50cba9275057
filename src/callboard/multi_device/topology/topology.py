"""``P2pTopology``: the links of open devices."""

from collections.abc import Iterable

from callboard.core.links import Link
from callboard.device.client.handle import Device
from callboard.multi_device.topology.graph import P2pGraph

__all__ = ["P2pTopology"]


class P2pTopology:
    """Direct access to each other's memory among open devices.

    ::

        topology = cb.P2pTopology([gpu0, gpu1, gpu2, gpu3])
        print(topology.explain())
        placement = cb.PlacementActor(topology.devices, links=topology)

    Links are asked of the driver once (NVML, without opening a device). A device whose context is starting, being
    rebuilt or stopped reaches no other until it is ready again. Devices of different backends have no link, nor have
    those of other machines.

    Args:
        devices: Open devices.

    Raises:
        ValueError: A device twice.
    """

    def __init__(self, devices: Iterable[Device]) -> None:
        self.devices = tuple(devices)
        by_uuid = {device.uuid: device for device in self.devices}
        if len(by_uuid) < len(self.devices):
            raise ValueError(f"a device is given twice: {', '.join(device.name for device in self.devices)}")
        self._links: list[Link] = []
        for backend in {device.backend: device.accel_backend for device in self.devices}.values():
            here = [device._actor for device in self.devices if not device._actor.remote]
            of_it = [actor.info for actor in here if actor.info.backend == backend.name]
            self._links += backend.links(of_it)

    @property
    def neighbours(self) -> dict[str, frozenset[str]]:
        """For each UUID those of the devices that it reaches when all are ready; a placement's ``links``."""
        return P2pGraph({device.uuid: device.name for device in self.devices}, self._links, {}).edges

    def topology(self) -> P2pGraph:
        """A snapshot of the current peer access."""
        away = {device.uuid: device.health().state for device in self.devices if not device.available}
        return P2pGraph({device.uuid: device.name for device in self.devices}, self._links, away)

    def can_access(self, one: Device, other: Device) -> bool:
        """True if two devices can access each other's memory now; for one device and itself, if it is ready.

        Raises:
            KeyError: One of them is not of these devices.
        """
        if one.uuid == other.uuid and one in self.devices:
            return one.available
        return self.topology().can_pair(one.uuid, other.uuid)

    def link(self, one: Device, other: Device) -> Link | None:
        """The link between two devices; None if unknown."""
        return self.topology().links.get((one.uuid, other.uuid))

    def islands(self) -> list[frozenset[Device]]:
        """The sets of devices that reach each other now."""
        by_uuid = {device.uuid: device for device in self.devices}
        return [frozenset(by_uuid[uuid] for uuid in island) for island in self.topology().islands()]

    def explain(self) -> str:
        """The same in words: a line for each device that is not ready, each pair and each island."""
        return self.topology().explain()

    def __repr__(self) -> str:
        return f"<P2pTopology of {len(self.devices)} devices>"
