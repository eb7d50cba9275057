"""``RayEngine``: agents are Ray actors. Ray places them by resources, starts them, and reports their end.

A device's work does not pass through Ray: an agent reports its address, and Ray is not used further. Ray restarts no
agent of a device (``max_restarts=0``) and repeats nothing: it would run a lost call again, in another order. The agent
that holds the tables of shared regions is a named, detached actor: it outlives the application that was first, ends by
itself when it is not used, and is restarted elsewhere when its node is lost.
"""

import asyncio
import contextlib
import importlib.util
import logging
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from callboard.core.errors import BackendUnavailable
from callboard.multi_device.machines.agent import NodeAgent, RegionAgent
from callboard.multi_device.machines.engine import ClusterNode, NodeTls, PlacementFailed, Request

__all__ = ["RayEngine"]

NODE_LABEL = "ray.io/node-id"
REGISTRY = "callboard-regions"
NAMESPACE = "callboard"
AGAIN = 0.2
"""Seconds between two attempts to reach an actor that is being restarted."""
CONFIRMED = 1.0
"""Seconds between two questions of the holder of regions whether Ray still counts on its node."""
CUT_OFF = 5.0
"""Seconds without an answer after which it ends."""


class RayAgent:
    """An agent's actor, from the application's side."""

    def __init__(self, ray: Any, handle: Any, node: str, host: str, port: int) -> None:
        self.node = node
        self.host = host
        self.port = port
        self.gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._ray = ray
        self._handle = handle
        self._watching = asyncio.create_task(self._watch(), name=f"watching the agent on node {node}")

    async def _watch(self) -> None:
        try:
            await self._handle.live.remote()
            why = "it has ended"
        except Exception as e:  # whatever Ray reports, the actor does not answer any more
            why = f"Ray says {type(e).__name__}: {str(e).strip().splitlines()[0] if str(e).strip() else ''}"
        if not self.gone.done():
            self.gone.set_result(f"the agent on node {self.node} is lost: {why}")

    async def end(self) -> None:
        await _kill(self._ray, self._handle)
        self._watching.cancel()
        await asyncio.wait([self._watching])
        if not self.gone.done():
            self.gone.set_result(f"the agent on node {self.node} was ended")


class RayEngine:
    """A Ray cluster. Create it with :meth:`connect`.

    Args:
        ray: The package.
        began: This has connected to the cluster, and disconnects at its end.
        runtime_env: Ray runtime environment of the agents.
    """

    name = "ray"

    def __init__(self, ray: Any, began: bool, runtime_env: Mapping[str, Any] | None) -> None:
        self._ray = ray
        self._began = began
        self._runtime_env = runtime_env

    @classmethod
    async def connect(cls, address: str, runtime_env: Mapping[str, Any] | None) -> "RayEngine":
        """Connect this process to a cluster, if it is not connected yet.

        Raises:
            BackendUnavailable: Ray is not installed, or there is no cluster at this address.
            ValueError: This process is connected to another cluster.
        """
        if importlib.util.find_spec("ray") is None:
            raise BackendUnavailable("Ray is not installed: pip install 'callboard[ray]', here and on every node")
        return await asyncio.to_thread(cls._connect, address, runtime_env)

    @classmethod
    def _connect(cls, address: str, runtime_env: Mapping[str, Any] | None) -> "RayEngine":
        import ray

        if ray.is_initialized():
            connected = ray.get_runtime_context().gcs_address
            if address not in ("auto", connected):
                raise ValueError(f"this process is connected to the Ray cluster at {connected}, not {address}")
            return cls(ray, False, runtime_env)
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
        except (ConnectionError, RuntimeError, TimeoutError) as e:
            raise BackendUnavailable(f"no Ray cluster at {address!r}: {e}") from e
        return cls(ray, True, runtime_env)

    async def nodes(self) -> list[ClusterNode]:
        found = await asyncio.to_thread(self._ray.nodes)
        nodes = [
            ClusterNode(
                id=node["NodeID"],
                address=node["NodeManagerAddress"],
                hostname=node.get("NodeManagerHostname", ""),
                alive=node["Alive"],
                resources=dict(node.get("Resources") or {}),
                labels=dict(node.get("Labels") or {}),
            )
            for node in found
        ]
        return sorted(nodes, key=lambda node: node.id)

    async def start(self, request: Request, token: str, tls: NodeTls | None, timeout: float) -> RayAgent:
        ray = self._ray
        handle = None
        try:
            async with asyncio.timeout(timeout):
                handle = await asyncio.to_thread(self._submit, request, token, tls)
                node, host = await handle.where.remote()
                port = await handle.serve.remote(host)
        except TimeoutError:
            await _kill(ray, handle)
            raise PlacementFailed(f"Ray has not started an agent within {timeout:g} s ({_said(request)})") from None
        except ray.exceptions.RayError as e:
            await _kill(ray, handle)
            raise PlacementFailed(f"Ray cannot start an agent ({_said(request)}): {type(e).__name__}: {e}") from e
        except BaseException:  # a cancel, too
            if handle is not None:
                ray.kill(handle)
            raise
        return RayAgent(ray, handle, node, host, port)

    def _submit(self, request: Request, token: str, tls: NodeTls | None) -> Any:
        resources = dict(request.resources)
        options: dict[str, Any] = {
            "num_cpus": resources.pop("CPU", 0),
            "num_gpus": resources.pop("GPU", 0),
            "resources": resources,
            "max_restarts": 0,
            "max_task_retries": 0,
            "scheduling_strategy": "SPREAD" if request.spread else "DEFAULT",
        }
        if request.node:
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(request.node, soft=False)
        elif request.avoid:
            options["label_selector"] = {NODE_LABEL: f"!in({','.join(request.avoid)})"}
        if self._runtime_env is not None:
            options["runtime_env"] = dict(self._runtime_env)
        return self._ray.remote(RayNodeAgent).options(**options).remote(token, tls)

    async def registry(self, tls: NodeTls | None, timeout: float) -> tuple[str, int, str]:
        ray = self._ray
        what = f"Ray's actor {REGISTRY!r} (namespace {NAMESPACE!r})"
        why = ""
        try:
            async with asyncio.timeout(timeout):
                while True:
                    try:
                        handle = await asyncio.to_thread(self._registered, tls)
                        found: tuple[str, int, str] = await handle.reach.remote()
                        return found
                    except ray.exceptions.RayActorError as e:  # it is being restarted, or has just ended
                        why = f": {type(e).__name__}: {e}"
                        await asyncio.sleep(AGAIN)
        except TimeoutError:
            raise PlacementFailed(f"{what} has not answered within {timeout:g} s{why}") from None
        except (ray.exceptions.RayError, ValueError) as e:
            raise PlacementFailed(f"{what} cannot be used: {type(e).__name__}: {e}") from e

    def _registered(self, tls: NodeTls | None) -> Any:
        options: dict[str, Any] = {
            "name": REGISTRY,
            "namespace": NAMESPACE,
            "lifetime": "detached",
            "get_if_exists": True,
            "num_cpus": 0,
            "max_restarts": -1,
            "max_task_retries": 0,
        }
        if self._runtime_env is not None:
            options["runtime_env"] = dict(self._runtime_env)
        return self._ray.remote(RayRegionAgent).options(**options).remote(secrets.token_urlsafe(32), tls)

    async def close(self) -> None:
        if self._began:
            await asyncio.to_thread(self._ray.shutdown)


