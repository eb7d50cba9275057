"""Models: a name, inputs and outputs, and the server that runs it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextvars import ContextVar
from typing import Any

from callboard.actors.errors import ActorStopped
from callboard.core.errors import DeviceStopped
from callboard.core.ref import GpuRef
from callboard.device.client.handle import Device
from callboard.device.client.line.port import OpPort
from callboard.device.client.residents.ref import ResidentRef
from callboard.patterns.batching.sequences.server import SequenceBatchingServer
from callboard.patterns.contract.atcall import as_given
from callboard.patterns.fairshare.server import FairShareScheduler
from callboard.patterns.hotswap.results import HotSwapReply
from callboard.patterns.replicas.errors import NoReplica
from callboard.patterns.requests.needs import Need, contexts_of, is_ready, needs_of
from callboard.patterns.requests.passage import PASSAGE, Passage
from callboard.patterns.requests.stats import SECONDS, Buckets, ServerStats
from callboard.serve.calls import CallServer
from callboard.serve.chains.chain import Chain, Server
from callboard.serve.chains.names import check_name
from callboard.serve.chains.trials import item_for
from callboard.serve.encoding.messages import InSequence
from callboard.serve.errors import BadModelResult, BadRequest, ModelStopped, ModelUnloaded, NotReady
from callboard.serve.tensors import Array, Tensor

__all__ = ["TOKENS", "Model", "RequestNote", "TensorModel", "check_tensors", "on_host"]

STOPPED = "stopped"

MOST_WAITING = 1024
"""Requests of a model that wait for its device at most."""

TOKENS = tuple(float(1 << n) for n in range(18))
"""Bounds of a request's tokens."""

WAITED: ContextVar[float] = ContextVar("callboard.waited", default=0.0)
"""Seconds that the request of this context has waited for its model's device."""


class RequestNote:
    """Around a request to a model: it is noted, and whether it fails."""

    __slots__ = ("_model", "_started", "refused")

    def __init__(self, model: "Model") -> None:
        self._model = model
        self.refused = False  # by the judge of a trial

    def __enter__(self) -> None:
        if self._model.on_end is not None:
            ASKED.set(self)
        self._model.last = time.time()
        self._started = time.perf_counter()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, DeviceStopped) or (isinstance(error, NoReplica) and not error.retryable):
            self._model.stopped = str(error)
        elif error is None:
            self._model.stopped = None
        seconds = time.perf_counter() - self._started
        if isinstance(error, BadModelResult):
            self._model.unfit += 1
        if error is not None:  # a cancel, too
            self._model.failures += 1
            self._model.failed_seconds += seconds
        if self._model.on_end is not None:
            self._model.on_end(self._model, error, seconds, self.refused)


ASKED: ContextVar[RequestNote] = ContextVar("callboard.asked")  # the request, while a version of its model is on trial


