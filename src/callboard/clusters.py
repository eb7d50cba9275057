"""``cb.cluster``: devices on the nodes of a cluster, which Ray places, starts and watches."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack, final

from callboard.actors.handles import Handle
from callboard.core.errors import BackendUnavailable
from callboard.device.client.handle import Device
from callboard.device.config import DeviceConfig, DeviceOptions
from callboard.device.opening import remote_config
from callboard.device.supervision.remote.host import Address
from callboard.device.supervision.remote.place import LOST_AFTER
from callboard.device.supervision.supervisor import DeviceSupervisor
from callboard.device.supervision.watch import Stopped
from callboard.multi_device.machines.engine import ClusterNode, Engine, NodeTls, Request
from callboard.multi_device.machines.placed import PlacedNode
from callboard.multi_device.machines.rayengine import RayEngine
from callboard.system import System

__all__ = ["Cluster", "OpenCluster", "cluster"]


class Cluster(Handle):
    """Opens devices on the nodes of a cluster. Created by :func:`callboard.cluster`; belongs to one event loop.

    Args:
        system: System of the devices.
        engine: Places, starts and watches.
        tls, lost_after, place_timeout: See :func:`callboard.cluster`.

    Attributes:
        lost_after: Seconds of silence after which application and node consider each other lost.
    """

    def __init__(
        self, system: System, engine: Engine, tls: NodeTls | None, lost_after: float, place_timeout: float
    ) -> None:
        self._system = system
        self._engine = engine
        self._tls = tls
        self.lost_after = lost_after
        self._place_timeout = place_timeout
        self._opened = 0
        self._places: dict[Device, PlacedNode] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def nodes(self) -> list[ClusterNode]:
        """The nodes of the cluster, including those that it counts as lost."""
        return await self._engine.nodes()

    def where(self, device: Device) -> str | None:
        """Id of the node that a device is on; None while it is being placed, and of other devices."""
        place = self._places.get(device)
        return None if place is None else place.node

    async def device(
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
        """Open a device on a node; each call places another one.

        The loss of a node is a lost context like any other: ops in flight fail, and the next context is opened on
        another node. Close the device to release its place before the cluster is left.

        Args:
            which: ``"cpu"``, ``"cuda"``, or ``"auto"``: CUDA where a node has a GPU, else the CPU.
            node: A :class:`ClusterNode`, or its id, the beginning of its id, its address or hostname: where the device
                is first. None: where Ray finds it has the resources.
            pinned: Nowhere but on ``node``, however often it is lost.
            resources: Ray resources to reserve. By default ``{"GPU": 1}`` for CUDA, and ``{"CPU": 1}`` for a CPU.
            spread: Prefer nodes that have less to do; False: fill one node before the next.
            supervisor, config, wait, options: See :meth:`callboard.System.device`.

        Raises:
            BackendUnavailable: There is no such node or no such device, or it was not placed in time
                (:class:`callboard.PlacementFailed`).
            ValueError: ``node`` names several nodes; ``pinned`` without ``node``; a bad option.
        """
        if pinned and node is None:
            raise ValueError("pinned=True needs node=: the node that the device stays on")
        remote_config(config, options)  # a bad option is refused before a place is asked for
        nodes = await self._engine.nodes()
        chosen = "" if node is None else _named(node, nodes).id
        if which == "auto":
            gpu = any(n.alive and n.resources.get("GPU", 0.0) >= 1 and chosen in ("", n.id) for n in nodes)
            which = "cuda" if gpu else "cpu"
        if resources is None:
            resources = {"GPU": 1.0} if which.startswith("cuda") else {"CPU": 1.0}
        self._opened += 1
        place = PlacedNode(
            self._engine,
            f"{self._engine.name}-{self._opened}",
            Request(resources=dict(resources), node=chosen, spread=spread),
            pinned=pinned,
            tls=self._tls,
            lost_after=self.lost_after,
            timeout=self._place_timeout,
        )
        opened: Device | None = None
        try:
            opened = await self._system.device(
                which, supervisor=supervisor, config=config, wait=False, node=place, **options
            )
            self._places[opened] = place
            self._spawn(self._until_stopped(opened, place))
            return await opened.ready() if wait else opened
        except BaseException:  # a cancellation, too: release what was started
            if opened is None:
                await place.close()
            else:
                await opened.close()
            raise

    async def locate(self) -> Address:
        """Address of the process that holds the tables of the cluster's shared regions, which is started if needed.

        For ``shared=`` of :class:`callboard.PlacementShardingAdapter`.

        Raises:
            PlacementFailed: It was not started, or did not answer, within ``place_timeout`` seconds.
        """
        host, port, token = await self._engine.registry(self._tls, self._place_timeout)
        if self._tls is None:
            return Address(host, port, token)
        return Address(host, port, token, self._tls.client(), self._tls.server_name)

    async def close_devices(self) -> None:
        """Close the devices and give their places back. Closing twice is harmless."""
        await asyncio.gather(*(device.close() for device in list(self._places)))
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _until_stopped(self, device: Device, place: PlacedNode) -> None:
        """Give a device's place back when it has stopped, and is closed."""
        async for event in device.events():
            if isinstance(event, Stopped):
                break
        await device.close()
        await place.close()
        self._places.pop(device, None)

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def __repr__(self) -> str:
        return f"<Cluster of {self._engine.name}, {len(self._places)} devices>"


