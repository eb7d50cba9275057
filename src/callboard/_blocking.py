"""Objects of a blocking device: resident actors, values per generation, and the service behind its refs."""

import contextlib
import functools
import threading
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, final, overload

import numpy as np

from callboard._blocking_stream import Stream
from callboard.actors.handles import Handle
from callboard.actors.messages import Msg, Request
from callboard.core.errors import AccelError, DeviceStopped
from callboard.core.mode import Blocking
from callboard.core.ref import GpuRef
from callboard.core.reply import DONE, Reply
from callboard.device.client.handle import Device as AsyncDevice
from callboard.device.client.line.status import ResidentState
from callboard.device.client.residents.ref import ResidentRef as AsyncResidentRef

if TYPE_CHECKING:
    from callboard._blocking_device import Device
    from callboard.arrays.namespace import Namespace

__all__ = ["BlockingRefs", "PerGeneration", "ResidentRef"]

A_co = TypeVar("A_co", covariant=True)
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Array = np.ndarray[Any, Any]


@final
class _Undeclared:
    """For type checkers: only ``Any`` passes as one. Without it, a result declared ``Any`` would count as a ref."""


class ResidentRef(Handle, Generic[A_co]):
    """The address of a resident actor of class ``A``; it stays the same over restarts and lost contexts.

    Calls wait for their answers, on any thread; the actor serves them in order per thread. Calls made while no context
    is ready, or before ``setup`` has finished, wait for it. Ctrl-C ends a wait at once; the call continues.
    """

    __slots__ = ("_device", "_ref")

    def __init__(self, device: "Device", ref: AsyncResidentRef[A_co]) -> None:
        self._device = device
        self._ref = ref

    # -- calls ---------------------------------------------------------------------------------------------------------

    @overload
    def call(
        self, method: Callable[Concatenate[A_co, P], "_Undeclared"], /, *args: P.args, **kwargs: P.kwargs
    ) -> Any: ...

    @overload
    def call(
        self,
        method: Callable[Concatenate[A_co, P], "Coroutine[Any, Any, _Undeclared]"],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Any: ...

    @overload
    def call(
        self,
        method: Callable[Concatenate[A_co, P], Coroutine[Any, Any, GpuRef[Any]]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> GpuRef[Blocking]: ...

    @overload
    def call(
        self, method: Callable[Concatenate[A_co, P], Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...

    @overload
    def call(
        self, method: Callable[Concatenate[A_co, P], GpuRef[Any]], /, *args: P.args, **kwargs: P.kwargs
    ) -> GpuRef[Blocking]: ...

    @overload
    def call(self, method: Callable[Concatenate[A_co, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def call(self, method: Callable[Concatenate[A_co, P], Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call a method and wait for its result: ``emb.call(Embedder.embed, ["hello"])``.

        Arguments and errors as :meth:`callboard.ResidentRef.call`, those of its reply included; if that raises
        ``MailboxFull``, this waits for room.
        """
        reply: Reply[Any] = self._device._patiently(lambda: self._ref.call(method, *args, **kwargs))
        return reply.result()

    @overload
    def stream(
        self,
        method: Callable[Concatenate[A_co, P], "Iterable[_Undeclared] | AsyncIterable[_Undeclared]"],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Stream[Any]: ...

    @overload
    def stream(
        self,
        method: Callable[Concatenate[A_co, P], Iterable[GpuRef[Any]] | AsyncIterable[GpuRef[Any]]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Stream[GpuRef[Blocking]]: ...

    @overload
    def stream(
        self,
        method: Callable[Concatenate[A_co, P], Iterable[R] | AsyncIterable[R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Stream[R]: ...

    def stream(self, method: Callable[Concatenate[A_co, P], Any], /, *args: P.args, **kwargs: P.kwargs) -> Stream[Any]:
        """Take the items that a method yields: ``for token in model.stream(Model.generate, prompt): ...``.

        Arguments and errors as :meth:`callboard.ResidentRef.stream`; if that raises ``MailboxFull``, this waits for
        room.
        """
        device = self._device
        opened = device._patiently(lambda: self._ref.stream(method, *args, **kwargs))
        return Stream(opened._steps, opened._timeout, device._patiently)

    def ask(self, request: Request[A_co, R]) -> R:
        """Ask with a message and wait for the answer; the method marked ``@Message.handles`` gives it.

        Raises:
            UnhandledMessage: No method handles it.
            Exception: As for :meth:`call`.
        """
        reply: Reply[R] = self._device._patiently(lambda: self._ref.ask(request))
        return reply.result()

    def tell(self, message: Msg[A_co] | Request[A_co, Any]) -> None:
        """Send a message, waiting only for room; a failure becomes a dead letter. Raises as :meth:`ask`."""
        self._device._patiently(lambda: self._ref.tell(message))

    def with_timeout(self, seconds: float | None) -> Self:
        """The same actor, with a limit for each call: ``emb.with_timeout(5.0).call(...)``; None means no limit.

        A call without an answer after ``seconds`` fails with ``AskTimeout``; the actor continues with it.

        Raises:
            ValueError: ``seconds`` is not positive.
        """
        return type(self)(self._device, self._ref.with_timeout(seconds))

    # -- the actor -----------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._ref.name

    @property
    def state(self) -> ResidentState:
        """State of the actor: see :attr:`callboard.ResidentRef.state`."""
        return self._ref.state

    @property
    def cause(self) -> Exception | None:
        """The reason why it has stopped, or is being restarted: see :attr:`callboard.ResidentRef.cause`."""
        return self._ref.cause

    def ready(self, *, timeout: float | None = None) -> Self:
        """Wait until ``setup`` is done and return the ref.

        Arguments and errors as :meth:`callboard.ResidentRef.ready`.
        """
        self._device._background.run(self._ref.ready(timeout=timeout))
        return self

    @property
    def restarts(self) -> int:
        """The number of restarts after failures, over all contexts."""
        return self._ref.restarts

    @property
    def in_flight(self) -> int:
        """Calls without an answer, of all threads."""
        return self._ref.in_flight

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
            self._device._background.run(self._ref.stop_and_wait(timeout=timeout, kill=kill))

    def __repr__(self) -> str:
        return repr(self._ref)


class PerGeneration(Handle, Generic[T]):
    """A value that is made again on first use in each generation, by one thread at a time."""

    def __init__(self, device: "Device", make: "Callable[[Device], T]") -> None:
        self._device = device
        self._make = make
        self._lock = threading.RLock()
        self._made: tuple[int, T] | None = None

    def __call__(self) -> T:
        """The value of the current generation."""
        with self._lock:
            generation = self._device.generation
            if self._made is None or self._made[0] != generation:
                self._made = generation, self._make(self._device)
            return self._made[1]


PREVIEW = 1.0
"""Seconds that a notebook waits for the values of a ref that has been computed."""


class BlockingRefs:
    """Serves the refs of a blocking device: as the async one does, but ``get`` and extents that depend on data wait."""

    blocking = True

    def __init__(self, device: "Device", opened: AsyncDevice) -> None:
        self._device = device
        served = opened._port.services
        self.submit: Callable[..., Any] = device._call
        self.patiently = device._patiently
        self.remember = served.remember
        self.ordinal = served.ordinal
        self.last_write_stream = served.last_write_stream
        self.raw_device_ptr = served.raw_device_ptr
        self.dlpack = served.dlpack
        self.array_interface = served.array_interface

    @functools.cached_property
    def xp(self) -> "Namespace[Blocking]":
        """The array namespace, made on first use."""
        from callboard.arrays.namespace import Namespace  # with the messages of many libraries

        device = self._device
        return Namespace(device._call, device.put, device.name)

    def preview(self, ref: GpuRef[Any]) -> Array | None:
        """The first elements of a ref that has its values, as many as the device's ``preview`` allows."""
        most = self._device.config.preview
        if not most or ref._state != DONE or ref.is_stale:
            return None
        edge = max(1, int(most ** (1 / max(1, ref.ndim))))
        part = ref[tuple(slice(0, edge) for _ in ref.shape)] if ref.size > most else ref
        try:
            reply: Reply[Array] = self._device._transfers.get(part, None)
            return reply.result(PREVIEW)
        except AccelError:
            return None

    def get(self, ref: GpuRef[Any], out: Array | None) -> Array:
        device = self._device
        reply: Reply[Array] = device._patiently(lambda: device._transfers.get(ref, out))
        return reply.result()
