"""``PlacedNode``: the place of a device that a cluster's engine finds, and finds again when its node is lost."""

import asyncio
import logging
import secrets
import ssl

from callboard.core.backend import DeviceInfo
from callboard.device.supervision.hosts.base import HostEnd
from callboard.device.supervision.remote.host import Address, describe
from callboard.multi_device.machines.engine import Agent, Engine, NodeTls, PlacementFailed, Request

__all__ = ["PlacedNode"]

log = logging.getLogger("callboard.cluster")


class PlacedNode:
    """The place of one device's hosts: a dedicated agent, on a node chosen by the engine.

    An agent counts as lost when the engine reports it, or when a connection to it was cut or cannot be opened. The next
    host is then started by another agent, on another node where possible: the engine may count on a lost node for a
    while. Messages of the lost agent are not read any more, and it ends its host by itself.

    Args:
        engine: Places agents.
        name: Name of the place; the device is named after it.
        request: Constraints on the placement of the first agent.
        pinned: Later ones only on ``request.node``, too; else anywhere.
        tls: TLS files for encrypted connections; None: they are not encrypted.
        lost_after: Seconds of silence after which either side considers the other lost.
        timeout: Seconds that placing an agent may take.

    Raises:
        OSError: A file of ``tls`` cannot be read.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        request: Request,
        *,
        pinned: bool,
        tls: NodeTls | None,
        lost_after: float,
        timeout: float,
    ) -> None:
        self.lost_after = lost_after
        self._engine = engine
        self._name = name
        self._request = request
        self._pinned = pinned
        self._tls = tls
        self._client: ssl.SSLContext | None = None if tls is None else tls.client()
        self._timeout = timeout
        self._lease: AgentLease | None = None
        self._placing = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def node(self) -> str | None:
        """Id of the node that the device is on; None while it has none."""
        lease = self._lease
        return None if lease is None or lease.lost else lease.agent.node

    async def locate(self) -> Address:
        """See :class:`.Place`."""
        async with self._placing:
            lease = self._lease
            if lease is None or lease.lost:
                try:
                    lease = self._lease = await self._place(lease)
                except PlacementFailed as e:
                    raise HostEnd("failed to start", f"{self._name}: {e}") from e
            return lease.address

    async def describe(self, which: str) -> DeviceInfo:
        """See :class:`.Place`."""
        try:
            address = await self.locate()
        except HostEnd as e:
            raise PlacementFailed(e.detail) from e
        return await describe(address, which)

    async def close(self) -> None:
        """End the agent; no other is placed."""
        self._closed = True
        lease, self._lease = self._lease, None
        if lease is not None:
            self._end(lease.agent)
        if self._ending:
            await asyncio.wait(self._ending)

    # -- placing -------------------------------------------------------------------------------------------------------

    async def _place(self, lost: "AgentLease | None") -> "AgentLease":
        if self._closed:
            raise PlacementFailed("the cluster was left")
        request = self._request
        if lost is not None:
            self._end(lost.agent)
            if not self._pinned:
                request = Request(resources=request.resources, spread=request.spread)
                elsewhere = await self._elsewhere(request, lost.agent.node)
                if elsewhere is not None:
                    return elsewhere
        return await self._start(request, self._timeout)

    async def _elsewhere(self, request: Request, lost: str) -> "AgentLease | None":
        """An agent on another node than the one that was lost; None if there is none, or none has room."""
        nodes = await self._engine.nodes()
        if not any(node.id != lost and node.fits(request.resources) for node in nodes):
            return None
        avoiding = Request(resources=request.resources, avoid=(lost,), spread=request.spread)
        try:
            return await self._start(avoiding, self._timeout / 2)
        except PlacementFailed as e:
            log.warning("%s: no other node has room (%s); the lost one is tried, too", self._name, e)
            return None

    async def _start(self, request: Request, timeout: float) -> "AgentLease":
        token = secrets.token_urlsafe(32)
        agent = await self._engine.start(request, token, self._tls, timeout)
        log.info("%s is on node %s, %s:%d", self._name, agent.node, agent.host, agent.port)
        name = "" if self._tls is None else self._tls.server_name
        lease = AgentLease(agent, token, self._client, name)
        if self._closed:
            self._end(agent)
            raise PlacementFailed("the cluster was left")
        return lease

    def _end(self, agent: Agent) -> None:
        task = asyncio.create_task(agent.end(), name="ending an agent")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def __str__(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"<PlacedNode {self._name} on {self.node or 'no node'}>"


class AgentLease:
    """An agent, and whether it is still used. A :class:`.Lease`.

    Attributes:
        agent: The agent.
        address: Address that the agent listens on.
        gone: ``gone`` of the agent.
    """

    def __init__(self, agent: Agent, token: str, tls: ssl.SSLContext | None, server_name: str) -> None:
        self.agent = agent
        self.gone = agent.gone
        self.address = Address(agent.host, agent.port, token, tls, server_name, self)
        self._cut = False

    @property
    def lost(self) -> bool:
        """True if the engine reported the loss, or a connection was cut."""
        return self._cut or self.gone.done()

    def cut(self, why: str) -> None:
        """See :class:`.Lease`."""
        if not self._cut:
            log.warning("node %s at %s is given up: %s", self.agent.node, self.address, why)
        self._cut = True
