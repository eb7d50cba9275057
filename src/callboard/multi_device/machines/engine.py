"""``Engine``: the cluster interface that places, starts and watches agents, with its requests and reports."""

import asyncio
import ssl
from collections.abc import Mapping
from typing import Protocol

import msgspec

from callboard.core.errors import BackendUnavailable

__all__ = ["Agent", "ClusterNode", "Engine", "NodeTls", "PlacementFailed", "Request"]


class PlacementFailed(BackendUnavailable):
    """The cluster has no node for this device, or did not start an agent there in time."""


class ClusterNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a cluster.

    Attributes:
        id: Id of the node in the engine.
        address: Network address of its machine.
        hostname: Host name of its machine.
        alive: The engine counts on it. It may take a while to notice that a node is lost.
        resources: All that it has (``{"CPU": 8.0, "GPU": 2.0, …}``), used or not.
        labels: Labels of the node in the engine.
    """

    id: str
    address: str
    hostname: str = ""
    alive: bool = True
    resources: Mapping[str, float] = {}
    labels: Mapping[str, str] = {}

    def fits(self, resources: Mapping[str, float]) -> bool:
        """True if the node has these resources in total, used or free."""
        return self.alive and all(self.resources.get(name, 0.0) >= amount for name, amount in resources.items())


class NodeTls(msgspec.Struct, frozen=True, kw_only=True):
    """Files in PEM for encrypted connections to the nodes of a cluster.

    Attributes:
        cafile: Here: the authority that the nodes' certificates are of.
        certfile, keyfile: Certificate and key, stored on every node.
        server_name: The name in the certificate, the same on all nodes; empty: each has its own address in it.
    """

    cafile: str
    certfile: str
    keyfile: str
    server_name: str = ""

    def client(self) -> ssl.SSLContext:
        """For the application. Raises ``OSError`` if the file cannot be read."""
        return ssl.create_default_context(cafile=self.cafile)

    def server(self) -> ssl.SSLContext:
        """For a node. Raises ``OSError`` if the files cannot be read."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certfile, self.keyfile)
        return context


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The constraints on an agent's placement.

    Attributes:
        resources: Resources that the engine reserves for the agent.
        node: Id of the only node; empty: any.
        avoid: Ids of nodes to keep away from.
        spread: Prefer nodes that have less to do to those that are nearly full.
    """

    resources: Mapping[str, float] = {}
    node: str = ""
    avoid: tuple[str, ...] = ()
    spread: bool = True


class Agent(Protocol):
    """A process on a node that serves one device: it starts the hosts, and relays.

    Attributes:
        node: Id of its node.
        host, port: Address that it listens on.
        gone: Resolves with the reason when the engine notices that the process or the node is lost.
    """

    @property
    def node(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def gone(self) -> "asyncio.Future[str]": ...

    async def end(self) -> None:
        """Kill the agent and release its resources of the node. Never raises.

        An agent that is cut off is killed by the engine when it can be reached again.
        """
        ...


class Engine(Protocol):
    """A cluster.

    Attributes:
        name: Name of the kind of cluster: names of devices begin with it.
    """

    @property
    def name(self) -> str: ...

    async def nodes(self) -> list[ClusterNode]:
        """All nodes known to the engine, in the order of their ids."""
        ...

    async def start(self, request: Request, token: str, tls: NodeTls | None, timeout: float) -> Agent:
        """Place an agent and wait until it listens.

        Raises:
            PlacementFailed: There is no such place, or it took longer than ``timeout`` seconds.
        """
        ...

    async def registry(self, tls: NodeTls | None, timeout: float) -> tuple[str, int, str]:
        """Host, port and token of the process that holds the tables of shared regions.

        There is one for all applications of the cluster; it is started if there is none, and belongs to no application.

        Raises:
            PlacementFailed: It was not started, or did not answer, within ``timeout`` seconds.
        """
        ...

    async def close(self) -> None:
        """Release everything opened for this."""
        ...
