"""``CallReply``: the reply of a resident actor's call, which can be cancelled."""

import asyncio
from collections.abc import Collection, Generator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from callboard.core.reply import DONE, PENDING, Reply

if TYPE_CHECKING:
    from callboard.device.client.residents.caller import Caller

__all__ = ["CallReply", "calls_made"]

T_co = TypeVar("T_co", covariant=True)


class CallsMade(Protocol):
    """Is told of the calls that are made in a context."""

    def add(self, reply: "CallReply[Any]") -> None:
        """A call was accepted."""

    def begins(self, when: float) -> None:
        """A call that waited began no earlier than ``when``, in monotonic seconds."""


calls_made: ContextVar[CallsMade | None] = ContextVar("callboard_calls_made", default=None)
"""Receives the calls of resident actors that are made in this context; None: they are not collected."""


class CallReply(Reply[T_co]):
    """The future reply of a resident actor.

    When the task that awaits it is cancelled (``asyncio.wait_for``, ``asyncio.timeout``, a task group) and nothing else
    awaits it, so is the call, as with any coroutine; :func:`asyncio.shield` prevents that.
    """

    __slots__ = ("_caller",)

    def __init__(self, caller: "Caller", op: int = 0) -> None:
        self._port = caller._port
        self._op = op
        self._state = PENDING
        self._outcome = None
        self._waiters = None
        self._caller = caller

    def __await__(self) -> Generator[Any, None, T_co]:
        if self._state == PENDING:
            self._port.awaited(self)
            if self._state == PENDING:
                future = asyncio.get_running_loop().create_future()
                self._attach(future)
                try:
                    yield from future.__await__()
                except asyncio.CancelledError:
                    waiters = self._waiters or ()
                    if self._state == PENDING and all(waiter.done() for waiter in waiters):
                        self.cancel()
                    raise
        return self._value() if self._state == DONE else self._take()

    def cancel(self) -> bool:
        """Cancel the call; returns whether there was anything left to cancel.

        A call that has not begun is not run, and fails with ``Withdrawn``. A running call continues:
        ``ctx.cancelled()`` becomes true, and its answer still arrives here.
        """
        if self._state != PENDING:
            return False
        self._caller.cancel(self._op)
        return True

    @property
    def waits(self) -> bool:
        """True if the call has not begun, as far as is known here: others are in front of it, or there is no context.

        On the loop's thread.
        """
        return self._state == PENDING and self._caller.waits(self._op)

    async def ran(self, timeout: float) -> float | None:
        """Seconds since the call began, as its host tells; 0: it has not, or not in this context.

        Args:
            timeout: Seconds to wait for the answer.

        Returns:
            None if the host does not answer: something holds its interpreter. Infinity if it cannot tell.
        """
        return await self._caller.residents.ran(self._op, timeout)

    def alone(self, with_: Collection[int]) -> bool:
        """True if its host may run nothing else now than this call and those, by their ids; else they may hold it up.

        On the loop's thread.
        """
        return not self._caller.residents.may_run({self._op, *with_})

    @property
    def id(self) -> int:
        """Id of the call; 0 while it waits for arrays of another process."""
        return self._op

    def overrun(self, grace: float, why: str) -> None:
        """Cancel the call, and replace the process in which its actor lives if it does not return.

        An actor in a thread of this process cannot be ended. On the loop's thread.

        Args:
            grace: Seconds until then.
            why: The reason, for the errors of all who lose the process.
        """
        if self._state == PENDING:
            self._caller.overrun(self._op, grace, why)
