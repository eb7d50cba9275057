"""``TextModel``: a decoder of tokens as a model of texts, and ``Generation``, one text that it continues."""

import operator
import time
from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from callboard.actors.errors import returned
from callboard.device.client.handle import Device
from callboard.patterns.contract.atcall import as_given
from callboard.patterns.contract.checks import check_whole
from callboard.patterns.contract.options import RequestOptions
from callboard.patterns.fairshare.server import FairShareScheduler
from callboard.patterns.requests.passage import PASSAGE, Passage
from callboard.patterns.requests.server import RequestServer
from callboard.patterns.requests.stats import SECONDS, Buckets
from callboard.patterns.speculative.requests import Decode
from callboard.patterns.speculative.server import SpeculativeDecoder
from callboard.serve.errors import BadModelResult, BadRequest
from callboard.serve.generation.parameters import CHAT_ONLY, check_takes
from callboard.serve.generation.quoting import quoted
from callboard.serve.generation.text import Detokenizer, StopStrings
from callboard.serve.http.compression import off_loop
from callboard.serve.models import TOKENS, WAITED, Model, RequestNote

__all__ = ["Asked", "Generation", "TextModel", "Token"]

END: Any = object()
"""In place of a token after the last one."""

Why = Literal["stop", "length"]


@dataclass(frozen=True)
class Asked:
    """The generation request of a client.

    Attributes:
        prompt: Tokens, which several requests may share; see :meth:`TextModel.encoded`.
        max_tokens: New tokens at most; None: as many as the model gives.
        stop: Strings before which the text ends.
        temperature, seed, parameters: See :class:`callboard.Decode`.
    """

    prompt: list[int]
    max_tokens: int | None = None
    stop: Sequence[str] = ()
    temperature: float = 0.0
    seed: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)


class Token(NamedTuple):
    """A new token, with its log probability and those of others in its place, where the model gives them."""

    id: int
    logprob: float | None = None
    top: Mapping[int, float] = {}


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
        takes: Names of the :data:`parameters <PARAMETERS>` that it reads from its items.
        vocabulary: Number of tokens that clients may send; None: it is not known.

    Attributes:
        prompt_tokens, completion_tokens: Tokens of a request, and new ones.
        first_token_time: Seconds from a request's submission to its first token.
        token_time: Seconds from one token of a text to the next.

    Raises:
        ValueError: ``takes`` has a name that is no parameter, or one that the server does not read.
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
        eos: int | Iterable[int],
        chat: Callable[..., str | Sequence[int]] | None,
        most: int,
        takes: Iterable[str] = (),
        vocabulary: int | None = None,
    ) -> None:
        super().__init__(name, version, server, device)
        self.streams = True
        if vocabulary is not None:
            check_whole(1, vocabulary=vocabulary)
        self.vocabulary = vocabulary
        self.takes = check_takes(name, takes)
        unread = self.takes - CHAT_ONLY - {"n"}
        if unread and isinstance(self.chain.last, SpeculativeDecoder):
            raise ValueError(f"model {name!r}: takes has {min(unread)!r}, which a SpeculativeDecoder does not read")
        self.prompt_tokens, self.completion_tokens = Buckets(TOKENS), Buckets(TOKENS)
        self.first_token_time, self.token_time = Buckets(SECONDS), Buckets(SECONDS)
        if most < 1:
            raise ValueError(f"model {name!r}: max_tokens must be at least 1, but is {most}")
        self.chat = chat
        self.most = most
        self._encode = encode
        self._decode = decode
        self._eos = frozenset([eos] if isinstance(eos, int) else eos)

    @property
    def url(self) -> str:
        """Path of its URL."""
        return "/v1/completions"

    def begin(self, asked: Asked, timeout: float | None, tenant: Hashable) -> "Generation":
        """A text that is about to be continued, for this tenant if the server shares by tenants.

        Raises:
            BadRequest: The prompt is empty, or ``asked`` is out of range.
        """
        if asked.max_tokens is not None and not 1 <= asked.max_tokens <= self.most:
            raise BadRequest(f"max_tokens must be from 1 to {self.most}, but is {quoted(asked.max_tokens)}")
        if not asked.prompt:
            raise BadRequest("the prompt has no tokens; give at least one, such as that of the beginning of a text")
        try:
            item = Decode(
                asked.prompt,
                max_new_tokens=self.most if asked.max_tokens is None else asked.max_tokens,
                temperature=asked.temperature,
                seed=asked.seed,
                parameters=asked.parameters,
            )
        except ValueError as e:
            raise BadRequest(str(e)) from e
        options: RequestOptions = {"timeout": timeout}
        if isinstance(self.server, FairShareScheduler):
            options["tenant"] = tenant
        return Generation(self, item, asked.stop, options)

    async def encoded(self, prompts: Sequence[str | list[int]]) -> list[list[int]]:
        """Tokens of prompts that are texts, or tokens already; long texts are encoded on a thread.

        Raises:
            Exception: Raised by ``encode``.
        """
        return await off_loop(
            sum(len(each) for each in prompts if isinstance(each, str)),
            lambda: [self._encoded(each) if isinstance(each, str) else each for each in prompts],
        )

    def _encoded(self, prompt: str) -> list[int]:
        tokens: Any = self._encode(prompt)
        try:
            return [operator.index(token) for token in tokens]
        except TypeError:
            raise returned("encode", tokens, "a sequence of token ids") from None

    async def tokens(self, item: Decode, options: RequestOptions, passage: Passage) -> AsyncGenerator[Token, None]:
        """The new tokens.

        Raises:
            BadModelResult: The server yielded a value that is not a token.
            Exception: Raised by ``stream`` of the server.
        """
        async with aclosing(as_given(self.server.stream)(item, **options)) as stream:
            mark = PASSAGE.set(passage)
            try:
                part = await anext(stream, END)  # the request enters the server
            finally:
                PASSAGE.reset(mark)
            while part is not END:
                yield self._token(part)
                part = await anext(stream, END)

    def _token(self, part: Any) -> Token:
        try:
            if "logprobs" in self.takes and type(part) is tuple:
                token, logprob, *top = part
                return Token(int(token), float(logprob), dict(*top))
            return Token(int(part))
        except (TypeError, ValueError):
            raise BadModelResult(f"model {self.name!r} returned {part!r} instead of a token") from None

    def completed(self, prompt: int, new: int, seconds: float) -> None:
        """Count a text that is complete."""
        self.prompt_tokens.add(prompt)
        self.completion_tokens.add(new)
        self.total_time.add(seconds)

    def noted(self) -> AbstractContextManager[None]:
        """Note a request, and whether it fails."""
        return RequestNote(self)

    def new_text(self) -> Detokenizer:
        """For the tokens of one text."""
        return Detokenizer(self._decode)

    def ends(self, token: int) -> bool:
        """True if this token ends a text."""
        return token in self._eos

    def text_of(self, token: int) -> str:
        """The text of a token by itself."""
        return self._decode([token])

    @property
    def knows_ends(self) -> bool:
        """True if a text that ends without one of them was truncated."""
        return bool(self._eos)