class RayNodeAgent(NodeAgent):
    """A node agent that runs as an actor of Ray."""

    async def where(self) -> tuple[str, str]:
        """The id of its node, and the address by which others reach it."""
        import ray

        address_of_node: Callable[[], str] = ray.util.get_node_ip_address
        return ray.get_runtime_context().get_node_id(), address_of_node()


class RayRegionAgent(RegionAgent):
    """A region agent that runs as the named actor of Ray."""

    _tasks: Sequence[asyncio.Task[None]] = ()

    async def reach(self) -> tuple[str, int, str]:
        """Host, port and token."""
        import ray

        context = ray.get_runtime_context()
        address: Callable[[], str] = ray.util.get_node_ip_address
        host = address()
        port = await self.serve(host, follows=context.was_current_actor_reconstructed)
        if not self._tasks:
            node = context.get_node_id()
            self._tasks = [
                asyncio.create_task(step) for step in (self._end(context.current_actor), self._confirm(node))
            ]
        return host, port, self.token

    async def _end(self, own: Any) -> None:
        import ray

        await self.until_unused()
        await asyncio.to_thread(ray.kill, own, no_restart=True)

    async def _confirm(self, node: str) -> None:
        """End when Ray cannot be asked, or counts the node as dead: it starts another holder then."""
        import ray

        alive = True
        while alive:
            await asyncio.sleep(CONFIRMED)
            try:
                async with asyncio.timeout(CUT_OFF):
                    nodes = await asyncio.to_thread(ray.nodes)
                alive = any(one["NodeID"] == node and one["Alive"] for one in nodes)
            except Exception:  # whatever Ray reports, it does not answer
                alive = False
        os._exit(1)


async def _kill(ray: Any, handle: Any) -> None:
    if handle is not None:
        with contextlib.suppress(Exception):  # the cluster has ended, and the actor with it
            await asyncio.to_thread(ray.kill, handle)


def _said(request: Request) -> str:
    where = f"on node {request.node}" if request.node else f"not on {', '.join(request.avoid)}" if request.avoid else ""
    asked = ", ".join(f"{name} {amount:g}" for name, amount in sorted(request.resources.items()))
    return f"{asked or 'no resources'}{' ' if where else ''}{where}"
