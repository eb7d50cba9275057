"""``Chain``: the servers that a model's requests pass, and how they are loaded, replaced and unloaded."""

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from callboard.events.names import check_name
from callboard.patterns.batching.sequences.server import SequenceBatchingServer
from callboard.patterns.batching.server import DynamicBatchingServer
from callboard.patterns.contract.checks import check_whole
from callboard.patterns.fairshare.server import FairShareScheduler
from callboard.patterns.fairshare.settings import Tenant
from callboard.patterns.hotswap.server import ModelHotSwapServer
from callboard.patterns.hotswap.versions import ModelVersion
from callboard.patterns.requests.fitting import check_function
from callboard.patterns.requests.needs import Need, limit_runs, needs_of
from callboard.patterns.requests.runs import RunLimit
from callboard.patterns.requests.server import RequestServer
from callboard.serve.calls import CallServer
from callboard.serve.errors import BadRequest

__all__ = ["Chain", "Server", "Tenants", "server_of"]

Server = RequestServer[Any, Any]
Tenants = Mapping[Any, Tenant | float]

IN_FLIGHT = 64
"""Requests that fair sharing admits at once: the server behind it forms batches of them."""

_log = logging.getLogger("callboard.serve")


class Chain:
    """The servers of one model, from the one that takes requests to the one that runs them.

    Args:
        make: Makes them; servers run once, so a model that was unloaded gets new ones.
        version: Version of a model that can be replaced and unloaded; None for other models.
        name: The model's name, for its servers that were given none.

    Attributes:
        front: The server that takes requests.
        unloaded: The model was unloaded.
    """

    def __init__(self, make: Callable[[], list[Server]], version: ModelVersion | None = None, name: str = "") -> None:
        self._make = make
        self._version = version
        self._name = name
        self._servers = make()
        self._give_name()
        self.front = self._servers[0]
        self._turn = asyncio.Lock()  # of loading and unloading
        self._loads = 1
        self.unloaded = False

    def needs(self) -> list[Need]:
        """The actors and devices that the model calls, as far as they are found."""
        return needs_of(self._servers[-1])

    @property
    def last(self) -> Server:
        """Runs them: the batching server of the active version, for example."""
        return self.servers[-1]

    @property
    def servers(self) -> list[Server]:
        """All of them, also those behind the servers that were given, from :attr:`front` to :attr:`last`."""
        found = list(self._servers)
        while (behind := _behind(found[-1])) is not None:
            found.append(behind)
        return found

    async def start(self) -> None:
        """Start those that were not started."""
        for server in reversed(self._servers):
            if not server.started:
                await server.start()
        self._give_name()

    async def drain(self, timeout: float) -> None:
        """Finish accepted requests, each server within the given time."""
        for server in self._servers:
            await server.drain(timeout)

    async def stop(self) -> None:
        """End accepted requests at once."""
        await asyncio.gather(*(server.stop() for server in self._servers))

    async def load(self) -> None:
        """Load the model, or load it anew next to the running one and replace that; no request fails because of it.

        Raises:
            BadRequest: It is no :class:`ModelVersion`.
            SwapFailed: It could not be loaded, or was refused by its checks; what ran before still does.
        """
        version = self._replaceable()
        async with self._turn:
            self._loads += 1
            if self.unloaded:
                servers = self._make()
                for server in reversed(servers):
                    await server.start()
                self._servers, self.front, self.unloaded = servers, servers[0], False
                self._give_name()
                return
            swap = self._servers[-1]
            assert isinstance(swap, ModelHotSwapServer)
            await swap.swap(replace(version, version=f"{version.version} (load {self._loads})"))
            self._give_name()

    async def unload(self, timeout: float) -> None:
        """Stop taking requests, finish the accepted ones, and unload the model.

        Raises:
            BadRequest: It is no :class:`ModelVersion`.
        """
        self._replaceable()
        async with self._turn:
            self.unloaded = True
            await self.drain(timeout)

    @property
    def is_replaceable(self) -> bool:
        """True if it can be unloaded, and loaded again."""
        return self._version is not None

    def _give_name(self) -> None:
        """Metrics and traces name a server after its model, unless it has a name of its own."""
        for server in self.servers if self._name else ():
            if server.name in _usual_names(type(server)):
                server.name = self._name

    def _replaceable(self) -> ModelVersion:
        if self._version is None:
            raise BadRequest("the model was given as it is: only one that is a ModelVersion is loaded and unloaded")
        return self._version


