"""``EmbeddingModel``: a model of ``/v1/embeddings``."""

import asyncio
import time
from collections.abc import Callable, Container, Hashable
from typing import Any

import numpy as np

from callboard.device.client.handle import Device
from callboard.patterns.contract.checks import check_whole
from callboard.patterns.contract.hooks import amount
from callboard.patterns.requests.stats import Buckets
from callboard.serve.calls import CallServer
from callboard.serve.chains.chain import Chain
from callboard.serve.chains.entering import as_room_comes
from callboard.serve.encoding.messages import InSequence
from callboard.serve.errors import BadModelResult, BadRequest
from callboard.serve.models import TOKENS, Model, RequestNote, on_host
from callboard.serve.tensors import Array, Tensor

__all__ = ["EmbeddingModel", "words"]

LONG = 64 * 1024
"""Tokenise in a thread above this many characters of a request's texts."""


class EmbeddingModel(Model):
    """A model of ``/v1/embeddings``: texts, or lists of tokens, to vectors.

    Under the Open Inference Protocol it takes texts as ``text`` and gives their vectors as ``embedding``.

    Attributes:
        tokenize: Function that returns the server's input for a text or tokens; None: they are passed unchanged.
        count_tokens: Function that returns the number of tokens of a server's item, for the usage in responses.
        vocabulary: Number of tokens that clients may send; None: it is not known.
        prompt_tokens: Tokens of an input.
    """

    def __init__(
        self,
        name: str,
        version: str,
        chain: Chain,
        device: Device | None,
        tokenize: Callable[[Any], Any] | None,
        count_tokens: Callable[[Any], int],
        dimensions: Container[int] = (),
        vocabulary: int | None = None,
    ) -> None:
        super().__init__(name, version, chain, device)
        if vocabulary is not None:
            check_whole(1, vocabulary=vocabulary)
        self.vocabulary = vocabulary
        self.tokenize = tokenize
        self.count_tokens = count_tokens
        self.prompt_tokens = Buckets(TOKENS)
        self._dimensions = dimensions
        self._width: int | None = None  # of its vectors, since the first ones
        self.inputs = [Tensor("text", "TEXT", [-1])]
        self.outputs = [Tensor("embedding", "FP32", [-1, -1])]

    @property
    def takes_tokens(self) -> bool:
        """True if clients may send lists of tokens: the app converts them, or says how many the model knows."""
        return self.tokenize is not None or self.vocabulary is not None

    async def infer(
        self,
        arrays: tuple[Any, ...],
        *,
        timeout: float | None,
        priority: int,
        tenant: Hashable = None,
        sequence: InSequence | None = None,
    ) -> dict[str, Array]:
        """Vectors of an array of texts, which belong to no sequence.

        Raises:
            BadRequest: There is no text, or one is empty.
            Exception: As for :meth:`embed`.
        """
        texts = arrays[0].tolist()
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
        with RequestNote(self):
            items = await self._tokens(inputs)
            if isinstance(self.chain.last, CallServer):
                rows = await on_host(await self._submit((items,), tenant, timeout, priority))
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
            self._width = found.shape[1]
            counts = await self._counts(items, sum(map(len, inputs)))
            for count in counts:
                self.prompt_tokens.add(count)
            return found, sum(counts)

    def check_dimensions(self, asked: int) -> None:
        """Raise unless vectors of this length can be given, as far as that is known before they are there.

        Raises:
            BadRequest: They cannot.
        """
        if asked < 1 or (asked not in self._dimensions and self._width not in (None, asked)):
            raise BadRequest(
                f"dimensions is {asked}, but vectors of {self.name!r} have {self._width or 'its own number'}"
            )

    def cut(self, vectors: Array, asked: int) -> Array:
        """Vectors of this length: the first components of longer ones, scaled to length 1.

        Raises:
            BadRequest: The model's vectors are not cut to it.
        """
        width = vectors.shape[1]
        if asked == width:
            return vectors
        if asked not in self._dimensions or asked > width:
            raise BadRequest(f"dimensions is {asked}, but vectors of {self.name!r} have {width}")
        short = vectors[:, :asked]
        norms = np.linalg.norm(short, axis=1, keepdims=True)
        return short / np.where(norms == 0, 1, norms)

    async def _tokens(self, inputs: list[Any]) -> list[Any]:
        tokenize = self.tokenize
        if tokenize is None:
            return inputs

        def converted() -> list[Any]:
            try:
                return [tokenize(each) for each in inputs]
            except (AttributeError, TypeError) as e:
                if isinstance(inputs[0], str) or self.vocabulary is not None:
                    raise
                raise BadRequest(f"input has tokens, which tokenize of model {self.name!r} does not take") from e

        return converted() if sum(map(len, inputs)) < LONG else await asyncio.to_thread(converted)

    async def _counts(self, items: list[Any], size: int) -> list[int]:
        def count() -> list[int]:
            return [int(amount("count_tokens", self.count_tokens(item))) for item in items]

        return count() if size < LONG else await asyncio.to_thread(count)

    async def _one_by_one(
        self, items: list[Any], timeout: float | None, priority: int, tenant: Hashable
    ) -> list[Array]:
        began = time.monotonic()

        async def row(item: Any) -> Array:
            waited = time.monotonic() - began  # for room in the queue
            left = None if timeout is None else timeout - waited
            return np.asarray(await on_host(await self._submit(item, tenant, left, priority, waited)))

        return [await row(items[0])] if len(items) == 1 else await as_room_comes(row, items)


def words(text: Any) -> int:
    """The number of words of a text, or of tokens in a list."""
    return len(text.split()) if isinstance(text, str) else len(text)
