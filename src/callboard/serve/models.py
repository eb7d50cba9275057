"""Models: a name, inputs and outputs, and the server that runs it."""

import asyncio
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from callboard.core.errors import DeviceStopped
from callboard.core.ref import GpuRef
from callboard.device.client.handle import Device
from callboard.patterns.batching.sequences.server import SequenceBatchingServer
from callboard.patterns.contract.hooks import amount
from callboard.patterns.fairshare.server import FairShareScheduler
from callboard.patterns.hotswap.results import HotSwapReply
from callboard.patterns.requests.entering import as_room_comes
from callboard.patterns.requests.stats import ServerStats
from callboard.serve.calls import CallServer
from callboard.serve.chain import Chain, Server
from callboard.serve.encoding.messages import InSequence
from callboard.serve.errors import BadModelResult, BadRequest, ModelStopped, NotReady
from callboard.serve.tensors import Array, Tensor

__all__ = ["EmbeddingModel", "Model", "TensorModel"]

STOPPED = "stopped"

MOST_WAITING = 1024
"""Requests of a model that wait for its device at most."""

LONG = 64 * 1024
"""Characters of a request's texts from which on a thread makes tokens of them."""


class _Server(Protocol):
    def stats(self) -> ServerStats: ...


class _Noted:
    """Around a request to a model: it is noted, and whether it fails."""

    __slots__ = ("_model", "_started")

    def __init__(self, model: "Model") -> None:
        self._model = model

    def __enter__(self) -> None:
        self._model.last = time.time()
        self._started = time.perf_counter()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, DeviceStopped):
            self._model.stopped = str(error)
        elif error is None:
            self._model.stopped = None
        if error is not None:  # a cancel, too
            self._model.failures += 1
            self._model.failed_seconds += time.perf_counter() - self._started


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
        stopped: The error of a device that has stopped, if the last request ended in one.
    """

    def __init__(self, name: str, version: str, chain: Chain | Server, device: Device | None) -> None:
        if not name or "/" in name or not version or "/" in version:
            raise ValueError(f"a model's name and version are parts of URLs, but are {name!r} and {version!r}")
        self.name = name
        self.version = version
        self.chain = chain if isinstance(chain, Chain) else Chain(lambda: [chain])
        self.device = device
        self.created = time.time()
        self.last = 0.0
        self.failures = 0
        self.failed_seconds = 0.0
        self.stopped: str | None = None
        self._waiting = 0

    def _asked(self) -> AbstractContextManager[None]:
        """Note a request, and whether it fails."""
        return _Noted(self)

    @property
    def server(self) -> Server:
        """Takes its requests."""
        return self.chain.front

    async def _submit(self, item: Any, tenant: Hashable, timeout: float | None, priority: int = 0, **more: Any) -> Any:
        """The response to one item; ``more`` are options of its server."""
        server = self.server
        if isinstance(server, FairShareScheduler):
            value = await server.submit(item, tenant=tenant, timeout=timeout, priority=priority)
        else:
            value = await server.submit(item, timeout=timeout, priority=priority, **more)
        return value.response if isinstance(value, HotSwapReply) else value

    def why_not_ready(self) -> str | None:
        """The reason why the model cannot take requests now; None if it can."""
        if self.chain.unloaded:
            return f"model {self.name!r} is unloaded"
        if self.device is not None and not (health := self.device.health()).ok:
            return f"the device of model {self.name!r} is {health.state}"
        return self.why_not_live()

    def why_not_live(self) -> str | None:
        """The reason why the model will take no requests any more; None if it will."""
        if self.device is not None and self.device.health().state == STOPPED:
            return f"the device of model {self.name!r} has stopped"
        return None if self.stopped is None else f"a device of model {self.name!r} has stopped"

    def stats(self) -> ServerStats:
        """Figures of the server that takes its requests."""
        return _stats(self.server)

    def run_stats(self) -> ServerStats:
        """Figures of the server that runs them: of the active version alone, where versions replace one another."""
        return _stats(self.chain.last)

    def check_ready(self) -> None:
        """Raise unless the model is loaded and its device is ready.

        Raises:
            NotReady: It is unloaded; the device opens, or has stopped.
        """
        why = self.why_not_ready()
        if why is not None:
            raise NotReady(why)

    async def until_ready(self, timeout: float) -> None:
        """Wait while the device opens or replaces a lost context.

        Args:
            timeout: Seconds at most.

        Raises:
            NotReady: The model is unloaded, the time is over, or :data:`MOST_WAITING` requests wait.
            ModelStopped: The device has stopped.
        """
        if self.chain.unloaded:
            self.check_ready()
        device = self.device
        if device is None or (health := device.health()).ok:
            return
        if health.state == STOPPED:
            raise ModelStopped(self.why_not_live() or "")
        if self._waiting >= MOST_WAITING:
            raise NotReady(f"the device of model {self.name!r} is {health.state}, and {self._waiting} requests wait")
        self._waiting += 1
        try:
            await asyncio.wait_for(device.ready(), timeout)
        except TimeoutError:
            state = device.health().state
            raise NotReady(f"the device of model {self.name!r} is {state}; the request waited {timeout:g} s") from None
        finally:
            self._waiting -= 1


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
        super().__init__(name, version, chain, device)
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        for kind, tensors in (("inputs", self.inputs), ("outputs", self.outputs)):
            names = [tensor.name for tensor in tensors]
            if not names or len(set(names)) < len(names):
                raise ValueError(f"model {name!r}: {kind} must be tensors of different names, but are {names}")

    @property
    def has_sequences(self) -> bool:
        """True if each of its requests belongs to a sequence with a state."""
        return isinstance(self.server, SequenceBatchingServer)

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
        with self._asked():
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


class EmbeddingModel(Model):
    """A model of ``/v1/embeddings``: texts, or lists of tokens, to vectors.

    Under the Open Inference Protocol it takes texts as ``text`` and gives their vectors as ``embedding``.

    Attributes:
        tokenize: Function that returns the server's input for a text or tokens; None: they are passed unchanged.
        count_tokens: Function that returns the number of tokens of a server's item, for the usage in responses.
    """

    def __init__(
        self,
        name: str,
        version: str,
        chain: Chain,
        device: Device | None,
        tokenize: Callable[[Any], Any] | None,
        count_tokens: Callable[[Any], int],
    ) -> None:
        super().__init__(name, version, chain, device)
        self.tokenize = tokenize
        self.count_tokens = count_tokens
        self.inputs = [Tensor("text", "BYTES", [-1])]
        self.outputs = [Tensor("embedding", "FP32", [-1, -1])]

    async def infer(
        self,
        arrays: tuple[Any, ...],
        *,
        timeout: float | None,
        priority: int,
        tenant: Hashable = None,
        sequence: InSequence | None = None,
    ) -> dict[str, Array]:
        """Vectors of an array of UTF-8 texts, which belong to no sequence.

        Raises:
            BadRequest: There is no text, or one is empty or not UTF-8.
            Exception: As for :meth:`embed`.
        """
        try:
            texts = [text.decode() for text in arrays[0]]
        except UnicodeDecodeError as e:
            raise BadRequest(f"input 'text' is not UTF-8: {e}") from e
        if not texts or not all(texts):
            raise BadRequest("input 'text' must not be empty")
        vectors, _ = await self.embed(texts, timeout=timeout, priority=priority, tenant=tenant)
        return {"embedding": vectors}

    async def embed(
        self, inputs: list[Any], *, timeout: float | None, priority: int = 0, tenant: Hashable = None
    ) -> tuple[Array, int]:
        """One row of f32 for each input, and the number of their tokens.

        A function gets the list; other servers get them one by one, so that they are batched with those of other
        requests. One that fails, or that finds no room, cancels the others.

        Raises:
            BadModelResult: The model returned another number of vectors, or vectors of different lengths.
            Exception: Raised by ``submit`` of the server, or by ``tokenize``.
        """
        with self._asked():
            items = await self._tokens(inputs)
            if isinstance(self.chain.last, CallServer):
                rows = await _on_host(await self._submit((items,), tenant, timeout, priority))
            else:
                rows = await self._one_by_one(items, timeout, priority, tenant)
            try:
                found = np.asarray(rows, np.float32)
            except (TypeError, ValueError) as e:
                raise BadModelResult(
                    f"model {self.name!r} returned vectors that are not an array of numbers: {e}"
                ) from e
            if found.ndim != 2 or len(found) != len(inputs):
                raise BadModelResult(f"model {self.name!r} returned shape {list(found.shape)} for {len(inputs)} inputs")
            return found, sum(int(amount("count_tokens", self.count_tokens(item))) for item in items)

    async def _tokens(self, inputs: list[Any]) -> list[Any]:
        tokenize = self.tokenize
        if tokenize is None:
            return inputs
        if sum(len(each) for each in inputs) < LONG:
            return [tokenize(each) for each in inputs]
        return await asyncio.to_thread(lambda: [tokenize(each) for each in inputs])

    async def _one_by_one(
        self, items: list[Any], timeout: float | None, priority: int, tenant: Hashable
    ) -> list[Array]:
        until = None if timeout is None else time.monotonic() + timeout

        async def row(item: Any) -> Array:
            left = None if until is None else until - time.monotonic()
            return np.asarray(await _on_host(await self._submit(item, tenant, left, priority)))

        return [await row(items[0])] if len(items) == 1 else await as_room_comes(row, items)


def _stats(server: Any) -> ServerStats:
    found: _Server = server
    return found.stats()


async def _on_host(value: Any) -> Any:
    return await value.get() if isinstance(value, GpuRef) else value
