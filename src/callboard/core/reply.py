"""``Reply``: the pending result of an op."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar

import numpy as np

from callboard.actors.handles import Handle
from callboard.actors.loops.blocking import Waiter
from callboard.actors.loops.posting import post
from callboard.core.errors import AskTimeout

__all__ = ["Cause", "OpFailure", "Reply", "ReplyPort"]

T_co = TypeVar("T_co", covariant=True)

PENDING, DONE, FAILED = 0, 1, 2


class ReplyPort(Protocol):
    """The part of a device that a reply uses."""

    def awaited(self, reply: "Reply[Any]") -> None:
        """Prepare for a wait for this reply: send queued calls, and speed up its completion. Any thread."""

    def withdraw(self, reply: "Reply[Any]") -> bool:
        """Take the reply's op back if it has not been sent."""
        ...

    def left(self, reply: "Reply[Any]", /) -> None:
        """A task that awaited this reply has been cancelled, or Ctrl-C has ended a wait. Any thread."""

    def interrupted(self) -> None:
        """Ctrl-C has ended a wait for a reply; on the thread that waited."""

    def unretrieved(self, cause: "Cause") -> None:
        """Report a cause whose failures were never awaited. Called on any thread, also inside a garbage collection."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...


class Cause:
    """The cause of the failure of one or more ops, which share this record. Reported once if dropped unseen.

    It is not if all of its ops had failed otherwise before, so that their callers have been told.

    Args:
        port: Reports the cause when it is dropped unseen.
        make: Makes a new error from the description of an op (None: the op that failed first) and the number of ops
            that have failed.

    Attributes:
        seen: True if the error of one of the ops has been raised or read.
        ops: The number of ops that have failed.
        told: The number of those whose replies had failed otherwise before: by a time limit.
    """

    __slots__ = ("__weakref__", "_make", "_port", "ops", "seen", "told")

    def __init__(self, port: ReplyPort, make: Callable[[Any, int], BaseException]) -> None:
        self._port = port
        self._make = make
        self.seen = False
        self.ops = self.told = 0

    def error(self, op: Any = None) -> BaseException:
        """A new error for one of the ops."""
        return self._make(op, self.ops)

    def __del__(self) -> None:
        if not self.seen and (not self.told or self.told < self.ops):
            self.seen = True
            self._port.unretrieved(self)


class OpFailure:
    """The failure of one op, held by its failed replies.

    It holds no exception, and makes a new one each time: one that has been raised refers to the frames that it passed,
    and by them to whatever the request held.

    Args:
        cause: Shared with other ops.
        op: Description of the op, which the cause needs to make its error.
    """

    __slots__ = ("cause", "op")

    def __init__(self, cause: Cause, op: Any = None) -> None:
        self.cause = cause
        self.op = op
        cause.ops += 1

    def error(self) -> BaseException:
        """A new error; the cause has been seen."""
        self.cause.seen = True
        return self.cause.error(self.op)


_ARITHMETIC = "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"
_OPERATORS = (
    *("lt", "le", "gt", "ge", "neg", "pos", "abs", "invert", "float", "int", "complex", "index"),
    *("len", "iter", "contains", "getitem", "setitem", *_ARITHMETIC, *(f"r{name}" for name in _ARITHMETIC)),
)


class _NotItsValue:
    """Raises for array operations and names the alternative: a reply is not the result, a handle not the array.

    Operators raise ``TypeError``; attributes of an array raise ``AttributeError``, so that ``hasattr`` is False.
    An object equals itself, which containers need; comparing it with anything else raises.
    """

    __slots__ = ()
    __hash__ = object.__hash__

    def _misuse(self, what: str) -> str:
        """The text of the error; ``what`` is the operator or the attribute."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if other is self:
            return True
        raise TypeError(self._misuse("=="))

    def __ne__(self, other: object) -> bool:
        if other is self:
            return False
        raise TypeError(self._misuse("!="))

    def __bool__(self) -> NoReturn:
        raise TypeError(self._misuse("bool()"))

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not isinstance(getattr(type(self), name, None), _Missing)]


