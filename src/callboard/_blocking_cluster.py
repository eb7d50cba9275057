"""``Cluster`` for programs without asyncio: ``with cb.sync.cluster("auto") as c: gpu = c.device()``."""

import contextlib
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self, Unpack

from callboard._background import BackgroundLoop, open_loop
from callboard._blocking_device import Device
from callboard.actors.handles import Handle
from callboard.clusters import Cluster as AsyncCluster
from callboard.clusters import OpenCluster
from callboard.clusters import cluster as async_cluster
from callboard.core.errors import DeviceStopped
from callboard.device.client.handle import Device as AsyncDevice
from callboard.device.config import DeviceConfig, DeviceOptions
from callboard.device.protocol.residents.importing import note_importing
from callboard.device.supervision.remote.place import LOST_AFTER
from callboard.device.supervision.supervisor import DeviceSupervisor
from callboard.multi_device.machines.engine import ClusterNode, NodeTls

__all__ = ["Cluster", "cluster"]


class Cluster(Handle):
    """Blocking :class:`callboard.Cluster`; made by :func:`callboard.sync.cluster`. Any thread.

    Args:
        opening: An unopened cluster, as returned by :func:`callboard.cluster`.
    """

    def __init__(self, opening: OpenCluster) -> None:
        self._opening = opening
        self._devices: dict[AsyncDevice, Device] = {}
        self._cluster: AsyncCluster | None = None
        self._user: Callable[[], None] = self.close
        self._background: BackgroundLoop = open_loop(self._user)
        try:
            self._cluster = self._background.run(opening.__aenter__())
        except BaseException:  # Ctrl-C, too
            self._background.leave(self._user)
            raise

    def nodes(self) -> list[ClusterNode]:
        """See :meth:`callboard.Cluster.nodes`."""
        return self._background.run(self._open.nodes())

    def where(self, device: Device) -> str | None:
        """See :meth:`callboard.Cluster.where`."""
        return self._open.where(device._device)

    def device(
        self,
        which: str = "auto",
        *,
        node: str | ClusterNode | None = None,
        pinned: bool = False,
        resources: Mapping[str, float] | None = None,
        spread: bool = True,
        supervisor: DeviceSupervisor | None = None,
        config: DeviceConfig | None = None,
        wait: bool = True,
        **options: Unpack[DeviceOptions],
    ) -> Device:
        """A blocking device on a node; arguments and errors as :meth:`callboard.Cluster.device`."""
        note_importing()  # of this thread; the other one opens the device
        opened = self._background.run(
            self._open.device(
                which,
                node=node,
                pinned=pinned,
                resources=resources,
                spread=spread,
                supervisor=supervisor,
                config=config,
                wait=wait,
                **options,
            )
        )
        device = self._devices[opened] = Device(self._background, opened, self._close)
        return device

    def close(self) -> None:
        """Close the devices and leave the cluster. Closing twice is harmless."""
        self._background.check_thread()
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            devices, self._devices = list(self._devices), {}
            self._background.finish(self._opening.__aexit__(None, None, None), lambda: _hurry(devices), self._user)

    def _close(self, device: AsyncDevice) -> None:
        if self._devices.pop(device, None) is not None:
            with contextlib.suppress(DeviceStopped):  # the cluster was left meanwhile
                self._background.finish(device.close(), device._hurry)

    @property
    def _open(self) -> AsyncCluster:
        if self._cluster is None:
            raise DeviceStopped("the cluster was left")
        return self._cluster

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def cluster(
    address: str = "auto",
    *,
    tls: NodeTls | None = None,
    lost_after: float = LOST_AFTER,
    place_timeout: float = 60.0,
    runtime_env: Mapping[str, Any] | None = None,
) -> Cluster:
    """Blocking devices on the nodes of a Ray cluster; arguments and errors as :func:`callboard.cluster`."""
    return Cluster(
        async_cluster(address, tls=tls, lost_after=lost_after, place_timeout=place_timeout, runtime_env=runtime_env)
    )


def _hurry(devices: list[AsyncDevice]) -> None:
    for device in devices:
        device._hurry()
