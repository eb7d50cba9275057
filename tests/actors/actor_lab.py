"""Actors driven by a test."""

import asyncio
from collections.abc import Callable
from typing import Any

from callboard.actors import Actor, ActorRef, Msg, Request, Strategy

PATIENCE = 20.0
"""Seconds that a test waits for what must come."""


class Do(Request["Lab", Any]):
    """Call ``call(actor)`` as a handler would; its result is the handler's."""

    call: Callable[[Any], Any]


class Note(Msg["Lab"]):
    """Append ``text`` to the journal."""

    text: str


class Fail(Request["Lab", Any]):
    """Raise."""

    error: BaseException


class Lab(Actor):
    """Keeps a journal of its hooks and notes, in a list that outlives restarts."""

    def __init__(self, journal: list[str] | None = None, strategy: Strategy | None = None, name: str = "") -> None:
        self.journal = [] if journal is None else journal
        self.tag = f"{name}:" if name else ""
        if strategy is not None:
            self.supervision = strategy

    def write(self, text: str) -> None:
        self.journal.append(self.tag + text)

    def pre_start(self) -> None:
        self.write("start")

    def post_stop(self) -> None:
        self.write("stop")

    @Do.handles
    def do(self, m: Do) -> Any:
        return m.call(self)

    @Note.handles
    def note(self, m: Note) -> None:
        self.write(m.text)

    @Fail.handles
    def fail(self, m: Fail) -> Any:
        raise m.error


async def barrier(ref: ActorRef[Any]) -> None:
    """Return when the actor has handled all that was told before."""
    await ref.ask(Do(call=lambda _: None), timeout=float("inf"))


async def turns(n: int = 20) -> None:
    """Let the loop run its ready tasks; for what must *not* happen."""
    for _ in range(n):
        await asyncio.sleep(0)


async def until(condition: Callable[[], Any]) -> None:
    """Let the loop run until ``condition()`` holds; it may depend on other threads."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 -- there is no event for it
            await asyncio.sleep(0)


async def child_of(ref: ActorRef[Any], props: Any, name: str | None = None) -> ActorRef[Any]:
    """Have the actor make a child."""
    child: ActorRef[Any] = await ref.ask(Do(call=lambda a: a.actor_of(props, name)))
    return child


async def failing(ref: ActorRef[Any], error: BaseException) -> BaseException:
    """Let the actor fail; returns what the asker got."""
    try:
        await ref.ask(Fail(error=error))
    except BaseException as got:
        return got
    raise AssertionError("no failure arrived")
