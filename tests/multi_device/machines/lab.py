"""A cluster without Ray: agents are child processes, each on a node that exists by name only."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import callboard as cb
from callboard.clusters import OpenCluster
from callboard.multi_device.machines.agent import RegionAgent
from callboard.multi_device.machines.engine import ClusterNode, NodeTls, PlacementFailed, Request

ROOT = Path(__file__).parents[3]
BOUND = 60.0
LOST_AFTER = 30.0
"""Seconds: a test machine that is busy is not cut off. Where silence is what is tested:"""
SOON = 4.0


class LocalAgent:
    """A process."""

    def __init__(self, node: str, process: "asyncio.subprocess.Process", port: int, used: Mapping[str, float]) -> None:
        self.node = node
        self.host = "127.0.0.1"
        self.port = port
        self.gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.used = used
        self.over = asyncio.Event()
        self.process = process

    @property
    def ended(self) -> bool:
        return self.over.is_set()

    @property
    def pid(self) -> int:
        return self.process.pid

    def say_gone(self, why: str) -> None:
        if not self.gone.done():
            self.gone.set_result(why)

    async def end(self) -> None:
        self.over.set()
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        await self.process.wait()
        self.say_gone("it was ended")


class LocalEngine:
    """Nodes by name, with what they have.

    Attributes:
        agents: All that were started.
        dead: Nodes that the engine knows to be lost.
        words: Agents' ends are told at once, as Ray does; else never.
        regions: Holds the tables of shared regions, for all engines that are given it.
    """

    name = "local"

    def __init__(
        self,
        resources: Mapping[str, Mapping[str, float]],
        *,
        words: bool = True,
        address: str = "",
        regions: RegionAgent | None = None,
    ) -> None:
        self.regions = regions
        self._address = address
        self.resources = resources
        self.agents: list[LocalAgent] = []
        self.requests: list[Request] = []
        self.dead: set[str] = set()
        self.words = words
        self.closed = False
        self._watching: set[asyncio.Task[Any]] = set()
        self._starting: list[tuple[str, Mapping[str, float]]] = []

    async def nodes(self) -> list[ClusterNode]:
        return [
            ClusterNode(id=name, address=self._address or f"address-{name}", alive=name not in self.dead, resources=has)
            for name, has in self.resources.items()
        ]

    async def start(self, request: Request, token: str, tls: NodeTls | None, timeout: float) -> LocalAgent:
        self.requests.append(request)
        fitting = [
            node.id
            for node in await self.nodes()
            if node.id == (request.node or node.id) and node.id not in request.avoid and self._room(node, request)
        ]
        if not fitting:
            raise PlacementFailed(f"no node for {dict(request.resources)}")
        name = min(fitting, key=lambda one: len(self._used(one)))
        self._starting.append((name, request.resources))
        try:
            agent = await self._started(name, request, token, tls)
        finally:
            self._starting.remove((name, request.resources))
        if self.words:
            task = asyncio.create_task(self._watch(agent))
            self._watching.add(task)
            task.add_done_callback(self._watching.discard)
        return agent

    async def _started(self, name: str, request: Request, token: str, tls: NodeTls | None) -> LocalAgent:
        files = [] if tls is None else [tls.certfile, tls.keyfile]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(Path(__file__).parent / "agent_process.py"),
            *files,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
                "CALLBOARD_MACHINE": name,
            },
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(token.encode() + b"\n")
        agent = LocalAgent(name, process, int(await process.stdout.readline()), request.resources)
        self.agents.append(agent)
        return agent

    async def registry(self, tls: NodeTls | None, timeout: float) -> tuple[str, int, str]:
        if self.regions is None:
            raise PlacementFailed("this cluster holds no regions")
        return "127.0.0.1", await self.regions.serve("127.0.0.1", follows=False), self.regions.token

    def _used(self, node: str) -> list[Mapping[str, float]]:
        return [a.used for a in self.on(node)] + [used for name, used in self._starting if name == node]

    def _room(self, node: ClusterNode, request: Request) -> bool:
        used = self._used(node.id)
        left = {name: has - sum(use.get(name, 0.0) for use in used) for name, has in node.resources.items()}
        return node.alive and all(left.get(name, 0.0) >= amount for name, amount in request.resources.items())

    async def _watch(self, agent: LocalAgent) -> None:
        await agent.process.wait()
        agent.say_gone("its process has ended")

    def on(self, node: str | None) -> list[LocalAgent]:
        """The agents on a node that have not been ended."""
        return [agent for agent in self.agents if agent.node == node and not agent.ended]

    async def left(self, node: str | None) -> None:
        """Wait until the agents on a node have been ended."""
        for agent in self.on(node):
            await agent.over.wait()

    def kill(self, node: str | None) -> None:
        """Kill a node: all its agents, at once."""
        assert node is not None
        self.dead.add(node)
        for agent in self.on(node):
            agent.process.kill()

    async def close(self) -> None:
        self.closed = True
        for agent in self.agents:
            await agent.end()


@asynccontextmanager
async def clustered(
    engine: LocalEngine, *, tls: NodeTls | None = None, lost_after: float = LOST_AFTER
) -> AsyncIterator[cb.Cluster]:
    """A cluster of this engine."""

    async def connect() -> LocalEngine:
        return engine

    async with OpenCluster(None, connect, (tls, lost_after, 20.0)) as cluster:
        yield cluster


def three(cpus: float = 4.0) -> LocalEngine:
    """Three nodes."""
    return LocalEngine({name: {"CPU": cpus} for name in ("n1", "n2", "n3")})


class Proxy:
    """Stands between the application and a node, and can be cut off: bytes then wait here."""

    def __init__(self, host: str, port: int) -> None:
        self._to = host, port
        self.port = 0
        self.open = asyncio.Event()
        self.open.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1")
        self.port = self._server.sockets[0].getsockname()[1]

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(*self._to)
        for source, target in ((reader, there[1]), (there[0], writer)):
            task = asyncio.create_task(self._pump(source, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                await self.open.wait()
                target.write(data)
                await target.drain()
        except OSError:
            pass
        finally:
            await self.open.wait()
            target.close()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.open.set()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
