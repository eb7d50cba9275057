"""``Experts``: calls the experts of a dispatch, all at once."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from callboard.actors.loops.threads import Threads
from callboard.core.backend.machine import cores
from callboard.core.ref import GpuRef
from callboard.patterns.moe.arrays import Array
from callboard.patterns.moe.dispatch import Dispatch, row_result
from callboard.patterns.moe.grouped import GroupedExperts
from callboard.patterns.requests.calling import Executor, UserCall, deliverable, is_quick

__all__ = ["Expert", "Experts"]

Expert = Callable[[Any], Any]


class _Replica:
    """One callable of an expert. ``rows`` are in it now."""

    __slots__ = ("call", "rows")

    def __init__(self, call: UserCall) -> None:
        self.call = call
        self.rows = 0


class Experts:
    """The callables of a router.

    Experts that are called on threads share one pool.

    Args:
        experts: The experts by number: a callable, or several equivalent ones. A call goes to the one with the fewest
            pending rows. Or all of them as one :class:`GroupedExperts`, which is called once for all rows.
        shared: Called with all tokens.
        executor: The executor that calls all of them; see ``UserCall``.
        threads: Threads at most; None: as many as there are cores, and no more than experts.

    Raises:
        ValueError: There is no expert, or none for one of the numbers.
        TypeError: One cannot be called.
    """

    def __init__(
        self,
        experts: Sequence[Expert | Sequence[Expert]] | GroupedExperts,
        shared: Sequence[Expert],
        executor: Executor,
        threads: int | None,
    ) -> None:
        if not experts:
            raise ValueError("a router needs at least one expert")
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be at least 1, but is {threads}")
        count = threads or min(len(experts) + len(shared), cores())
        self._pool = Threads(count, "callboard-experts")
        self._executor: Executor = executor
        self._count = len(experts)
        self._grouped = experts if isinstance(experts, GroupedExperts) else None
        self._replicas: list[list[_Replica]] = []
        for number, given in enumerate(() if isinstance(experts, GroupedExperts) else experts):
            several = given if isinstance(given, Sequence) else [given]
            if not several:
                raise ValueError(f"expert {number} has no callable")
            self._replicas.append([_Replica(self.caller(each)) for each in several])
        self._shared = [self.caller(each) for each in shared]

    def __len__(self) -> int:
        return self._count

    @property
    def elsewhere(self) -> bool:
        """True if a caller-supplied executor calls them, whose threads :meth:`close` does not wait for."""
        return isinstance(self._executor, concurrent.futures.Executor)

    @property
    def calls(self) -> list[UserCall]:
        """All of them."""
        return [*(replica.call for several in self._replicas for replica in several), *self._shared]

    def caller(self, function: Callable[..., Any]) -> UserCall:
        """A callable that is called where the experts are."""
        if self._executor == "thread" or (self._executor == "auto" and not is_quick(function)):
            return UserCall(function, self._pool, 1)
        return UserCall(function, self._executor, 1)

    async def compute(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function that takes long, and is not the user's, on a thread of the pool."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    async def run(
        self, plan: Dispatch, rows: Array, tokens: Array
    ) -> tuple[dict[int, Array], dict[int, Exception], list[Array]]:
        """Call each expert that has rows, and the shared ones, and wait for all.

        Args:
            plan: Assignment of rows to experts.
            rows: Rows of all experts; each gets a view of its own rows.
            tokens: Tokens for the shared experts.

        Returns:
            Results and errors by number, and the results of the shared experts.

        Raises:
            Exception: Raised by the first shared expert that failed.
        """
        numbers = [number for number, load in enumerate(plan.load.tolist()) if load]
        calls: list[Coroutine[Any, Any, Array]]
        if self._grouped is None:
            calls = [self._one(number, rows[plan.of(number)]) for number in numbers]
        else:
            run = partial(self._grouped.run, plan.offsets)
            calls = [_result(run, rows, "the grouped experts", None)] if numbers else []
        own = len(calls)
        calls += [_result(call, tokens, f"shared expert {n}", None) for n, call in enumerate(self._shared)]
        # One call needs no task of its own.
        found = [await _caught(calls[0])] if len(calls) == 1 else await asyncio.gather(*map(_caught, calls))
        results: dict[int, Array] = {}
        errors: dict[int, Exception] = {}
        for at, number in enumerate(numbers):
            each = found[at if self._grouped is None else 0]
            if isinstance(each, Exception):
                errors[number] = each
            else:
                results[number] = each if self._grouped is None else each[plan.of(number)]
        shared: list[Array] = []
        for each in found[own:]:
            if isinstance(each, Exception):
                raise each
            shared.append(each)
        return results, errors, shared

    async def _one(self, number: int, rows: Array) -> Array:
        replicas = self._replicas[number]
        replica = replicas[0] if len(replicas) == 1 else min(replicas, key=lambda each: each.rows)
        replica.rows += len(rows)
        try:
            return await _result(replica.call, rows, f"expert {number}", number)
        finally:
            replica.rows -= len(rows)

    async def backward(self, calls: Sequence[tuple[str, Callable[[Any, Any], Any], Array, Array]]) -> list[Array]:
        """Call functions of rows and gradients, all at once; gives the gradients of the rows.

        Args:
            calls: The name of each for errors, the function, rows and gradient.

        Raises:
            Exception: Raised by the first function that failed.
        """
        work = [_result(self.caller(partial(function, rows)), grad, name, None) for name, function, rows, grad in calls]
        found = await asyncio.gather(*map(_caught, work))
        for each in found:
            if isinstance(each, Exception):
                raise each
        return [each for each in found if not isinstance(each, Exception)]

    def close(self) -> "asyncio.Future[None]":
        """Stop taking calls; the future is done when calls on threads of the pool have ended."""
        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        def join() -> None:
            self._pool.shutdown(cancel_futures=True)
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(_set, ended)

        threading.Thread(target=join, name="callboard-experts-end", daemon=True).start()
        return ended


async def _result(call: Callable[[Any], Awaitable[Any]], rows: Array, name: str, number: int | None) -> Array:
    try:
        found = await call(rows)
        if isinstance(found, GpuRef):
            found = await found.get()
        return row_result(found, len(rows), name, number)
    except Exception as e:  # the expert may raise anything: the error names the expert
        error = deliverable(e)
        note = f"raised by {name}"
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)
        raise error from error.__cause__


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


async def _caught(call: Coroutine[Any, Any, Array]) -> Array | Exception:
    try:
        return await call
    except Exception as e:  # the caller distinguishes the errors
        return e
