"""Models: a name, what goes in and out, and the server that runs it."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from callboard.core.ref import GpuRef
from callboard.device.client.handle import Device
from callboard.patterns.server import RequestServer
from callboard.patterns.stats import ServerStats
from callboard.serve.calls import CallServer
from callboard.serve.errors import BadModelResult, NotReady
from callboard.serve.tensors import Array, Tensor

__all__ = ["EmbeddingModel", "Model", "TensorModel", "server_of"]


class _Server(Protocol):
    def stats(self) -> ServerStats: ...


def server_of(model: Any, name: str, concurrency: int, max_queue: int) -> RequestServer[Any, Any]:
    """The server itself, or one that calls the function."""
    if isinstance(model, RequestServer):
        return model
    return CallServer(model, concurrency=concurrency, max_queue=max_queue, name=name)


class Model:
    """What all models have.

    Attributes:
        name: In URLs.
        version: In URLs, and in responses.
        server: Runs its requests.
        device: Where it computes, if that is known: the model is ready when the device is.
        created: When it was added, in seconds since 1970.
        last: When it was last asked, likewise; 0 never.
        failures: Requests that did not end in a value.
        failed_seconds: What they took together.
    """

    def __init__(self, name: str, version: str, server: RequestServer[Any, Any], device: Device | None) -> None:
        if not name or "/" in name or not version or "/" in version:
            raise ValueError(f"a model's name and version are parts of URLs, but are {name!r} and {version!r}")
        self.name = name
        self.version = version
        self.server = server
        self.device = device
        self.created = time.time()
        self.last = 0.0
        self.failures = 0
        self.failed_seconds = 0.0

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """Note a request, and whether it fails."""
        self.last = time.time()
        started = time.perf_counter()
        try:
            yield
        except BaseException:  # a cancel, too
            self.failures += 1
            self.failed_seconds += time.perf_counter() - started
            raise

    def why_not_ready(self) -> str | None:
        """Why the model cannot be asked now; None if it can."""
        if self.device is not None and not (health := self.device.health()).ok:
            return f"the device of model {self.name!r} is {health.state}"
        return None

    def stats(self) -> ServerStats:
        """Figures of its server."""
        server: Any = self.server
        found: _Server = server
        return found.stats()

    def check_ready(self) -> None:
        """Raise unless the model's device is ready.

        Raises:
            NotReady: It opens, or has stopped.
        """
        why = self.why_not_ready()
        if why is not None:
            raise NotReady(why)


class TensorModel(Model):
    """A model of the Open Inference Protocol: named arrays in, named arrays out."""

    def __init__(
        self,
        name: str,
        version: str,
        server: RequestServer[Any, Any],
        device: Device | None,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
    ) -> None:
        super().__init__(name, version, server, device)
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        for kind, tensors in (("inputs", self.inputs), ("outputs", self.outputs)):
            names = [tensor.name for tensor in tensors]
            if not names or len(set(names)) < len(names):
                raise ValueError(f"model {name!r}: {kind} must be tensors of different names, but are {names}")

    async def infer(self, arrays: tuple[Any, ...], *, timeout: float | None, priority: int) -> dict[str, Array]:
        """Run one request; the outputs by name.

        Raises:
            BadModelResult: The model gave something else than it declares.
            Exception: As ``submit`` of its server.
        """
        single = len(arrays) == 1 and not isinstance(self.server, CallServer)
        with self._asked():
            value = await self.server.submit(arrays[0] if single else arrays, timeout=timeout, priority=priority)
            results = self._named(value)
            return {tensor.name: tensor.check_result(await _on_host(results[tensor.name])) for tensor in self.outputs}

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

    Attributes:
        count_tokens: Tokens of an input, for the usage in responses.
    """

    def __init__(
        self,
        name: str,
        version: str,
        server: RequestServer[Any, Any],
        device: Device | None,
        count_tokens: Callable[[Any], int],
    ) -> None:
        super().__init__(name, version, server, device)
        self.count_tokens = count_tokens

    async def embed(self, inputs: list[Any], *, timeout: float | None) -> Array:
        """One row of f32 for each input.

        A batching server gets them one by one, so that they are batched with those of other requests; a function gets
        the list. One that fails, or that finds no room, cancels the others.

        Raises:
            BadModelResult: The model gave another number of vectors, or vectors of different lengths.
            Exception: As ``submit`` of its server.
        """
        with self._asked():
            if isinstance(self.server, CallServer):
                rows = await _on_host(await self.server.submit((inputs,), timeout=timeout))
            else:
                rows = await self._one_by_one(inputs, timeout)
            try:
                found = np.asarray(rows, np.float32)
            except (TypeError, ValueError) as e:
                raise BadModelResult(f"model {self.name!r} gave vectors that are no array of numbers: {e}") from e
            if found.ndim != 2 or len(found) != len(inputs):
                raise BadModelResult(f"model {self.name!r} gave shape {list(found.shape)} for {len(inputs)} inputs")
            return found

    async def _one_by_one(self, inputs: list[Any], timeout: float | None) -> list[Array]:
        tasks = [asyncio.ensure_future(self.server.submit(each, timeout=timeout)) for each in inputs]
        try:
            return [np.asarray(await _on_host(row)) for row in await asyncio.gather(*tasks)]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _on_host(value: Any) -> Any:
    return await value.get() if isinstance(value, GpuRef) else value
