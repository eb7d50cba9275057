"""Actors that take from outside whatever an actor can, and the harness around them."""

from collections.abc import Callable
from typing import Any

import numpy as np

import callboard as cb
from callboard.actors import ManualClock


class Add(cb.Msg["Counter"]):
    amount: int


class Total(cb.Request["Counter", int]): ...


class Noise(cb.Request["Counter", float]): ...


class When(cb.Request["Counter", float]): ...


class Beat(cb.Msg["Counter"]): ...


class Fail(cb.Request["Counter", int]):
    text: str


class Hold(cb.Msg["Counter"]): ...


class Release(cb.Msg["Counter"]): ...


class Count(cb.Request["Counter", int]):
    """How many lines the log has: an ask inside of a handler."""


class Hire(cb.Msg["Counter"]):
    """Have a child of this name count once and stop."""

    name: str


class Once(cb.Msg["Child"]): ...


class Pass(cb.Request["Counter", int]):
    """Forwarded to the log."""


class Line(cb.Msg["Log"]):
    text: str
    values: np.ndarray[Any, Any]
    scale: complex = 1j
    sender: cb.ActorRef[Any] | None = None


class Lines(cb.Request["Log", int]): ...


class Log(cb.Actor):
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.sum = 0.0

    @Line.handles
    def line(self, m: Line) -> None:
        self.lines.append(m.text)
        self.sum += float((m.values * m.scale).imag.sum())

    @Lines.handles
    def count(self, m: Lines) -> int:
        return len(self.lines)

    @Pass.handles
    def passed(self, m: Pass) -> int:
        return -len(self.lines)


class Child(cb.Actor):
    def __init__(self, counter: cb.ActorRef[Any]) -> None:
        self.counter = counter

    @Once.handles
    def once(self, m: Once) -> None:
        self.counter.tell(Add(amount=1000))
        self.stop()


class Counter(cb.Actor):
    """The subject.

    Args:
        bug: What it does otherwise than when it was recorded.
    """

    def __init__(self, harness: cb.ReplayHarness, log: cb.ActorRef[Log], bug: str = "") -> None:
        self.harness = harness
        self.log = log
        self.bug = bug
        self.total = 0
        self.holding = False

    def pre_start(self) -> None:
        self.timers.start_fixed_delay("beat", Beat(), 1.0)

    def snapshot(self) -> dict[str, Any]:
        return {"total": self.total, "holding": self.holding}

    def restore(self, state: dict[str, Any]) -> None:
        self.total, self.holding = state["total"], state["holding"]

    @Add.handles
    def add(self, m: Add) -> None:
        if self.holding:
            self.stash()
            return
        self.total += m.amount + (self.bug == "total")
        if self.bug != "silent":
            values = np.full(2, m.amount, "f4" if self.bug != "dtype" else "f8")
            self.log.tell(Line(text=str(m.amount), values=values, sender=self.ref))
        if self.bug == "chatty":
            self.log.tell(Line(text="more", values=np.zeros(0)))

    @Hold.handles
    def hold(self, m: Hold) -> None:
        self.holding = True

    @Release.handles
    def release(self, m: Release) -> None:
        self.holding = False
        self.unstash_all()

    @Beat.handles
    def beat(self, m: Beat) -> None:
        self.total += 100

    @Total.handles
    def answer(self, m: Total) -> int:
        return self.total

    @Noise.handles
    def noise(self, m: Noise) -> float:
        return float(self.harness.rng("noise").random()) + self.harness.recall("bias", lambda: 0)

    @When.handles
    async def when(self, m: When) -> float:
        return self.harness.now() + await self.harness.recall_async("offset", _offset)

    @Fail.handles
    def fail(self, m: Fail) -> int:
        raise cb.ReplyError(m.text) if m.text.startswith("answer") else ValueError(m.text)

    @Count.handles
    async def count(self, m: Count) -> int:
        return self.total + await self.log.ask(Lines())

    @Hire.handles
    def hire(self, m: Hire) -> None:
        child = self.actor_of(cb.Props(Child, self.ref), m.name)
        self.watch(child)
        child.tell(Once())

    @cb.Terminated.handles
    def gone(self, m: cb.Terminated) -> None:
        self.total += 7

    @Pass.handles
    def passed(self, m: Pass) -> None:
        self.forward(self.log)


async def _offset() -> float:
    return 0.25


def builder(harness: cb.ReplayHarness, bug: str = "") -> Callable[[cb.ActorSystem], cb.ActorRef[Counter]]:
    """What makes both actors in a system."""

    def build(system: cb.ActorSystem) -> cb.ActorRef[Counter]:
        log = system.actor_of(cb.Props(Log), "log")
        return system.actor_of(cb.Props(Counter, harness, log, bug), "counter")

    return build


class Recording:
    """A recorded system, driven by hand.

    Args:
        harness: Records it.
    """

    def __init__(self, harness: cb.ReplayHarness) -> None:
        self.clock = ManualClock(50.0)
        self.harness = harness
        self.system = cb.ActorSystem("demo", clock=self.clock, recorder=harness)

    async def __aenter__(self) -> "Recording":
        await self.system.start()
        self.counter = builder(self.harness)(self.system)
        await self.settled()
        return self

    async def settled(self) -> None:
        """Wait until the counter has handled all that was told to it."""
        await self.counter.ask(Total())

    async def __aexit__(self, *exception: object) -> None:
        await self.system.stop()