class _Missing:
    """An attribute that arrays have. A ``__getattr__`` would make every other attribute of the class slower."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: _NotItsValue | None, owner: type) -> "_Missing":
        if instance is None:
            return self
        raise AttributeError(instance._misuse(f".{self._name}"), name=self._name, obj=instance)


def _refusing(what: str) -> Any:
    def refused(self: _NotItsValue, *_: Any) -> NoReturn:
        raise TypeError(self._misuse(what))

    return refused


for _name in _OPERATORS:
    setattr(_NotItsValue, f"__{_name}__", _refusing(f"{_name}()"))
for _name in (*dir(np.ndarray), "cpu", "numpy"):  # the last two are those of a torch tensor
    if not _name.startswith("_"):
        setattr(_NotItsValue, _name, _Missing(_name))


class Reply(Handle, _NotItsValue, Generic[T_co]):
    """The pending result of an op: awaitable on any loop, any number of times; ``result`` for threads.

    A cancelled or timed-out waiter detaches only itself; :meth:`cancel` withdraws the op if it has not been sent. A
    reply is not the result: operators and attributes of an array raise an error that advises to await it first.
    """

    __slots__ = ("__weakref__", "_op", "_outcome", "_port", "_state", "_waiters")

    instead_of_pickling = "await it, and send the result"

    def __init__(self, port: ReplyPort, op: int = 0) -> None:
        self._port = port
        self._op = op  # id of the op whose result it is
        self._state = PENDING
        self._outcome: Any = None  # the value, or an OpFailure
        self._waiters: list[Any] | None = None  # futures, and others with their interface

    # -- the asker's side ----------------------------------------------------------------------------------------------

    def done(self) -> bool:
        """True if the completion is known."""
        return self._state != PENDING

    def __await__(self) -> Generator[Any, None, T_co]:
        if self._state == PENDING:
            self._port.awaited(self)
            if self._state == PENDING:
                future = asyncio.get_running_loop().create_future()
                self._attach(future)
                try:
                    yield from future.__await__()
                except asyncio.CancelledError:
                    self._detach(future)
                    self._port.left(self)
                    raise
        return self._value() if self._state == DONE else self._take()

    def result(self, timeout: float | None = None) -> T_co:
        """Block until the completion is known (for threads without a loop).

        Args:
            timeout: Seconds; None waits as long as the device lives.

        Raises:
            RuntimeError: Called on the loop's own thread, where it would dead-lock.
            AskTimeout: No completion in time; the op continues.
        """
        if self._state == PENDING:
            if _on_loop(self._port.loop):
                raise RuntimeError(
                    "result() on the thread of the device's loop would dead-lock; await the reply instead"
                )
            waiter = Waiter()
            self._attach(waiter)
            self._port.awaited(self)
            try:
                if not waiter.wait(timeout):
                    raise AskTimeout(f"no completion within {timeout} s; the op continues")
            except KeyboardInterrupt:
                self._port.interrupted()
                self._port.left(self)
                raise
            finally:
                if not waiter.done():  # too late, or Ctrl-C: the waiter leaves, the op continues
                    self._detach(waiter)
        return self._take()

    def exception(self) -> BaseException | None:
        """The error of a failed reply, a new exception at each call; None if it succeeded.

        Raises:
            RuntimeError: The completion is not known yet.
        """
        if self._state == PENDING:
            raise RuntimeError("the completion is not known yet; await the reply first")
        if self._state == DONE:
            return None
        failure: OpFailure = self._outcome
        return failure.error()

    def cancel(self) -> bool:
        """Withdraw the op if it has not been sent; returns whether it was withdrawn.

        Ops that read its outputs fail with it.
        """
        return self._state == PENDING and self._port.withdraw(self)

    def when_done(self, call: Callable[[], object]) -> None:
        """Have ``call()`` called when the completion is known: immediately, or on the thread that receives it."""
        self._attach(_Call(call))

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Context | None = None) -> None:
        """Have ``callback(self)`` called on the running loop when the completion is known, as of an ``asyncio.Future``.

        With it, :func:`asyncio.wait` takes replies.
        """
        self._port.awaited(self)
        self._attach(_Listener(self, callback, asyncio.get_running_loop(), context))

    def remove_done_callback(self, callback: Callable[[Any], object]) -> int:
        """Forget a callback; returns how often it was there."""
        with _lock:
            waiters = self._waiters or []
            mine = [each for each in waiters if isinstance(each, _Listener) and each.callback == callback]
            for each in mine:
                waiters.remove(each)
        return len(mine)

    def cancelled(self) -> bool:
        """False: an op that was withdrawn fails with ``Withdrawn``."""
        return False

    @property
    def _condition(self) -> NoReturn:
        """What ``concurrent.futures.wait`` and ``as_completed`` need of a future."""
        raise AttributeError(
            "concurrent.futures waits for the futures of its executors, not for replies: from a thread, "
            "`reply.result()` of each; on a loop, `asyncio.wait` and `asyncio.as_completed` take replies"
        )

    @property
    def _awaited(self) -> bool:
        """True if a task or a thread waits for it, or for a view of it."""
        waits = asyncio.Future, Waiter, _Listener
        return any(isinstance(one, waits) or getattr(one, "_awaited", False) for one in self._waiters or ())

    def _value(self) -> T_co:
        """The result of a successful reply."""
        value: T_co = self._outcome
        return value

    def _take(self) -> T_co:
        if self._state == DONE:
            return self._value()
        raise self._outcome.error()  # in no variable: a frame that holds its own error lives until a garbage collection

    def _misuse(self, what: str) -> str:
        value = f"(await reply){what}" if what.startswith(".") else "await reply"
        return f"{what} of a Reply, which is not the result: await it first, `{value}`; from a thread, `reply.result()`"

    if not TYPE_CHECKING:  # a checker refuses a reply where it expects an array

        def __array__(self, dtype=None, copy=None):
            raise TypeError(self._misuse("array"))

    def __repr__(self) -> str:
        if self._state == PENDING:
            return "<Reply pending>"
        if self._state == DONE:
            return f"<Reply {self._outcome!r}>"
        return f"<Reply failed: {self._outcome.cause.error(self._outcome.op)!r}>"

    # -- the device's side ---------------------------------------------------------------------------------------------

    def _resolve(self, value: Any = None) -> None:
        self._outcome = value
        self._state = DONE
        if self._waiters is not None:
            self._wake()

    def _reject(self, failure: OpFailure) -> None:
        self._outcome = failure
        self._state = FAILED
        if self._waiters is not None:
            self._wake()

    def _attach(self, future: Any) -> None:
        with _lock:
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(future)
        if self._state != PENDING:  # settled meanwhile by another thread, which may not have seen the waiter
            self._wake()

    def _detach(self, future: Any) -> None:
        with _lock:
            if self._waiters is not None and future in self._waiters:
                self._waiters.remove(future)

    def _wake(self) -> None:
        with _lock:
            waiters, self._waiters = self._waiters, None
        for future in waiters or ():
            if isinstance(future, asyncio.Future) and not _on_loop(future.get_loop()):
                post(future.get_loop(), _settle, future)
            else:
                _settle(future)


class _Call:
    """A waiter with the interface of a future, called once."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], object]) -> None:
        self._call: Callable[[], object] | None = call

    def done(self) -> bool:
        return self._call is None

    def set_result(self, _: None) -> None:
        call, self._call = self._call, None
        if call is not None:
            call()


class _Listener:
    """A waiter that calls back on a loop, once."""

    __slots__ = ("_context", "_loop", "_reply", "callback")

    def __init__(
        self,
        reply: Reply[Any],
        callback: Callable[[Any], object],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self.callback = callback
        self._reply: Reply[Any] | None = reply
        self._loop = loop
        self._context = copy_context() if context is None else context

    def done(self) -> bool:
        return self._reply is None

    def set_result(self, _: None) -> None:
        reply, self._reply = self._reply, None
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nothing waits there
            self._loop.call_soon_threadsafe(self.callback, reply, context=self._context)


_lock = threading.Lock()  # guards lists of waiters only; held for a few instructions


def _settle(future: Any) -> None:
    if not future.done():
        future.set_result(None)


def _on_loop(loop: asyncio.AbstractEventLoop) -> bool:
    return asyncio._get_running_loop() is loop
