"""``RagStream``: an answer that is read piece by piece."""

from collections.abc import AsyncGenerator, Sequence
from typing import Self

from callboard.agents.rag.answer import Citation, RagAnswer

__all__ = ["RagStream"]


class RagStream:
    """The pieces of an answer, from :meth:`RagPipeline.stream <callboard.RagPipeline.stream>`.

    Attributes:
        citations: The passages of the context; there from the first piece on.
    """

    def __init__(self) -> None:
        self.citations: Sequence[Citation] = ()
        self._answer: RagAnswer | None = None
        self._pieces: AsyncGenerator[str, None] | None = None

    def begin(self, pieces: AsyncGenerator[str, None]) -> None:
        """Read these; for the pipeline."""
        self._pieces = pieces

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

    async def __anext__(self) -> str:
        assert self._pieces is not None
        return await anext(self._pieces)

    async def aclose(self) -> None:
        """End the answer, and its generator."""
        assert self._pieces is not None
        await self._pieces.aclose()