class Model:
    """Base of all models.

    Attributes:
        name: Name in URLs.
        version: Version in URLs and in responses.
        chain: The servers that its requests pass.
        device: Device that the model computes on, if known: the model is ready when the device is.
        created: When it was added, in seconds since 1970.
        last: When it was last asked, likewise; 0 never.
        failures: Requests that did not end in a value.
        failed_seconds: Summed seconds of the failed requests.
        unfit: Requests whose value is not what the model declares: its server counts them as completed.
        queue_time: Seconds from a request's submission until the model's function was called with it, whatever servers
            are in front of it.
        total_time: Seconds from a request's submission to its value.
        stopped: The error of a device that has stopped, if the last request ended in one.
        on_end: Called when a request has ended, with its error, its seconds, and True if ``on_value`` has refused a
            value; None: no version is on trial.
        on_value: Awaited with each value and a function that runs the same on another version; False refuses the value,
            which its client gets all the same. None: there is no judge, and no shadow.
        streams: Its responses are sent in parts.
    """

    def __init__(self, name: str, version: str, chain: Chain | Server, device: Device | None) -> None:
        check_name(name, version)
        self.name = name
        self.version = version
        self.chain = chain if isinstance(chain, Chain) else Chain(lambda: [chain], name=name)
        self.device = device
        self.created = time.time()
        self.last = 0.0
        self.failures = 0
        self.unfit = 0
        self.failed_seconds = 0.0
        self.queue_time, self.total_time = Buckets(SECONDS), Buckets(SECONDS)
        self.stopped: str | None = None
        self.on_end: Callable[[Model, BaseException | None, float, bool], None] | None = None
        self.on_value: Callable[[Any, Callable[[Model], Awaitable[Any]]], Awaitable[bool]] | None = None
        self.streams = False
        self._waiting = 0
        self._needs: list[Need] | None = None

    @property
    def url(self) -> str:
        """Path of its URL."""
        return f"/v2/models/{self.name}/infer"

    @property
    def server(self) -> Server:
        """Takes its requests."""
        return self.chain.front

    @property
    def has_sequences(self) -> bool:
        """True if each of its requests belongs to a sequence with a state."""
        return isinstance(self.server, SequenceBatchingServer)

    async def _submit(
        self, item: Any, tenant: Hashable, timeout: float | None, priority: int = 0, waited: float = 0.0, **more: Any
    ) -> Any:
        """The response to one item, which waited before; ``more`` are options of its server."""
        server = self.server
        submit = as_given(server.submit)  # what came over HTTP is no caller's
        passage, started = Passage(WAITED.get() + waited), time.monotonic()
        token = PASSAGE.set(passage)
        try:
            if isinstance(server, FairShareScheduler):
                value = await submit(item, tenant=tenant, timeout=timeout, priority=priority)
            else:
                value = await submit(item, timeout=timeout, priority=priority, **more)
            self.total_time.add(passage.waited + time.monotonic() - started)
        finally:
            PASSAGE.reset(token)
            self.left_queue(passage)
        value = value.response if isinstance(value, HotSwapReply) else value
        if self.on_value is not None and not await self.on_value(
            value, lambda other: other._submit(item_for(self, other, item), tenant, timeout, priority, **more)
        ):
            ASKED.get().refused = True
        return value

    def left_queue(self, passage: Passage) -> None:
        """Count how long a request that has ended was queued, if it ran."""
        queued = passage.queued
        if queued is not None:
            self.queue_time.add(queued)

    def why_not_ready(self) -> str | None:
        """The reason why the model cannot take requests now; None if it can."""
        if self.chain.unloaded:
            return f"version {self.version!r} of model {self.name!r} is unloaded"
        self._needs = None  # it may call others since
        need = self._unready()
        return self._why_unready(need) if need is not None else self.why_not_live()

    def why_not_live(self) -> str | None:
        """The reason why the model will take no requests any more; None if it will."""
        for need in self._known():
            if not isinstance(need, ResidentRef) and need.health().state == STOPPED:
                return f"the device of model {self.name!r} has stopped"
            if isinstance(need, ResidentRef) and need.is_stopped and isinstance(cause := need.cause, Exception):
                what = "a device" if isinstance(cause, DeviceStopped) else f"the actor {need.name!r}"
                return f"{what} of model {self.name!r} has stopped"
        return None if self.stopped is None else f"a device of model {self.name!r} has stopped"

    def _known(self) -> list[Need]:
        """The devices and actors that it calls; looked for again only where one is not ready."""
        if self._needs is None:
            found = self.chain.needs()
            self._needs = found if self.device is None else [self.device, *found]
        return self._needs

    def contexts(self) -> list[OpPort]:
        """The contexts that it computes in: of its devices, its replicas, and of the own processes of its actors."""
        given = [] if self.device is None else [self.device]
        return contexts_of([*given, *needs_of(self.chain.servers, spare=True)])

    def _unready(self) -> Need | None:
        """One that is not ready."""
        for need in self._known():
            if not is_ready(need):
                self._needs = None
                return next((each for each in self._known() if not is_ready(each)), None)
        return None

    def _why_unready(self, need: Need) -> str:
        if isinstance(need, ResidentRef):
            return f"the actor {need.name!r} of model {self.name!r} is {need.state}"
        return f"the device of model {self.name!r} is {need.health().state}"

    def stats(self) -> ServerStats:
        """Figures of the server that takes its requests."""
        return self.server.stats()

    def run_stats(self) -> ServerStats:
        """Figures of the server that runs them: of the active version alone, where versions replace one another."""
        return self.chain.last.stats()

    def quarantined(self) -> tuple[int, int]:
        """Keys that its servers refuse now, and requests that they have refused or ended for that."""
        found = [server.quarantined() for server in self.chain.servers]
        return sum(keys for keys, _ in found), sum(refused for _, refused in found)

    def check_ready(self) -> None:
        """Raise unless the model is loaded, and the devices and actors that it calls are ready.

        Raises:
            NotReady: One of them opens, or is set up.
            ModelUnloaded: The model is unloaded.
            ModelStopped: One of them has stopped.
        """
        why = self.why_not_ready()
        if why is not None:
            kind = ModelUnloaded if self.chain.unloaded else ModelStopped if self.why_not_live() else NotReady
            raise kind(why)

    async def until_ready(self, timeout: float) -> None:
        """Wait while a device opens or replaces a lost context, or an actor is set up.

        Args:
            timeout: Seconds at most.

        Raises:
            NotReady: The time is over, or :data:`MOST_WAITING` requests wait.
            ModelUnloaded: The model is unloaded.
            ModelStopped: The device, or the actor, has stopped.
        """
        WAITED.set(0.0)
        if self.chain.unloaded:
            self.check_ready()
        need = self._unready()
        if need is None:
            return
        why = self._why_unready(need)
        if self._waiting >= MOST_WAITING:
            raise NotReady(f"{why}, and {self._waiting} requests wait")
        self._waiting += 1
        started = time.monotonic()
        try:
            async with asyncio.timeout(timeout):
                while need is not None:
                    why = self._why_unready(need)
                    if not isinstance(need, ResidentRef) and need.health().state == STOPPED:
                        raise ModelStopped(self.why_not_live() or why)
                    await need.ready()
                    need = self._unready()
        except TimeoutError:
            raise NotReady(f"{why}; the request waited {timeout:g} s") from None
        except ActorStopped as e:
            raise ModelStopped(self._why_unready(need) if need is not None else why) from e
        finally:
            self._waiting -= 1
        WAITED.set(time.monotonic() - started)