@functools.cache
def _usual_names(kind: type[Server]) -> frozenset[str]:
    """Names that servers of a class have where none is given."""
    made = (inspect.signature(vars(each)["__init__"]).parameters for each in kind.__mro__ if "__init__" in vars(each))
    return frozenset(found["name"].default for found in made if "name" in found)


def _behind(server: Server) -> Server | None:
    if isinstance(server, ModelHotSwapServer):
        return server.active_server
    return server.behind if isinstance(server, FairShareScheduler) else None


def server_of(
    model: Any,
    name: str,
    concurrency: int,
    max_queue: int,
    tenants: Tenants | None = None,
    *,
    arguments: int = 1,
    idempotent: bool = True,
    run_limit: float | None = None,
    **fair: Any,
) -> Chain:
    """The server itself, one that calls the function, or one of versions; behind fair sharing if there are tenants.

    Args:
        model: A callable, a ``RequestServer`` or a ``ModelVersion``.
        name: Name of the server, for errors.
        concurrency: Calls of a function that run at once.
        max_queue: Requests that wait at most.
        tenants: Weights or settings of tenants; None for no fair sharing.
        arguments: Arguments that a function gets; 0 is refused elsewhere.
        idempotent: A function may run again for the same request.
        run_limit: Seconds of a run at most; None: no bound.
        fair: Further arguments of ``FairShareScheduler``.

    Raises:
        TypeError: The model cannot be called so.
        ValueError, TypeError: Raised by the constructors of the servers.
    """
    check_name("a model", name)
    check_whole(1, concurrency=concurrency, max_queue=max_queue)
    if arguments and not isinstance(model, RequestServer | ModelVersion):
        try:
            check_function(model, arguments)
        except TypeError as e:
            raise TypeError(f"model {name!r}: {e}") from None

    limit = None if run_limit is None else RunLimit(run_limit, name)

    def make() -> list[Server]:
        server: Server
        if isinstance(model, RequestServer):
            server, at_once = model, IN_FLIGHT
        elif isinstance(model, ModelVersion):
            at_most = None if concurrency == 1 else concurrency
            swap = ModelHotSwapServer[Any, Any](
                model, max_concurrent=at_most, max_queue=max_queue, idempotent=idempotent, name=name
            )
            server, at_once = swap, IN_FLIGHT
        else:
            calls = CallServer(model, concurrency=concurrency, max_queue=max_queue, idempotent=idempotent, name=name)
            server, at_once = calls, concurrency
        if limit is not None and isinstance(server, ModelHotSwapServer) and not server.started:
            server.limit_runs(limit)
        elif limit is not None:
            limit_runs(server, limit)
        if tenants is None:
            return [server]
        if isinstance(server, SequenceBatchingServer):
            raise ValueError(f"model {name!r} has sequences, whose requests run in order: tenants cannot share it")
        if isinstance(server, DynamicBatchingServer):
            at_once = max(at_once, 2 * server.max_batch)
        front: Server = FairShareScheduler(
            server.submit,
            tenants=tenants,
            max_in_flight=at_once,
            max_queue=max_queue,
            idempotent=False,  # the server behind it repeats what a loss fails
            name=name,
            **fair,
        )
        return [front, server]

    return Chain(make, model if isinstance(model, ModelVersion) else None, name)
