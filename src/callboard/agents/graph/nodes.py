"""``Step``: a node with its time-out, its retries and its cache."""

from collections.abc import Callable, Hashable
from typing import Any

from callboard.actors.clock import Clock
from callboard.agents.graph.calling import Executor, NodeCall, call_of, is_plain
from callboard.agents.graph.errors import NodeTimeout
from callboard.agents.graph.policies import CachePolicy, NodeCache, RetryPolicy, checked_timeout
from callboard.agents.graph.waiting import pause, within
from callboard.agents.graph.wire import digest

__all__ = ["Step"]


class Step:
    """Calls a node under its policies.

    Args:
        name: Name of the node, for errors.
        node: See :func:`callboard.agents.graph.calling.call_of`.
        timeout: Seconds of one attempt.
        retry: Policy of retries.
        cache: Policy of the cache.
        executor: Where a plain function is called.
        clock: Tells the time.
    """

    __slots__ = ("_cache", "_clock", "call", "name", "node", "plain", "retry", "timeout")

    def __init__(
        self,
        name: str,
        node: Any,
        *,
        timeout: float | None,
        retry: RetryPolicy | None,
        cache: CachePolicy | None,
        executor: Executor,
        clock: Clock,
    ) -> None:
        self.name, self.node = name, node
        self.timeout = checked_timeout("timeout", timeout)
        self.retry = retry
        self._clock = clock
        self._cache = None if cache is None else NodeCache(cache, cache.key_func or self._key)
        call = call_of(node, executor)
        self.plain = node if timeout is None and retry is None and cache is None and is_plain(node) else None
        """The node itself, if it is a plain function without policies."""
        if timeout is not None or retry is not None:
            call = self._guarded(call)
        if self._cache is not None:
            call = self._cached(call, self._cache)
        self.call: NodeCall = call
        """Awaits the node's result."""

    def _guarded(self, call: NodeCall) -> NodeCall:
        async def attempts(*args: Any, **kwargs: Any) -> Any:
            attempt = 0
            while True:
                attempt += 1
                try:
                    return await self._once(call, args, kwargs)
                except Exception as e:  # of a node: the policy says which
                    if self.retry is None or not self.retry.repeats(e, attempt):
                        if attempt > 1:
                            e.add_note(f"attempt {attempt} of {attempt}")
                        raise
                    wait = self.retry.pause(attempt)
                await pause(self._clock, wait)

        return attempts

    async def _once(self, call: NodeCall, args: Any, kwargs: Any) -> Any:
        if self.timeout is None:
            return await call(*args, **kwargs)
        finished = False

        async def run() -> Any:
            nonlocal finished
            try:
                return await call(*args, **kwargs)
            except TimeoutError:  # the node's own
                finished = True
                raise

        try:
            return await within(self._clock, self.timeout, run())
        except TimeoutError as e:
            if finished:
                raise
            raise NodeTimeout(f"node {self.name!r} did not return within {self.timeout:g} s") from e

    def _cached(self, call: NodeCall, cache: NodeCache) -> NodeCall:
        key_of: Callable[..., Hashable] = cache.key_of

        async def look_up(*args: Any, **kwargs: Any) -> Any:
            key = key_of(*args)
            found = cache.find(key, self._clock.time())
            if found is not None:
                return found[0]
            value = await call(*args, **kwargs)
            cache.keep(key, value, self._clock.time())
            return value

        return look_up

    def _key(self, *args: Any) -> Hashable:
        try:
            return digest(list(args))
        except TypeError as e:
            raise TypeError(f"node {self.name!r}: {e}; pass CachePolicy(key_func=...)") from e