class TensorModel(Model):
    """A model of the Open Inference Protocol: named arrays in, named arrays out."""

    def __init__(
        self,
        name: str,
        version: str,
        chain: Chain,
        device: Device | None,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
    ) -> None:
        if "/" in name:
            raise ValueError(f"model {name!r}: under /v2 names are parts of URLs, so give one without '/'")
        super().__init__(name, version, chain, device)
        self.inputs = list(inputs)
        self.outputs = list(outputs)

    async def infer(
        self,
        arrays: tuple[Any, ...],
        *,
        timeout: float | None,
        priority: int,
        tenant: Hashable = None,
        sequence: InSequence | None = None,
    ) -> dict[str, Array]:
        """Run one request; the outputs by name. A model without sequences does not look at ``sequence``.

        Raises:
            BadRequest: The model has sequences, and the request belongs to none.
            BadModelResult: The result does not fit the declared outputs.
            Exception: Raised by ``submit`` of the server.
        """
        single = len(arrays) == 1 and not isinstance(self.chain.last, CallServer)
        more: dict[str, Any] = {}
        if self.has_sequences:
            if sequence is None:
                raise BadRequest(
                    f"a request to model {self.name!r} belongs to a sequence: give the parameter sequence_id, and "
                    "sequence_start with its first request"
                )
            more = {"sequence": sequence.id, "start": sequence.start, "end": sequence.end}
        with RequestNote(self):
            value = await self._submit(arrays[0] if single else arrays, tenant, timeout, priority, **more)
            results = self._named(value)
            found: dict[str, Array] = {}
            for tensor in self.outputs:
                given = results[tensor.name]
                found[tensor.name] = tensor.check_result(await given.get() if isinstance(given, GpuRef) else given)
            return found

    def _named(self, value: Any) -> dict[str, Any]:
        names = [tensor.name for tensor in self.outputs]
        if isinstance(value, dict):
            missing = next((name for name in names if name not in value), None)
            if missing is not None:
                raise BadModelResult(f"model {self.name!r} gave {', '.join(map(repr, value))}, but no {missing!r}")
            return value
        if len(names) == 1:
            return {names[0]: value}
        if not isinstance(value, tuple | list) or len(value) != len(names):
            raise BadModelResult(
                f"model {self.name!r} must give a dict, or a tuple of {len(names)}: {', '.join(names)}"
            )
        return dict(zip(names, value, strict=True))


def check_tensors(name: str, **sides: Sequence[Tensor]) -> None:
    """Raise unless each side of a model, its inputs and its outputs, is tensors of different names.

    Raises:
        ValueError: One is not.
    """
    for side, tensors in sides.items():
        names = [tensor.name for tensor in tensors]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"model {name!r}: {side} must be tensors of different names, but are {names}")


async def on_host(value: Any) -> Any:
    """A result, read if it is on a device."""
    return await value.get() if isinstance(value, GpuRef) else value
