"""``Stream``: the items that a generator of a resident actor yields."""

import asyncio
from types import TracebackType
from typing import Generic, Self, TypeVar

from callboard.actors.handles import Handle
from callboard.core.errors import AskTimeout, MailboxFull
from callboard.device.client.residents.steps import PREFETCH, Steps, checked_prefetch

__all__ = ["Stream"]

R_co = TypeVar("R_co", covariant=True)


class Stream(Handle, Generic[R_co]):
    """An asynchronous iterator over the items of a method: ``async for token in model.stream(Model.generate, prompt)``.

    The generator runs on the actor's thread, one step for each item. Steps of several streams and other calls of the
    actor run in the order in which they were requested. The first item is requested when the iteration begins, and from
    then on a few ahead of the consumer (:meth:`with_prefetch`): the generator is never further ahead.

    An exception in the generator is raised here once, after the items before it, and ends the stream. So do a lost
    context (``ContextPoisoned``), the failure that restarts the actor, and the actor's stop.

    A consumer that leaves early closes the generator: its ``finally`` blocks run before later calls of that consumer.
    The consumer leaves by :meth:`aclose`, by the end of an ``async with`` block, by dropping the stream (``break`` in a
    loop over a stream that has no other name), or when its task is cancelled while it waits for an item.
    """

    __slots__ = ("_ahead", "_busy", "_steps", "_timeout", "_waits_to_open")

    def __init__(self, steps: Steps, timeout: float | None) -> None:
        self._steps = steps
        self._timeout = timeout
        self._ahead = PREFETCH
        self._busy = False
        self._waits_to_open = True

    def with_prefetch(self, items: int) -> Self:
        """Prefetch this number of items (4 by default); returns the same stream.

        Args:
            items: 0: the generator runs only while the consumer waits for an item.

        Raises:
            ValueError: ``items`` is negative.
        """
        self._ahead = checked_prefetch(items)
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> R_co:
        """The next item.

        Raises:
            StopAsyncIteration: The generator has returned, or the stream was closed.
            AskTimeout: It took longer than the time limit of ``with_timeout``; the stream is closed.
            MailboxFull: No item has been requested, and there is no room for a request; the stream continues.
            RuntimeError: Another task waits for an item of this stream.
            Exception: Raised by the generator, and as :meth:`callboard.ResidentRef.call`; the stream is over.
        """
        steps = self._steps
        if self._busy:
            raise RuntimeError(f"{steps.tag}: another task waits for an item of this stream")
        if steps.over:
            raise StopAsyncIteration
        if not (self._waits_to_open and steps.one_at_a_time):
            steps.ask_first(self._ahead)
        self._busy = True
        try:
            got = await self._first()
        except BaseException as e:  # a cancelled task, too
            if steps.asked or not isinstance(e, MailboxFull):
                steps.close()
            raise
        finally:
            self._busy = False
        if not got:
            raise StopAsyncIteration
        steps.ask_ahead(self._ahead)
        item: R_co = got[0]
        return item

    async def _first(self) -> tuple[R_co, ...]:
        steps = self._steps
        limit = asyncio.timeout(self._timeout)
        try:
            async with limit:
                if self._waits_to_open:
                    await steps.opened
                    self._waits_to_open = False
                if not steps.asked:
                    steps.ask_first(self._ahead)
                value = await steps.asked[0]
        except TimeoutError:
            if not limit.expired():  # the generator's own
                raise
            text = f"{steps.tag}: no item within {self._timeout:g} s; the stream is closed"
            raise AskTimeout(text) from None
        return steps.take(value)

    async def aclose(self) -> None:
        """Leave the stream: drop the requested items, and wait until the generator is closed.

        Raises:
            RuntimeError: Another task waits for an item of this stream.
            Exception: Raised by a ``finally`` block of the generator.
        """
        if self._busy:
            raise RuntimeError(f"{self._steps.tag}: another task waits for an item of this stream")
        closed = self._steps.close()
        if closed is not None:
            await closed

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<Stream of {self._steps.tag}{', over' if self._steps.over else ''}>"
