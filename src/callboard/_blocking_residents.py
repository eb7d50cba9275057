"""What is written by hand of :mod:`callboard.sync`'s ``ResidentRef`` and ``Stream``; the rest is generated."""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, final

from callboard._background import BackgroundLoop
from callboard.actors._runtime.direct import ref_class
from callboard.actors.handles import Handle
from callboard.core.errors import AskTimeout, DeviceStopped
from callboard.core.reply import Reply
from callboard.device.client.residents.ref import ResidentRef as AsyncResidentRef
from callboard.device.client.residents.ref import how_to_call
from callboard.device.client.residents.steps import PREFETCH, Steps
from callboard.device.client.residents.stream import Stream as AsyncStream

if TYPE_CHECKING:
    from callboard._blocking import Device

__all__ = ["ResidentRefBase", "StreamBase", "Undeclared"]

A_co = TypeVar("A_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)


@final
class Undeclared:
    """For type checkers: only ``Any`` passes as one. Without it, a result declared ``Any`` would count as a ref."""


class ResidentRefBase(Handle, Generic[A_co]):
    """The address of a resident actor of class ``A``; it stays the same over restarts and lost contexts.

    Calls wait for their answers, on any thread; the actor serves them in order per thread. Calls made while no context
    is ready, or before ``setup`` has finished, wait for it. Ctrl-C ends a wait at once; the call continues.
    """

    __slots__ = ("_device", "_ref")

    def __init__(self, device: "Device", ref: AsyncResidentRef[A_co]) -> None:
        self._device = device
        self._ref = ref

    @classmethod
    def _made(cls, device: "Device", ref: AsyncResidentRef[A_co]) -> Self:
        """The blocking ref, which recognises the methods of its actor's class."""
        return ref_class(cls, ref._actor.cls, how_to_call)(device, ref)

    @property
    def _background(self) -> BackgroundLoop:
        return self._device._background

    def _streamed(
        self, call: Callable[[], AsyncStream[Any]]
    ) -> tuple[Steps, float | None, Callable[[Callable[[], None]], None]]:
        """The arguments of the blocking stream."""
        device = self._device
        opened = device._patiently(call)
        return opened._steps, opened._timeout, device._patiently

    @property
    def is_stopped(self) -> bool:
        """True if it takes no more calls: it was stopped, or failed too often, or its device is closed."""
        return self._ref.is_stopped or self._device.stopped

    def stop(self, *, timeout: float = 5.0, kill: bool | None = None) -> None:
        """End it after its current call and wait until it has ended; calls that wait fail with ``ActorStopped``.

        Args:
            timeout: Seconds that its current call gets.
            kill: Kill its process then; see :meth:`callboard.ResidentRef.stop_and_wait`.

        Raises:
            AskTimeout: A ``TimeoutError``: it has not ended in time, and no process was killed.
        """
        with contextlib.suppress(DeviceStopped):  # and so has the actor
            self._background.run(self._ref.stop_and_wait(timeout=timeout, kill=kill))

    def __repr__(self) -> str:
        return repr(self._ref)


class StreamBase(Handle, Generic[R_co]):
    """An iterator over the items of a method: ``for token in model.stream(Model.generate, prompt)``.

    Like :class:`callboard.Stream`, but waits for each item; for one thread at a time. A consumer that leaves early
    closes the generator: by :meth:`close`, by the end of a ``with`` block, or by dropping the stream (``break`` in a
    loop over a stream that has no other name). Ctrl-C ends the wait and the stream.
    """

    __slots__ = ("_ahead", "_patiently", "_steps", "_timeout", "_waits_to_open")

    def __init__(self, steps: Steps, timeout: float | None, patiently: Callable[[Callable[[], None]], None]) -> None:
        self._steps = steps
        self._timeout = timeout
        self._patiently = patiently  # waits for room
        self._ahead = PREFETCH
        self._waits_to_open = True

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> R_co:
        """The next item.

        Raises:
            StopIteration: The generator has returned, or the stream was closed.
            AskTimeout: It took longer than the time limit of ``with_timeout``; the stream is closed.
            Exception: Raised by the generator, and as :meth:`ResidentRef.call`; the stream is over.
        """
        steps = self._steps
        if steps.over:
            raise StopIteration
        self._patiently(lambda: steps.ask_first(self._ahead))
        try:
            if self._waits_to_open:
                self._wait(steps.opened)
                self._waits_to_open = False
            got: tuple[R_co, ...] = steps.take(self._wait(steps.asked[0]))
        except BaseException:  # Ctrl-C, too
            steps.close()
            raise
        if not got:
            raise StopIteration
        steps.ask_ahead(self._ahead)
        return got[0]

    def _wait(self, reply: Reply[Any]) -> Any:
        try:
            return reply.result(self._timeout)
        except AskTimeout:
            if not reply.done():
                text = f"{self._steps.tag}: no item within {self._timeout:g} s; the stream is closed"
                raise AskTimeout(text) from None
        return reply.result()  # come just now, or ended with an error of the actor's own

    def close(self) -> None:
        """Leave the stream: drop the requested items, and wait until the generator is closed.

        Raises:
            Exception: Raised by a ``finally`` block of the generator.
        """
        closed = self._steps.close()
        if closed is not None:
            closed.result()

    def __repr__(self) -> str:
        return f"<Stream of {self._steps.tag}{', over' if self._steps.over else ''}>"
