"""ActorRef: the address of an actor, which stays the same over restarts.

It has every operation that code outside an actor may use.
"""

import asyncio
import concurrent.futures
from asyncio import current_task, get_running_loop
from math import inf
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from callboard.actors._runtime import waiting
from callboard.actors._runtime.current import CURRENT
from callboard.actors._runtime.direct import ref_class
from callboard.actors._runtime.envelopes import Ask, Kill, Poison, carried
from callboard.actors._runtime.table import handler_names
from callboard.actors.errors import AskTimeout, MailboxFull, SelfAsk
from callboard.actors.handles import Handle
from callboard.actors.loops.blocking import wait
from callboard.actors.messages import Msg, Request
from callboard.events.concerns import TRACE
from callboard.events.ring import EVENTS

if TYPE_CHECKING:
    from callboard.actors._runtime.cell import Cell

__all__ = ["ActorRef", "cell_of", "ref_to"]

A_co = TypeVar("A_co", covariant=True)
R = TypeVar("R")
A = TypeVar("A")


class ActorRef(Handle, Generic[A_co]):
    """The address of an actor that understands the messages of ``A``. Compared by identity; usable from any thread.

    Delivery is at most once, in order per sender and receiver. A message is handled, or dead-lettered, or fails its
    asker.
    """

    __slots__ = ("_cell",)

    def __init__(self, cell: "Cell") -> None:
        self._cell = cell

    def tell(self, message: Msg[A_co] | Request[A_co, Any]) -> None:
        """Queue a message and return. If the target has stopped, the message becomes a dead letter.

        Raises:
            MailboxFull: the mailbox is bounded, full, and its policy is ``fail``.
        """
        cell = self._cell
        cell.push(message if EVENTS.ring is None else carried(message))
        if not cell.awake:
            cell.wake()

    def ask(self, request: Request[A_co, R], *, timeout: float | None = 5.0) -> asyncio.Future[R]:
        """Queue a request; the returned future is the reply.

        Args:
            request: what to ask; it names the type of the reply.
            timeout: seconds, positive; with None (or ``math.inf``) the end of the target is the only bound.

        Returns:
            A future of the running loop. It fails with the handler's exception, with :class:`AskTimeout`, with
            :class:`ActorStopped` as soon as the target is found stopped or stops, or with :class:`MailboxFull`.
            Cancelling it releases the waiter: a request that is still queued is skipped, one that has started
            continues.

        Raises:
            ValueError: ``timeout`` is not positive.
            SelfAsk: an actor asks itself in its handler.
            RuntimeError: no loop runs in this thread; use :meth:`ask_blocking`.
        """
        loop = get_running_loop()
        cell = self._cell
        port = cell.port
        if port.loop is not loop:
            port = cell.system._port_of(loop)
        sender = CURRENT.get()
        if sender is cell and current_task() is cell.task:
            _refuse_self_ask(cell, request)
        future: asyncio.Future[R] = loop.create_future()
        if timeout is None:
            timeout = inf
        ask = Ask(request, future, port, cell, sender, timeout)
        if EVENTS.ring is not None:
            ask.trace = TRACE.get()
        if 0.0 < timeout < inf:
            port.deadlines.add(ask, timeout)
        elif not timeout > 0.0:
            raise ValueError(f"timeout must be positive, but is {timeout}")
        try:
            cell.push(ask)
        except MailboxFull as error:
            ask.refuse(error)
            return future
        if not cell.awake:
            cell.wake()
        return future

    def ask_blocking(self, request: Request[A_co, R], *, timeout: float | None = 5.0) -> R:
        """Ask from a thread without a loop and wait for the reply, without limit when ``timeout`` is None.

        Raises:
            AskTimeout, ActorStopped, MailboxFull, or what the handler raised.
            ValueError: ``timeout`` is not positive.
            RuntimeError: a loop runs in this thread; waiting would stop it, so use ``await ask(...)``.
            SelfAsk: called for an actor's own handler, from a helper thread of it.
        """
        if timeout is None:
            timeout = inf
        if not timeout > 0.0:
            raise ValueError(f"timeout must be positive, but is {timeout}")
        if _loop_runs_here():
            raise RuntimeError("ask_blocking would stop the event loop of this thread; use 'await ref.ask(...)'")
        cell = self._cell
        sender = CURRENT.get()
        if sender is cell:
            _refuse_self_ask(cell, request)
        future: concurrent.futures.Future[R] = concurrent.futures.Future()
        ask = Ask(request, future, None, cell, sender, timeout)
        if EVENTS.ring is not None:
            ask.trace = TRACE.get()
        cell.push(ask)
        if not cell.awake:
            cell.wake()
        try:
            return wait(future, None if timeout == inf else timeout)
        except TimeoutError:
            if future.done() and not future.cancelled():
                return future.result()
            future.cancel()
            by = None if sender is None else sender.path
            raise AskTimeout.of(cell.path, timeout, type(request).__qualname__, by) from None

    async def offer(self, message: Msg[A_co] | Request[A_co, Any], *, timeout: float | None = 5.0) -> None:
        """Like :meth:`tell`, but waits for room in a bounded mailbox, first come first served, whatever its policy.

        Args:
            message: the message to send.
            timeout: seconds, positive; with None the end of the target is the only bound.

        Raises:
            MailboxFull: there was no room for ``timeout`` seconds.
            ActorStopped: the actor stopped meanwhile.
            ValueError: ``timeout`` is not positive.
        """
        if timeout is not None and not timeout > 0.0:
            raise ValueError(f"timeout must be positive, but is {timeout}")
        await waiting.offer(self._cell, message, timeout)

    def stop(self, *, timeout: float | None = None) -> None:
        """Stop after the current message: children first, then ``post_stop``; the mailbox becomes dead letters.

        Args:
            timeout: seconds after which a handler that still runs is cancelled; None for the system's ``stop_timeout``.
        """
        self._cell.request_stop(timeout)

    async def stop_and_wait(self, *, timeout: float = 5.0) -> None:
        """Stop and wait until it is done; at once for a stopped actor.

        Raises:
            TimeoutError: it took longer than ``timeout`` seconds.
        """
        self._cell.request_stop(timeout)
        await self.stopped(timeout=timeout)

    async def stopped(self, *, timeout: float = 5.0) -> BaseException | None:
        """Wait until the actor has stopped; returns the failure that stopped it, or None.

        Raises:
            TimeoutError: it did not stop within ``timeout`` seconds.
        """
        return await waiting.wait_stopped(self._cell, timeout)

    def poison(self) -> None:
        """Stop when all that is queued now has been handled."""
        self._cell.push_internal(Poison())

    def kill(self) -> None:
        """Let the actor fail with ``ActorKilled`` when this is reached in its mailbox.

        Its supervisor decides (default: stop).
        """
        self._cell.push_internal(Kill())

    @property
    def path(self) -> str:
        """Names from the system down, as in ``/demo/gpu-0/context``."""
        return self._cell.path

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self._cell.name

    @property
    def uid(self) -> int:
        """Differs for two actors of the same path."""
        return self._cell.uid

    @property
    def is_stopped(self) -> bool:
        """True if the actor has stopped, or has handled its last message."""
        return self._cell.closed

    @property
    def queued(self) -> int:
        """Messages that wait in the mailbox."""
        return len(self._cell.lane.items)

    def __repr__(self) -> str:
        return f"<ActorRef {self._cell.path}#{self._cell.uid}>"


def cell_of(ref: ActorRef[Any]) -> "Cell":
    """The cell behind a reference; for the runtime only."""
    return ref._cell


def ref_to(cell: "Cell") -> ActorRef[Any]:
    """A reference to a new cell; for the runtime only."""
    return ref_class(ActorRef, cell.props._factory, _how_to_send)(cell)


def _how_to_send(actor: type[Any], name: str) -> str:
    message = next((cls for cls, handler in handler_names(actor).items() if handler == name), None)
    if message is None:
        return "`ref.tell(...)` or `await ref.ask(...)` with a message that it handles"
    asked = issubclass(message, Request)
    return f"`await ref.ask({message.__qualname__}(...))`" if asked else f"`ref.tell({message.__qualname__}(...))`"


def _refuse_self_ask(cell: "Cell", request: object) -> NoReturn:
    raise SelfAsk(f"{cell.path} asks itself ({type(request).__qualname__}) inside its handler; call the method instead")


def _loop_runs_here() -> bool:
    try:
        get_running_loop()
    except RuntimeError:
        return False
    return True
