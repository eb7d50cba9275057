"""Control requests to the active context host, and their answers."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from callboard.core.errors import AccelError, AskTimeout, ContextLost
from callboard.device.client.line.entries import Gate
from callboard.device.client.line.status import MemoryFigures, TraceRecord
from callboard.device.protocol.failures import as_error
from callboard.device.protocol.messages import Answer, Ask, Flush, FromHost, MemoryUsage, Traces
from callboard.events.kinds import TRACED
from callboard.events.ring import EVENTS, now

if TYPE_CHECKING:
    from callboard.device.supervision.actor import DeviceActor

__all__ = ["Answers"]


class Answers:
    """Sends control requests to the host of a device and matches the answers.

    Attributes:
        traces: Hooks that are called with a record of each op.
        sampled: Telemetry wants a record of one op in so many; 0: of none.
        memory: Hooks that are called with the memory, and the changes that they are called for.
    """

    def __init__(self, actor: "DeviceActor") -> None:
        self._actor = actor
        self._ids = itertools.count(1)
        self.traces: list[Callable[[TraceRecord], None]] = []
        self.sampled = EVENTS.every
        self.memory: dict[Callable[[MemoryFigures], None], int] = {}
        self._waiting: dict[int, tuple[asyncio.Future[Any], Any]] = {}
        actor.on_answer = self.take
        actor.on_loss = self.lost
        actor.residents.ask = self.ask

    async def ask(self, what: str, argument: Any = None, *, timeout: float, type: Any = Any) -> Any:
        """Send a request when a context is ready; returns its answer, which must be of ``type``.

        Raises:
            AskTimeout: No answer within ``timeout`` seconds.
            ContextLost: The context was lost meanwhile.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._actor.until_ready()
                host = self._actor.host
                if host is None:
                    raise ContextLost(f"{self._actor.port.name}: the context was lost; ask again")
                request = next(self._ids)
                future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                self._waiting[request] = future, type
                self._actor.port.outbox.flush_all()  # so that the answer counts what was called and freed before
                host.post(Ask(request, what, b"" if argument is None else msgspec.msgpack.encode(argument)))
                try:
                    return await future
                finally:
                    del self._waiting[request]
        except TimeoutError:
            raise AskTimeout(f"{self._actor.port.name}: no answer to {what!r} within {timeout} s") from None

    def lost(self, error: AccelError) -> None:
        """Fail the pending requests: their context is lost."""
        for future, _ in self._waiting.values():
            if not future.done():
                future.set_exception(
                    ContextLost(f"{self._actor.port.name}: the context was lost before it answered: {error}")
                )

    def take(self, message: FromHost) -> None:
        """Handle a message that may be an answer.

        Raises:
            msgspec.DecodeError: The answer is not of the requested type.
        """
        if isinstance(message, Answer):
            future, wanted = self._waiting.get(message.id, (None, None))
            if future is not None and not future.done():
                if message.error is not None:
                    future.set_exception(as_error(message.error))
                else:
                    future.set_result(msgspec.msgpack.decode(message.value, type=wanted))
        elif isinstance(message, Traces):
            ring = EVENTS.ring
            if ring is not None:
                ring.append((next(ring.numbers), now(), TRACED, self._actor.port.name, message.records))
            for record in message.records:
                for hook in self.traces:
                    self._call("a trace hook", hook, TraceRecord(*record))
        elif isinstance(message, MemoryUsage):
            figures = MemoryFigures(message.free, message.total, message.used, message.cached)
            for take in list(self.memory):
                self._call("a memory hook", take, figures)
        elif isinstance(message, Flush) and (host := self._actor.host) is not None:
            # Sent after the queued frees, which may themselves wait for an array that is still being copied; after a
            # takeover, only once the lost host, which may hold most of the memory, has ended.
            actor = self._actor

            def flushed() -> None:
                host.post(Ask(0, "flushed"))

            free = actor.own.free_shared
            actor.port.outbox.hold(Gate(passed=lambda: actor.fleet.when_reaped(lambda: free(self.ask, flushed))))
            actor.port.flush()

    async def tell(
        self, hook: Callable[[TraceRecord], None], timeout: float
    ) -> Callable[[], Coroutine[Any, Any, None]]:
        """Call a hook with the record of each op; the result removes it, after the records of the ops that are done."""
        self.traces.append(hook)
        await self.trace(timeout)

        async def remove() -> None:
            try:
                if self._actor.port.stopped is None:
                    await self.trace(timeout)  # its answer comes behind the records
            finally:
                self.traces.remove(hook)
            if not self.traces and self._actor.port.stopped is None:
                await self.trace(timeout)

        return remove

    async def trace(self, timeout: float) -> None:
        """Have the hosts record what :attr:`traces` and :attr:`sampled` want, in later contexts too."""
        actor = self._actor
        every = 1 if self.traces or actor.config.host.trace else self.sampled
        actor.settings.set("trace", every)
        if actor.port.holding is not None:
            actor.port.holding.traced = bool(every)
        await self.ask("trace", every, timeout=timeout)
        await actor.own.trace(every)

    async def watch_memory(self, timeout: float) -> None:
        """Send the host the smallest change of memory use that a hook is notified of."""
        await self.ask("memory", min(self.memory.values()) if self.memory else None, timeout=timeout)

    def _call(self, what: str, hook: Callable[[Any], None], told: Any) -> None:
        try:
            hook(told)
        except Exception as e:  # from a user's hook, not from the host or its message
            context = {"message": f"callboard: {what} has failed", "exception": e}
            self._actor.port.loop.call_exception_handler(context)
