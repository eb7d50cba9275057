"""``BatchRunner``: one batch, from the call of the function to the ends of its requests."""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from callboard.actors.errors import ActorStopped, returned
from callboard.core.errors import ContextLost, MailboxFull, Unrecoverable
from callboard.events.tracing import Cause
from callboard.patterns.batching.figures import BatchCounters
from callboard.patterns.batching.isolation import OnError, reruns
from callboard.patterns.batching.policy import Batch, BatchPolicy
from callboard.patterns.batching.ragged import Ragged
from callboard.patterns.batching.results import are_values, copies, rows_of
from callboard.patterns.requests.calling import UserCall, deliverable
from callboard.patterns.requests.entries import Entry, State
from callboard.patterns.requests.errors import BadBatchResult, QueueFull, ServerStopped

if TYPE_CHECKING:
    from callboard.patterns.batching.server import DynamicBatchingServer

__all__ = ["BatchRunner"]

OF_ALL = (
    *(ContextLost, Unrecoverable, ActorStopped, MailboxFull, BadBatchResult),
    *(ServerStopped, QueueFull, TimeoutError, ConnectionError),
)
"""Errors of a batch that no single item causes."""

MANY = 8
"""Results that take long enough to give out for the next batch not to wait for them."""


class BatchRunner:
    """Calls the function for batches, and ends their requests.

    Args:
        server: Ends requests.
        policy: Is told how long batches took.
        call: The function.
        counters: Count the batches.
        on_error: See :class:`DynamicBatchingServer <callboard.DynamicBatchingServer>`.
    """

    def __init__(
        self,
        server: "DynamicBatchingServer[Any, Any]",
        policy: BatchPolicy,
        call: UserCall,
        counters: BatchCounters,
        *,
        on_error: OnError,
    ) -> None:
        self._server = server
        self._policy = policy
        self._call = call
        self._counters = counters
        self._clock = server._clock
        self._on_error: OnError = on_error

    async def run(self, batch: Batch) -> int:
        """Run a batch to the end of all its entries, or back into the queue; returns how many have ended."""
        server = self._server
        self._counters.began(batch.entries)
        if server._adapter is not None:
            server._adapter.keyring.mark()
        self._policy.running += 1
        try:
            error = await self._attempt(batch.entries)
            if isinstance(error, Exception):
                await self._isolate(batch.entries, error)
        except BaseException:  # cancelled, by stop() or with its loop, or Ctrl-C: what it ran has no other end
            for entry in batch.entries:
                if entry.state is State.RUNNING:
                    server._fail(entry, server._stopped(), "stopped")
            raise
        finally:
            self._policy.running -= 1
            if server._adapter is not None:
                for entry in batch.entries:
                    if entry.state is State.ENDED:  # others wait for their next run
                        server._adapter.ran(entry)
        return sum(entry.state is State.ENDED for entry in batch.entries)

    async def _attempt(self, entries: list[Entry], *, last: bool = True) -> Exception | bool | None:
        """Run entries; True if that succeeded, False if they have failed, None if all have ended before.

        The error of several of them, which may be that of one, is returned instead.

        Args:
            entries: Those that have ended meanwhile are left out.
            last: The next batch may begin while their results are given out.
        """
        server = self._server
        entries = [entry for entry in entries if entry.state is State.RUNNING]
        if not entries:
            return None
        cause = server._cause(entries)
        try:
            rows = await self._results(entries, cause)
        except Exception as e:  # the user's function may raise anything: its requests end in that
            self._counters.failed += 1
            server._batch_ran(len(entries), 0.0, False, cause)
            if len(entries) > 1 and self._on_error != "fail" and not isinstance(e, OF_ALL):
                return e
            self._fail_all(entries, e)
            return False
        if last and len(entries) >= MANY and self._policy.full and are_values(rows):
            await server._workers.hand_over()
        await self._deliver(entries, rows)
        return True

    async def _isolate(self, entries: list[Entry], error: Exception) -> None:
        """Run entries whose batch has failed again, so that only those fail that cannot be done."""
        runs = reruns(self._on_error, [entry for entry in entries if entry.state is State.RUNNING])
        group = next(runs, None)
        while group is not None:
            found = await self._attempt(group, last=False)
            try:
                group = runs.send(False if isinstance(found, Exception) else found)
            except StopIteration:
                group = None
        self._fail_all([entry for entry in entries if entry.state is State.RUNNING], error)

    async def _results(self, entries: list[Entry], cause: Cause) -> list[Any]:
        """Call the function; gives a result for each entry, and for those that fill it up."""
        items: Any = [entry.item for entry in entries]
        size = len(entries)
        form = self._policy.settings.form
        if form.pad is not None:
            size = form.size_for(size)
            items = form.pad(items, size)
            if items is None:
                raise returned("pad", None, f"the batch of {size} items that the batch function gets")
        elif form.ragged:
            items = Ragged.of(items)
        started = self._clock.time()
        rows = rows_of(await self._call(items, entries=entries), size)
        seconds = self._clock.time() - started
        self._policy.finished(size, seconds, entries)
        self._server._batch_ran(len(entries), seconds, True, cause)
        self._counters.ran(len(entries), size, seconds)
        return rows

    async def _deliver(self, entries: list[Entry], rows: list[Any]) -> None:
        """Give each entry its result; returns when those that come in parts are complete."""
        server, now = self._server, self._clock.time()
        if server._in_order is None and (server._adapter is None or server._adapter.idle) and are_values(rows):
            server._succeed_all(entries, rows, now)  # the rest is padding
            return
        given: set[int] = set()
        streams: list[Coroutine[Any, Any, None]] = []
        for entry, row in zip(entries, rows, strict=False):  # the rest is padding
            if isinstance(row, BaseException):
                error = deliverable(row)
                error = copies(error, 2)[1] if id(row) in given else error
                given.add(id(row))
                if server._adapter is None or not server._adapter.ran(entry, error):
                    server._fail(entry, error)
            elif hasattr(type(row), "__aiter__"):
                streams.append(self._stream_to(entry, row))
            else:
                server._succeed(entry, row, now)
        if streams:
            await asyncio.gather(*streams)

    async def _stream_to(self, entry: Entry, answer: Any) -> None:
        try:
            value = await self._server._feeders.feed(entry, answer)
        except Exception as e:  # of the user's iterator: its request ends in that
            if entry.state is State.RUNNING:
                self._fail_all([entry], e)
        else:
            self._server._succeed(entry, value, self._clock.time())

    def _fail_all(self, entries: list[Entry], error: Exception) -> None:
        server, error = self._server, deliverable(error)
        if (adapter := server._adapter) is not None:  # it hears of those whose callers have left, too
            errors = copies(error, len(entries))
            final = [each for each, own in zip(entries, errors, strict=True) if not adapter.ran(each, own)]
            self._counters.repeated += len(entries) - len(final)
            entries = final
        failed = [entry for entry in entries if entry.state is State.RUNNING]
        for entry, each in zip(failed, copies(error, len(failed)), strict=True):
            server._fail(entry, each)
