"""Generation: what a user's generator returns, as pieces of text."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from typing import Any

from callboard.actors.errors import returned
from callboard.agents.rag.stages import Deadline, RagStage
from callboard.patterns.requests.calling import UserCall

__all__ = ["Generate", "Generation"]

Generate = Callable[[list[dict[str, Any]]], Any]
"""Gets messages as OpenAI's API has them; returns, or is awaited for, a text, or an asynchronous iterator of pieces:
texts, or chunks of OpenAI's client."""


class Generation:
    """Calls a generator for one query at a time each, a bounded number of them at once.

    Args:
        generate: The generator.
        options: Settings of the stage.
    """

    def __init__(self, generate: Generate, options: RagStage) -> None:
        self.options = options
        self._call = UserCall(generate, "auto", options.max_batch)
        self._room = asyncio.Semaphore(options.max_batch)

    async def __call__(
        self, messages: list[dict[str, Any]], deadline: Deadline, left: float
    ) -> AsyncGenerator[str, None]:
        """The pieces of the answer, none of them empty; closes the generator's iterator in the end.

        The time that the reader of the pieces takes counts, too, but a reader is not interrupted.

        Args:
            messages: The conversation.
            deadline: Of the query.
            left: Seconds until then; the stage may have less.

        Raises:
            DeadlineExceeded: It took too long.
            TypeError: The generator returned something else.
            Exception: Raised by the generator.
        """
        own, most = None, self.options.timeout
        if most is not None and most < left:
            own = deadline = Deadline("the stage 'generate'", most)
        held = False
        try:
            try:
                with deadline:
                    held = await self._room.acquire()
                    found = await self._call(messages)
                if not isinstance(found, AsyncIterable):
                    if text := _text(found):
                        yield text
                    return
                source = aiter(found)
                try:
                    while True:
                        with deadline:
                            try:
                                part = await anext(source)
                            except StopAsyncIteration:
                                return
                        if text := _text(part):
                            yield text
                finally:
                    close = getattr(source, "aclose", None) or getattr(found, "close", None)
                    if close is not None:
                        await close()
            finally:
                if held:
                    self._room.release()
        finally:
            if own is not None:
                own.close()

    def close(self) -> None:
        """Call it no more."""
        self._call.close()


def _text(part: Any) -> str:
    """A piece of text, or the text of a response of OpenAI's client, whole or a chunk."""
    if isinstance(part, str):
        return part
    choices = getattr(part, "choices", None)
    if choices is None:
        raise returned("generate", part, "a text, an asynchronous iterator of texts, or a response of OpenAI's client")
    if not choices:  # the last chunk, with the usage
        return ""
    message = getattr(choices[0], "delta", None) or choices[0].message
    return str(message.content or "")
