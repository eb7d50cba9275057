"""``RagStream``: an answer that is read piece by piece."""

from collections.abc import AsyncGenerator, Awaitable, Sequence
from typing import Self

from callboard.agents.rag.answer import Citation, RagAnswer

__all__ = ["RagStream"]


class RagStream:
    """The pieces of an answer, from :meth:`RagPipeline.stream <callboard.RagPipeline.stream>`.

    Attributes:
        citations: The passages of the context; there from the first piece on.
        pieces: What is read, by the pipeline.
    """

    pieces: AsyncGenerator[str, None]

    def __init__(self) -> None:
        self.citations: Sequence[Citation] = ()
        self._answer: RagAnswer | None = None

    def finish(self, answer: RagAnswer) -> None:
        """The answer is complete; for the pipeline."""
        self._answer = answer

    @property
    def answer(self) -> RagAnswer:
        """The whole answer.

        Raises:
            RuntimeError: The stream was not read to its end.
        """
        if self._answer is None:
            raise RuntimeError("the answer is not complete; read the stream to its end")
        return self._answer

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[str]:
        return anext(self.pieces)

    async def aclose(self) -> None:
        """End the answer, and its generator."""
        await self.pieces.aclose()
