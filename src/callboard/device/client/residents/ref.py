"""``ResidentRef``: the typed handle of a resident actor."""

from collections.abc import AsyncIterable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from callboard.actors._runtime.table import handler_names
from callboard.actors.errors import UnhandledMessage
from callboard.actors.handles import Handle
from callboard.actors.messages import Msg, Request
from callboard.core.reply import Reply
from callboard.device.client.line.status import ResidentState
from callboard.device.client.residents.calls import Arguments
from callboard.device.client.residents.ending import stop, stop_and_wait
from callboard.device.client.residents.steps import Steps, refuse_generator, refuse_others
from callboard.device.client.residents.stream import Stream
from callboard.device.protocol.residents.steps import OPEN

if TYPE_CHECKING:
    from callboard.device.client.residents.registry import Resident, Residents

__all__ = ["ResidentRef", "how_to_call"]

A_co = TypeVar("A_co", covariant=True)
P = ParamSpec("P")
R = TypeVar("R")


class ResidentRef(Handle, Generic[A_co]):
    """The address of a resident actor of class ``A``. It stays the same over restarts and lost contexts.

    Calls are accepted at once, from any thread, in order per thread; a :class:`Reply <callboard.Reply>` is awaited, or
    waited for with ``result()`` on another thread. Calls made while no context is ready, or before ``setup`` has
    finished, wait for it.
    """

    __slots__ = ("_actor", "_residents", "_timeout")

    def __init__(self, residents: "Residents", actor: "Resident", timeout: float | None = None) -> None:
        self._residents = residents
        self._actor = actor
        self._timeout = timeout

    # -- calls ---------------------------------------------------------------------------------------------------------

    @overload
    def call(
        self, method: Callable[Concatenate[A_co, P], Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Reply[R]: ...

    @overload
    def call(self, method: Callable[Concatenate[A_co, P], R], /, *args: P.args, **kwargs: P.kwargs) -> Reply[R]: ...

    def call(self, method: Callable[Concatenate[A_co, P], Any], /, *args: P.args, **kwargs: P.kwargs) -> Reply[Any]:
        """Call a method: ``await emb.call(Embedder.embed, ["hello"])``.

        Args:
            method: A method of the actor's class; a subclass's own is called if it overrides it.
            args, kwargs: Plain values, NumPy arrays of any size and ``GpuRef`` s, nested at will. They have been read
                when this returns.

        Returns:
            The reply. It fails with the exception of the method, in its own class if the application has loaded that
            class (else :class:`RemoteError`); with ``ContextPoisoned`` when the context was lost meanwhile; with
            ``ActorStopped`` or ``DeviceStopped``; or with the root cause if it read the result of a failed op.

        Raises:
            TypeError: An argument that cannot travel, by its name; one too many, too few or of an unknown name, with
                the signature; no such method, or one that is static or of the class.
            ValueError: More than 32 MiB of arguments, not counting arrays and bytes.
            MailboxFull: ``max_in_flight`` calls of this actor have no answer (see ``overflow``), or there is no room
                for arrays.
            GpuRefStale, DeviceMismatch, ActorStopped, DeviceStopped: At the call; nothing was sent.
        """
        actor = self._actor
        found = actor.methods.find(method)
        if found.yields:
            refuse_generator(found)
        return self._residents.caller.call(actor, found.arguments(args, kwargs), self._timeout)

    def stream(
        self,
        method: Callable[Concatenate[A_co, P], Iterable[R] | AsyncIterable[R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Stream[R]:
        """Take the items that a method yields: ``async for token in model.stream(Model.generate, prompt): ...``.

        The generator is made at once. Its first step runs when the iteration begins; see :class:`callboard.Stream`.

        Args:
            method: A generator, or a method that returns an iterator.
            args, kwargs: As for :meth:`call`. A ``GpuRef`` is accepted only for a parameter that is annotated
                ``cb.In``, and only by an actor in the device's host: the generator may read the array until the stream
                ends.

        Raises:
            TypeError: As for :meth:`call`; another ``GpuRef`` among the arguments; a method that yields nothing.
            ValueError, MailboxFull, ActorStopped, DeviceStopped: See :meth:`call`.
        """
        actor = self._actor
        found = actor.methods.find(method)
        refuse_others(found)
        found.check(args, kwargs)
        opening = Arguments(found.tag, [OPEN, found.name], args, kwargs, found.positional, found.frozen)
        return Stream(Steps(self._residents.caller, actor, opening), self._timeout)

    def ask(self, request: Request[A_co, R]) -> Reply[R]:
        """Ask with a message; the method marked ``@Message.handles`` answers. Raises as :meth:`call`.

        Raises:
            UnhandledMessage: No method handles it.
        """
        return self._send(request)

    def tell(self, message: Msg[A_co] | Request[A_co, Any]) -> None:
        """Send a message and drop the reply; a failure goes to dead letters. Raises as :meth:`ask`."""
        self._send(message)

    def with_timeout(self, seconds: float | None) -> Self:
        """The same actor, with a limit for each call: ``await emb.with_timeout(5.0).call(...)``; None means no limit.

        A call without an answer after ``seconds`` fails with ``AskTimeout`` and is cancelled: it is not started any
        more, or, if it runs, ``ctx.cancelled()`` becomes true.

        Raises:
            ValueError: ``seconds`` is not positive.
        """
        if seconds is not None and not seconds > 0.0:
            raise ValueError(f"seconds must be positive, but is {seconds}")
        return type(self)(self._residents, self._actor, seconds)

    def _send(self, message: Any) -> Reply[Any]:
        actor = self._actor
        kind = type(message)
        if actor.cls is not None:
            names = handler_names(actor.cls)
            if not any(base in names for base in kind.__mro__):
                raise UnhandledMessage(
                    f"{actor.name} ({actor.cls.__qualname__}) has no handler for {kind.__qualname__}"
                )
        tag = f"{actor.name}.{kind.__name__}"
        return self._residents.caller.call(actor, Arguments(tag, None, (message,), {}, (), frozenset()), self._timeout)

    # -- the actor -----------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._actor.name

    @property
    def state(self) -> ResidentState:
        """``"starting"``, ``"ready"``, ``"restarting"`` or ``"stopped"``, as last reported to the application.

        ``"starting"`` until ``setup`` is done for the first time; ``"restarting"`` while an instance that has failed,
        or the lost context, is replaced; ``"stopped"`` for good. A restart is reported shortly after the reply of the
        call that caused it. Members of a :class:`ResidentState <callboard.ResidentState>` equal their texts.
        """
        return self._actor.state

    @property
    def cause(self) -> Exception | None:
        """The reason why it has stopped, or is being restarted.

        The exception that it failed with, or a ``DeviceStopped``. None while it is starting or ready, after a requested
        stop, and while it is restarted because the context was lost.
        """
        return self._actor.cause

    async def ready(self, *, timeout: float | None = None) -> Self:
        """Wait until ``setup`` of the present instance, in the present context, is done; gives the ref.

        Args:
            timeout: Seconds; None waits as long as the actor lives.

        Raises:
            ActorStopped: It has stopped, or stops meanwhile; ``__cause__`` is the exception that it failed with.
            DeviceStopped: The device has stopped, or stops meanwhile.
            AskTimeout: A ``TimeoutError``: it was not ready in time; starting continues.
            ValueError: ``timeout`` is NaN.
        """
        await self._actor.until_ready(timeout)
        return self

    @property
    def restarts(self) -> int:
        """The number of restarts after failures, over all contexts."""
        return self._actor.restarts

    @property
    def in_flight(self) -> int:
        """Calls without an answer."""
        return len(self._actor.flying)

    @property
    def is_stopped(self) -> bool:
        """True if it takes no more calls."""
        return self._actor.stopped is not None

    def stop(self, *, kill: bool | None = None) -> None:
        """End it after its current call; calls that wait fail with ``ActorStopped``.

        The process of an actor with ``own_process=True`` is killed if the actor has not ended ``close_timeout`` seconds
        later (10 by default): its code does not return from a call, from ``prepare`` or from ``setup``. The call then
        fails with ``ActorStopped``. An actor in the device's host goes on until its code returns, and keeps its name.

        Args:
            kill: True: likewise for an actor in the device's host. Killing that costs the device's context: ops and
                calls in flight fail with ``ContextPoisoned``, and arrays are lost. Without effect under thread
                isolation, because a thread cannot be killed. False: kill no process.
        """
        stop(self._residents, self._actor, kill)

    async def stop_and_wait(self, *, timeout: float = 5.0, kill: bool | None = None) -> None:
        """Stop it and wait until it has ended; its name is free then.

        The process of an actor with ``own_process=True`` is killed if it has not ended after ``timeout`` seconds.

        Args:
            timeout: Seconds that its current call gets.
            kill: As for :meth:`stop`, with ``timeout`` in place of ``close_timeout``.

        Raises:
            AskTimeout: A ``TimeoutError``: it has not ended after ``timeout`` seconds, and no process was killed. It
                ends when its code returns. The text names the cure.
        """
        await stop_and_wait(self._residents, self._actor, timeout, kill)

    def __repr__(self) -> str:
        cls = "" if self._actor.cls is None else f" ({self._actor.cls.__qualname__})"
        return f"<ResidentRef {self._actor.name}{cls}{', stopped' if self.is_stopped else ''}>"


def how_to_call(actor: type[Any], name: str) -> str:
    """The code to write in place of ``ref.name(...)``, for errors."""
    return f"`ref.call({actor.__qualname__}.{name}, ...)`"
