"""Control requests to the active context host, and their answers."""

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from callboard.core.errors import AccelError, AskTimeout, ContextLost
from callboard.device.failures import as_error
from callboard.device.line.entries import Gate
from callboard.device.line.status import TraceRecord
from callboard.device.protocol import Answer, Ask, Flush, FromHost, Traces, Unknown

if TYPE_CHECKING:
    from callboard.device.actor import DeviceActor

__all__ = ["Answers"]

log = logging.getLogger("callboard.device")


class Answers:
    """Asks the host of a device and matches the answers."""

    def __init__(self, actor: "DeviceActor") -> None:
        self._actor = actor
        self._ids = itertools.count(1)
        self.traces: list[Callable[[TraceRecord], None]] = []
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        actor.on_answer = self.take
        actor.on_loss = self.lost

    async def ask(self, what: str, argument: Any = None, *, timeout: float) -> Any:
        """Send a request when a context is ready; gives its answer.

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
                future = self._waiting[request] = asyncio.get_running_loop().create_future()
                self._actor.port.flush()  # what was called before is counted
                host.post(Ask(request, what, b"" if argument is None else msgspec.msgpack.encode(argument)))
                try:
                    return await future
                finally:
                    del self._waiting[request]
        except TimeoutError:
            raise AskTimeout(f"{self._actor.port.name}: no answer to {what!r} within {timeout} s") from None

    def lost(self, error: AccelError) -> None:
        """The context that was asked is gone."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(
                    ContextLost(f"{self._actor.port.name}: the context was lost before it answered: {error}")
                )

    def take(self, message: FromHost) -> None:
        """A message that may be an answer."""
        if isinstance(message, Answer):
            future = self._waiting.get(message.id)
            if future is not None and not future.done():
                if message.error is not None:
                    future.set_exception(as_error(message.error))
                else:
                    future.set_result(msgspec.msgpack.decode(message.value))
        elif isinstance(message, Traces):
            for record in message.records:
                for hook in self.traces:
                    hook(TraceRecord(*record))
        elif isinstance(message, Unknown):
            log.error("%s: UnsupportedOp: its host knows no message of kind %d", self._actor.port.name, message.kind)
        elif isinstance(message, Flush) and (host := self._actor.host) is not None:
            # Behind the frees that are queued, which may themselves be behind an array that is still being copied; and
            # after a takeover when the lost host, which may hold most of the memory, is gone.
            actor = self._actor
            actor.port.outbox.hold(Gate(passed=lambda: actor.fleet.when_reaped(lambda: host.post(Ask(0, "flushed")))))
            actor.port.flush()