class Generation:
    """One text that is continued.

    Attributes:
        prompt_tokens, new_tokens: Number of tokens.
        logprobs: The tokens of the text so far that :meth:`taken_logprobs` has not given; None: they were not asked
            for.
        finish: ``"stop"``: at its own end, or at a stop string; ``"length"``: at a bound; None while it continues.
    """

    def __init__(self, model: TextModel, item: Decode, stop: Sequence[str], options: RequestOptions) -> None:
        self._model = model
        self._item = item
        self._stop = StopStrings(stop)
        self._options = options
        self._begun, self._waited = time.monotonic(), WAITED.get()
        self.prompt_tokens = len(item.prefix)
        self.new_tokens = 0
        wanted = item.parameters.get("logprobs")
        self.logprobs: list[Token] | None = None if wanted is None or wanted is False else []
        self.finish: Why | None = None

    async def texts(self) -> AsyncGenerator[str, None]:
        """The pieces of the new text, none of them empty; ``finish`` is known after the last one."""
        with self._model.noted():
            async with aclosing(self._pieces()) as pieces:
                async for piece in pieces:
                    yield piece

    async def _pieces(self) -> AsyncGenerator[str, None]:
        text = self._model.new_text()
        piece, ended = "", False
        passage = Passage(self._waited + time.monotonic() - self._begun)
        try:
            async with aclosing(self._model.tokens(self._item, self._options, passage)) as tokens:
                async for token in self._counted(tokens):
                    ended = self._model.ends(token.id)
                    piece = "" if ended else self._stop.add(text.add(token.id))
                    if self.logprobs is not None and not ended:
                        self.logprobs.append(self._with_logprob(token))
                    if ended or self._stop.stopped or self.new_tokens == self._item.max_new_tokens:
                        passage.satisfied = True
                        break
                    if piece:
                        yield piece
                        piece = ""
        finally:
            self._model.left_queue(passage)
        if not self._stop.stopped:
            piece += self._stop.add(text.end()) + self._stop.end()
        cut = self.new_tokens == self._item.max_new_tokens or self._model.knows_ends
        self.finish = "length" if cut and not ended and not self._stop.stopped else "stop"
        self._model.completed(self.prompt_tokens, self.new_tokens, self._waited + time.monotonic() - self._begun)
        if piece:
            yield piece

    async def _counted(self, tokens: AsyncGenerator[Token, None]) -> AsyncGenerator[Token, None]:
        """The same tokens, whose times are measured."""
        before = self._begun - self._waited
        times = self._model.first_token_time
        async for token in tokens:
            now = time.monotonic()
            times.add(now - before)
            before, times = now, self._model.token_time
            self.new_tokens += 1
            yield token

    def _with_logprob(self, token: Token) -> Token:
        if token.logprob is None:
            raise BadModelResult(
                f"model {self._model.name!r} takes logprobs, but gave token {token.id} without its own"
            )
        return token

    def taken_logprobs(self) -> list[Token] | None:
        """The tokens since the last time, with their log probabilities; None: they were not asked for."""
        found = self.logprobs
        if found is not None:
            self.logprobs = []
        return found

    async def whole(self) -> str:
        """The new text."""
        return "".join([piece async for piece in self.texts()])
