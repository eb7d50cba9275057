"""``TextModel``: a decoder of tokens as a model of texts, and ``Generation``, one text that it continues."""

import operator
from collections.abc import AsyncGenerator, Callable, Hashable, Sequence
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass
from typing import Any, Literal

from callboard.actors.errors import returned
from callboard.device.client.handle import Device
from callboard.patterns.contract.options import RequestOptions
from callboard.patterns.fairshare.server import FairShareScheduler
from callboard.patterns.requests.server import RequestServer
from callboard.patterns.speculative.requests import Decode
from callboard.serve.errors import BadModelResult, BadRequest
from callboard.serve.generation.text import Detokenizer, StopStrings
from callboard.serve.models import Model

__all__ = ["Asked", "Generation", "TextModel"]

Why = Literal["stop", "length"]


@dataclass(frozen=True)
class Asked:
    """The generation request of a client.

    Attributes:
        prompt: A text, or tokens.
        max_tokens: New tokens at most; None: as many as the model gives.
        stop: Strings before which the text ends.
        temperature, seed: See :class:`callboard.Decode`.
    """

    prompt: str | list[int]
    max_tokens: int | None = None
    stop: Sequence[str] = ()
    temperature: float = 0.0
    seed: int | None = None


class TextModel(Model):
    """A model that continues texts.

    Args:
        name, version, server, device: See :class:`Model`. The server takes :class:`callboard.Decode` items and streams
            tokens.
        encode: Tokens of a text.
        decode: Text of tokens; without those in ``eos``.
        eos: Tokens that end a text, and are not part of it.
        chat: Prompt of a conversation; None: the model does not chat.
        most: New tokens of a request at most.
    """

    def __init__(
        self,
        name: str,
        version: str,
        server: RequestServer[Any, Any],
        device: Device | None,
        *,
        encode: Callable[[str], Sequence[int]],
        decode: Callable[[list[int]], str],
        eos: frozenset[int],
        chat: Callable[[list[dict[str, Any]]], str | Sequence[int]] | None,
        most: int,
    ) -> None:
        super().__init__(name, version, server, device)
        if most < 1:
            raise ValueError(f"model {name!r}: max_tokens must be at least 1, but is {most}")
        self.chat = chat
        self.most = most
        self._encode = encode
        self._decode = decode
        self._eos = eos

    def begin(self, asked: Asked, timeout: float | None, tenant: Hashable) -> "Generation":
        """A text that is about to be continued, for this tenant if the server shares by tenants.

        Raises:
            BadRequest: The prompt is empty, or ``asked`` is out of range.
        """
        if asked.max_tokens is not None and not 1 <= asked.max_tokens <= self.most:
            raise BadRequest(f"max_tokens must be from 1 to {self.most}, but is {asked.max_tokens}")
        if not all(asked.stop):
            raise BadRequest("stop has an empty string")
        tokens = self._encoded(asked.prompt) if isinstance(asked.prompt, str) else asked.prompt
        if not len(tokens):
            raise BadRequest("the prompt has no tokens; give at least one, such as that of the beginning of a text")
        try:
            item = Decode(
                tokens,
                max_new_tokens=self.most if asked.max_tokens is None else asked.max_tokens,
                temperature=asked.temperature,
                seed=asked.seed,
            )
        except ValueError as e:
            raise BadRequest(str(e)) from e
        options: RequestOptions = {"timeout": timeout}
        if isinstance(self.server, FairShareScheduler):
            options["tenant"] = tenant
        return Generation(self, item, asked.stop, options)

    def _encoded(self, prompt: str) -> list[int]:
        tokens: Any = self._encode(prompt)
        try:
            return [operator.index(token) for token in tokens]
        except TypeError:
            raise returned("encode", tokens, "a sequence of token ids") from None

    async def tokens(self, item: Decode, options: RequestOptions) -> AsyncGenerator[int, None]:
        """The new tokens.

        Raises:
            BadModelResult: The server yielded a value that is not a token.
            Exception: Raised by ``stream`` of the server.
        """
        async with aclosing(self.server.stream(item, **options)) as stream:
            async for token in stream:
                try:
                    number = int(token)
                except (TypeError, ValueError):
                    raise BadModelResult(f"model {self.name!r} returned {token!r} instead of a token") from None
                yield number

    def noted(self) -> AbstractContextManager[None]:
        """Note a request, and whether it fails."""
        return self._asked()

    def new_text(self) -> Detokenizer:
        """For the tokens of one text."""
        return Detokenizer(self._decode)

    def ends(self, token: int) -> bool:
        """True if this token ends a text."""
        return token in self._eos

    @property
    def knows_ends(self) -> bool:
        """True if a text that ends without one of them was truncated."""
        return bool(self._eos)


class Generation:
    """One text that is continued.

    Attributes:
        prompt_tokens, new_tokens: Number of tokens.
        finish: ``"stop"``: at its own end, or at a stop string; ``"length"``: at a bound; None while it continues.
    """

    def __init__(self, model: TextModel, item: Decode, stop: Sequence[str], options: RequestOptions) -> None:
        self._model = model
        self._item = item
        self._stop = StopStrings(stop)
        self._options = options
        self.prompt_tokens = len(item.prefix)
        self.new_tokens = 0
        self.finish: Why | None = None

    async def texts(self) -> AsyncGenerator[str, None]:
        """The pieces of the new text, none of them empty; ``finish`` is known after the last one."""
        with self._model.noted():
            async with aclosing(self._pieces()) as pieces:
                async for piece in pieces:
                    yield piece

    async def _pieces(self) -> AsyncGenerator[str, None]:
        text = self._model.new_text()
        ended = False
        async with aclosing(self._model.tokens(self._item, self._options)) as tokens:
            async for token in tokens:
                self.new_tokens += 1
                ended = self._model.ends(token)
                piece = "" if ended else self._stop.add(text.add(token))
                if piece:
                    yield piece
                if ended or self._stop.stopped or self.new_tokens == self._item.max_new_tokens:
                    break
        if not self._stop.stopped and (piece := self._stop.add(text.end()) + self._stop.end()):
            yield piece
        cut = self.new_tokens == self._item.max_new_tokens or self._model.knows_ends
        self.finish = "length" if cut and not ended and not self._stop.stopped else "stop"

    async def whole(self) -> str:
        """The new text."""
        return "".join([piece async for piece in self.texts()])
