"""What a node can be: a function, an async function, a resident actor's method, an actor, a server, another graph."""

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Literal

from callboard.actors.loops.threads import Threads
from callboard.actors.refs import ActorRef
from callboard.core.ref.handle import GpuRef
from callboard.device.client.residents.ref import ResidentRef

__all__ = ["Executor", "NodeCall", "call_of", "is_async", "is_plain", "name_of"]

Executor = Literal["auto", "loop", "thread"]
NodeCall = Callable[..., Coroutine[Any, Any, Any]]
THREADS = 32
"""Threads for the plain functions of all graphs of the process, beside those of calls that were given up."""


@functools.cache
def _threads() -> Threads:
    return Threads(THREADS, "graph node")


def call_of(node: Any, executor: Executor = "auto") -> NodeCall:
    """A coroutine function that calls a node.

    Args:
        node: A function; a coroutine function; a resident actor's method (``model.call`` in a ``functools.partial``);
            an actor, which is asked with the node's input; a server, or another object with an async ``submit``; a
            graph, or another object with ``ainvoke``.
        executor: ``"loop"`` calls a plain function on the event loop, which it must not block, ``"thread"`` on a
            thread; ``"auto"`` on a thread unless it is a coroutine function or a resident actor's method.

    Raises:
        TypeError: It cannot be called.
        ValueError: There is no such executor.
    """
    if executor not in ("auto", "loop", "thread"):
        raise ValueError(f"executor is {executor!r}; it must be 'auto', 'loop' or 'thread'")
    call: NodeCall
    if inspect.iscoroutinefunction(node):
        call = node
        return call
    if isinstance(node, ActorRef):
        return functools.partial(_ask, node)
    if not isinstance(node, type):
        for method in ("ainvoke", "submit"):
            if inspect.iscoroutinefunction(getattr(node, method, None)):
                call = getattr(node, method)
                return call
    if not callable(node):
        raise TypeError(f"{node!r:.200} cannot be called; pass a function, an actor or a server")
    if executor == "loop" or (executor == "auto" and is_async(node)):
        return functools.partial(_on_loop, node)
    return functools.partial(_on_thread, node)


def is_async(function: Any) -> bool:
    """True if a call returns at once: of a coroutine function or a resident actor's method, in a partial or not."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        return True
    owner = getattr(function, "__self__", None)
    return isinstance(owner, ResidentRef)


def is_plain(function: Any) -> bool:
    """True for a function, a method or a class's instance whose call returns its result, not something to await."""
    return inspect.isroutine(function) and not is_async(function)


def name_of(node: Any) -> str:
    """The name of a node that was given none.

    Raises:
        TypeError: It has none.
    """
    while isinstance(node, functools.partial):
        node = node.func
    name = getattr(node, "__name__", None) or getattr(node, "name", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise TypeError(f"{node!r:.200} has no name; pass one: add_node('name', function)")
    return name


async def _ask(actor: ActorRef[Any], message: Any) -> Any:
    return await actor.ask(message, timeout=None)


async def _on_loop(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return await _value(function(*args, **kwargs))


async def _on_thread(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    work = functools.partial(contextvars.copy_context().run, _caught, function, args, kwargs)
    pool = _threads()
    future = pool.submit(work)
    try:
        value, error = await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        if future.running():  # it cannot be ended, and may never end
            pool.spare(1)
            future.add_done_callback(lambda _: pool.spare(-1))
        raise
    if error is not None:
        raise error
    return await _value(value)


def _caught(function: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Any, BaseException | None]:
    try:
        return function(*args, **kwargs), None
    except SystemExit as e:  # of a function: it ends a node, not the event loop
        return None, RuntimeError(f"{function!r:.200} raised SystemExit({e.code!r})")
    except StopIteration as e:
        return None, RuntimeError(f"{function!r:.200} raised {e!r}")
    except BaseException as e:  # raised again on the loop
        return None, e


async def _value(value: Any) -> Any:
    if isinstance(value, GpuRef) or not inspect.isawaitable(value):
        return value
    return await value
