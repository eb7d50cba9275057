"""Actor: the base class of all actors."""

from collections.abc import Awaitable, Callable, Coroutine
from threading import get_ident
from typing import TYPE_CHECKING, Any, Self, TypeVar

from callboard.actors._runtime.current import CURRENT
from callboard.actors._runtime.table import check_handlers
from callboard.actors.errors import MailboxFull, UnhandledMessage, WrongThread, returned
from callboard.actors.messages import Msg, Request
from callboard.actors.refs import ActorRef, cell_of
from callboard.actors.supervision import OneForOne, Strategy

if TYPE_CHECKING:
    import asyncio

    from callboard.actors._runtime.cell import Cell
    from callboard.actors.props import Props
    from callboard.actors.system import ActorSystem
    from callboard.actors.timers import Timers

__all__ = ["Actor"]

A = TypeVar("A", bound="Actor")
T = TypeVar("T")


class Actor:
    """Derive from it and mark handlers: ``@Read.handles def read(self, m: Read) -> int``.

    Actors are created by ``actor_of(Props(...))`` only.

    One message is handled at a time. A handler may return a value; it may be ``async def``, in which case the next
    message waits for it; or it may return a future (or any other awaitable object), in which case the mailbox continues
    and the reply is sent when the future completes. A :class:`ReplyError` goes only to the asker; any other exception
    goes to the asker and to the parent's ``supervision``. A class body with two handlers of one message raises
    ``TypeError``; a subclass may replace a handler.

    Apart from :attr:`ref`, everything here is for the actor's own thread; elsewhere it raises :class:`WrongThread`.
    """

    supervision: Strategy = OneForOne()
    """The strategy for failing children; set it in the class body or in ``__init__``."""

    stash_capacity: int | None = None
    """Messages that may be stashed; None for any number."""

    _cell: "Cell"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        check_handlers(cls)

    if not TYPE_CHECKING:

        def __new__(cls, *args, **kwargs):
            # Before __init__, so that a constructor can already make children.
            self = super().__new__(cls)
            cell = CURRENT.get()
            if cell is not None and cell.constructing:
                self._cell = cell
            return self

    # -- hooks ---------------------------------------------------------------------------------------------------------

    def pre_start(self) -> Awaitable[None] | None:
        """Called before the first message; may be ``async def``. An exception becomes an ``ActorInitError``."""

    def post_stop(self) -> Awaitable[None] | None:
        """Called when the actor and its children have stopped; may be ``async def``.

        An exception is only logged.
        """

    async def pre_restart(self, cause: BaseException, message: Any) -> None:
        """Called on the old instance. Stops all children, then calls :meth:`post_stop`. An exception is only logged.

        Children that an override leaves alive are restarted.

        Args:
            cause: the failure.
            message: the message that was handled, or None.
        """
        await self.stop_children()
        result = self.post_stop()
        if result is not None:
            await result

    async def post_restart(self, cause: BaseException) -> None:
        """Called on the new instance. Calls :meth:`pre_start`. An exception is a further failure."""
        result = self.pre_start()
        if result is not None:
            await result

    def unhandled(self, message: Any) -> Any:
        """Called for messages without a handler; its result is the reply.

        Raises:
            UnhandledMessage: to the asker, if there is one; the message becomes a dead letter.
        """
        cell = self._here()
        cell.dead(message, "unhandled")
        if cell.current_ask() is not None:
            raise UnhandledMessage(
                f"{cell.path} ({type(self).__qualname__}) has no handler for {type(message).__qualname__}"
            )

    # -- identity ----------------------------------------------------------------------------------------------------

    @property
    def ref(self) -> ActorRef[Self]:
        """This actor's address."""
        return self._owner().ref

    @property
    def system(self) -> "ActorSystem":
        """The system this actor lives in."""
        return self._owner().system

    def _owner(self) -> "Cell":
        try:
            return self._cell
        except AttributeError:
            raise RuntimeError(
                f"this {type(self).__qualname__} was called directly; make actors by actor_of(Props(...))"
            ) from None

    def _here(self) -> "Cell":
        cell = self._owner()
        if cell.port.thread != get_ident():
            raise WrongThread(f"{cell.path} was used from another thread; send it a message instead")
        return cell

    # -- children ------------------------------------------------------------------------------------------------------

    def actor_of(self, props: "Props[A]", name: str | None = None) -> ActorRef[A]:
        """Make a child. It runs on this actor's thread unless its Props name a dispatcher.

        Raises:
            ValueError: the name is not valid.
            NameInUse: a living child has it.
            ActorStopped: this actor is stopping.
        """
        return self._here().children.spawn(props, name).ref

    spawn = actor_of

    @property
    def children(self) -> list[ActorRef[Any]]:
        """The living children, oldest first."""
        return [cell.ref for cell in self._here().children.cells()]

    def child(self, name: str) -> ActorRef[Any] | None:
        """The living child of that name."""
        cell = self._here().children.get(name)
        return None if cell is None else cell.ref

    async def stop_children(self) -> None:
        """Stop all children, the youngest first, and wait until they have ended; none of them sends ``Terminated``."""
        await self._here().children.stop_all(None)

    def stop(self) -> None:
        """Stop this actor after the current message."""
        self._here().request_stop(None)

    # -- watch ---------------------------------------------------------------------------------------------------------

    def watch(self, ref: ActorRef[Any]) -> None:
        """Get one :class:`Terminated` when that actor has stopped, at once if it has already."""
        self._here().watches.watch(cell_of(ref), None)

    def watch_with(self, ref: ActorRef[Any], message: Msg[Any]) -> None:
        """Like :meth:`watch`, with a message of your own.

        Raises:
            WatchConflict: it is watched with another message.
        """
        self._here().watches.watch(cell_of(ref), message)

    def unwatch(self, ref: ActorRef[Any]) -> None:
        """Do not watch any more; a message that is queued already is not delivered."""
        self._here().watches.unwatch(cell_of(ref))

    # -- the current message -------------------------------------------------------------------------------------------

    def stash(self) -> None:
        """Set the current message aside, with its asker.

        Raises:
            StashError: There is no current message, or it was stashed or forwarded already.
            StashOverflow: ``stash_capacity`` messages are stashed.
        """
        self._here().stash.add(self.stash_capacity)

    def unstash_all(self) -> int:
        """Put the stashed messages back in front of the mailbox, in their order; returns how many."""
        return self._here().stash.put_back()

    def forward(self, to: ActorRef[Any]) -> None:
        """Pass the current message on, with its asker: the other actor replies.

        Raises:
            StashError: There is no current message, or it was stashed or forwarded already.
            MailboxFull: The other mailbox is full and the message was sent by ``tell``.
        """
        item = self._here().stash.take()
        target = cell_of(to)
        try:
            target.push(item)
        except MailboxFull as error:
            refuse: Callable[[BaseException], None] | None = getattr(item, "refuse", None)
            if refuse is None:
                raise
            refuse(error)
            return
        if not target.awake:
            target.wake()

    def become(self, behaviour: Callable[[Any], Any], *, stacked: bool = False) -> None:
        """Give every message to ``behaviour`` from the next one on.

        ``behaviour`` returns ``NotImplemented`` for a message that it does not handle.

        Args:
            behaviour: called like a handler.
            stacked: :meth:`unbecome` returns to the present behaviour instead of the handlers of the class.
        """
        self._here().dispatch.become(behaviour, stacked)

    def unbecome(self) -> None:
        """Go back to the behaviour before, in the end to the handlers of the class."""
        self._here().dispatch.unbecome()

    # -- time and tasks ------------------------------------------------------------------------------------------------

    @property
    def timers(self) -> "Timers":
        """Keyed timers; cancelled by restart and stop."""
        return self._here().timers

    def set_receive_timeout(self, seconds: float | None) -> None:
        """Send a ``ReceiveTimeout`` whenever no message has come for ``seconds``; None stops this."""
        self._here().timers.set_idle(seconds)

    def background(self, coro: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run ``coro`` while messages are handled. Restart and stop cancel it; its failure is this actor's failure."""
        return self._here().background.start(coro)

    def pipe(
        self,
        work: Awaitable[T],
        message: Callable[[T], Msg[Any]],
        failed: Callable[[BaseException], Msg[Any]] | None = None,
        *,
        to: ActorRef[Any] | None = None,
    ) -> None:
        """Tell ``message(result)`` when ``work`` is done, to this actor or to ``to``.

        Without ``failed`` an exception of ``work`` is this actor's failure; so is an exception of the two functions.
        """
        target = self._here().ref if to is None else to

        async def run() -> None:
            try:
                result = await work
            except Exception as error:  # of any class: a message is made of it
                if failed is None:
                    raise
                target.tell(_piped("failed", failed(error)))
            else:
                target.tell(_piped("message", message(result)))

        self.background(run())


def _piped(hook: str, made: Any) -> Any:
    if not isinstance(made, Msg | Request):
        raise returned(f"{hook} of pipe()", made, "a message")
    return made