def _named(node: str | ClusterNode, nodes: list[ClusterNode]) -> ClusterNode:
    name = node.id if isinstance(node, ClusterNode) else node
    alive = [n for n in nodes if n.alive]
    found = [n for n in alive if n.id == name] or [
        n for n in alive if name in (n.address, n.hostname) or (len(name) >= 6 and n.id.startswith(name))
    ]
    if not found:
        known = ", ".join(f"{n.id[:8]} ({n.address})" for n in alive)
        raise BackendUnavailable(f"no node {name!r} in the cluster; alive are {known or 'none'}")
    if len(found) > 1:
        raise ValueError(f"{name!r} names {len(found)} nodes: {', '.join(n.id[:8] for n in found)}; pass an id")
    return found[0]


def cluster(
    address: str = "auto",
    *,
    system: System | None = None,
    tls: NodeTls | None = None,
    lost_after: float = LOST_AFTER,
    place_timeout: float = 60.0,
    runtime_env: Mapping[str, Any] | None = None,
) -> "OpenCluster":
    """Devices on the nodes of a Ray cluster: ``async with cb.cluster("auto") as c: gpu = await c.device()``.

    Args:
        address: Address of the Ray cluster: ``"auto"`` for the one of this machine, or the one that this process is
            connected to; or for example ``"10.0.0.7:6379"``. An existing connection stays open at the end.
        system: The devices' system; one of its own by default.
        tls: Credentials that encrypt the connections to the nodes. None: the token is not sent, but an observer of the
            network can read and change everything else.
        lost_after: Seconds of silence after which application and node consider each other lost; at least 2.
        place_timeout: Seconds that Ray gets to place and start the process that serves a device.
        runtime_env: Ray runtime environment of these processes: packages to install, variables.

    Raises:
        ValueError: ``lost_after`` is less than 2 s, or ``place_timeout`` is not positive; or, when it is opened, this
            process is connected to another cluster.
        BackendUnavailable: When it is opened: Ray is not installed (extra ``ray``), or there is no cluster.
    """
    if lost_after < 2.0:
        raise ValueError(f"lost_after is {lost_after:g}; signs of life are sent every second, so it must be at least 2")
    if not place_timeout > 0:
        raise ValueError(f"place_timeout is {place_timeout:g}; it must be more than 0")

    async def connect() -> Engine:
        return await RayEngine.connect(address, runtime_env)

    return OpenCluster(system, connect, (tls, lost_after, place_timeout))


@final
class OpenCluster:
    """Returned by :func:`cluster`: ``async with`` connects, and at its end closes the devices and leaves the cluster.

    Args:
        system: The devices' system; None: one of its own.
        connect: Returns the engine.
        settings: ``tls``, ``lost_after`` and ``place_timeout``.
    """

    def __init__(
        self,
        system: System | None,
        connect: Callable[[], Awaitable[Engine]],
        settings: tuple[NodeTls | None, float, float],
    ) -> None:
        self._system = system
        self._connect = connect
        self._settings = settings
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Cluster:
        async with contextlib.AsyncExitStack() as stack:
            engine = await self._connect()
            stack.push_async_callback(engine.close)
            system = self._system if self._system is not None else await stack.enter_async_context(System("cluster"))
            opened = Cluster(system, engine, *self._settings)
            stack.push_async_callback(opened.close_devices)
            self._stack = stack.pop_all()
        return opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    if not TYPE_CHECKING:  # checkers refuse these

        def __enter__(self):
            raise TypeError(
                "cb.cluster() is for asyncio: use `async with cb.cluster(...) as c`, or without asyncio "
                "`with cb.sync.cluster(...) as c`"
            )

        def __exit__(self, *_):
            """Defined so that ``with`` calls ``__enter__``."""
