"""Caching and closing of plans, and the statistics about them."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from tests.device.host.context.hosting import Buffer, Hosted
from tests.device.steps import Left, LeftLibrary, Right, StepsBackend, added, events

from callboard.core.backend import Status
from callboard.core.errors import ContextPoisoned
from callboard.core.library import Library, launches, prepares
from callboard.device.host.context.plans.cache import Plans
from callboard.device.protocol.messages import Calls
from callboard.kernel.memory import Empty, Fill


class Held:
    """A plan that holds something."""

    def __init__(self, library: "Holding", op: Left) -> None:
        self.library = library
        self.op = op

    def close(self) -> None:
        self.library.log.append(f"close {self.op.n}")
        if self.op.n == 13:
            raise RuntimeError("unlucky")
        if self.op.n == 66:
            raise ContextPoisoned("dead")


class Holding(LeftLibrary):
    """Keeps two plans at most."""

    max_plans = 2
    log: ClassVar[list[str]] = []

    @prepares(Left)
    def hold(self, op: Left) -> Held:
        self.log.append(f"prepare {op.n}")
        return Held(self, op)

    @launches(Left)
    def add(self, stream: Any, plan: Held, x: int, out: int) -> Any:  # type: ignore[override]
        if plan.op.n == 99:
            raise RuntimeError("the launch failed")
        done = stream.run("left", added(plan.op, x, out))

        class Logged(Status):
            def check(status, outcome: bytes) -> None:  # noqa: N805 - `self` is the library
                self.log.append(f"check {plan.op.n}")
                done.check(outcome)

        return Logged()

    def close(self) -> None:
        self.log.append("library closed")


class HoldingInline(Holding):
    @prepares(Left, inline=True)
    def hold(self, op: Left) -> Held:
        return super().hold(op)


class HoldingBackend(StepsBackend):
    library: ClassVar[type[Library]] = Holding

    def libraries(self) -> dict[str, type[Library]]:
        return {**super().libraries(), "left": self.library}


class HoldingInlineBackend(HoldingBackend):
    library = HoldingInline


@pytest.fixture(params=[HoldingBackend, HoldingInlineBackend], ids=["helper", "inline"])
def host(request: pytest.FixtureRequest) -> Iterator[Hosted]:
    events.clear()
    Holding.log.clear()
    hosted = Hosted(request.param())
    yield hosted
    for event in list(events.values()):
        event.set()
    hosted.close()


def ones(host: Hosted) -> Buffer:
    _, (buffer,) = host.call(Empty(shape=(4,), dtype="f32"))
    host.call(Fill(out=buffer, fill_value=1.0))
    return buffer


def add(host: Hosted, x: Buffer, n: int, **options: Any) -> Buffer:
    _, (out,) = host.call(Left(x=x, n=n, **options))
    return out


def finish(host: Hosted) -> None:
    """Until nothing is parked, in flight or about to be closed."""
    host.finish(until=lambda: not len(host.context.parking) and not host.context.advance())


def left(host: Hosted) -> dict[str, int]:
    return host.context.admission.plans.stats()["left"]


def said(word: str) -> list[str]:
    return [line.partition(" ")[2] for line in Holding.log if line.startswith(word)]


def test_the_plan_used_least_recently_gives_way(host: Hosted) -> None:
    x = ones(host)
    for n in (1, 2, 1, 3, 1, 2):
        add(host, x, n)
        finish(host)
    assert said("prepare") == ["1", "2", "3", "2"]
    assert said("close") == ["2", "3"]
    assert left(host) == {"entries": 2, "hits": 2, "misses": 4, "evictions": 2}


def test_of_plans_that_were_only_replayed_the_oldest_gives_way() -> None:
    """A recording launches its ops' plans without taking sequence numbers of their timelines."""
    plans, library = Plans(), SimpleNamespace(lib="left", max_plans=2)
    for signature in (b"z", b"a", b"m", b"b"):
        replayed: Any = SimpleNamespace(library=library, used=0, ready=True, pins=0, launched=0)
        plans.add(signature, replayed)
    assert list(plans.by_signature) == [b"m", b"b"]


def test_a_plan_is_closed_when_its_last_user_is_done(host: Hosted) -> None:
    x = ones(host)
    finish(host)
    for n in (1, 2, 3):
        add(host, x, n, after="go")
        host.finish(until=lambda: not len(host.context.parking))
    assert left(host)["evictions"] == 1
    for _ in range(10):
        assert host.context.advance()
    assert said("close") == []
    events["go"].set()
    finish(host)
    assert said("close") == ["1"]
    assert Holding.log.index("check 1") < Holding.log.index("close 1")


def test_plans_that_parked_calls_wait_for_are_kept(host: Hosted) -> None:
    x = ones(host)
    host.context.parking.closed = True
    outs = [add(host, x, n) for n in (1, 2, 3, 4, 1, 2, 3, 4)]
    host.finish(until=lambda: len(said("prepare")) == 4)
    assert said("close") == []
    host.context.admission.memory_was_freed()
    finish(host)
    assert [int(host.array(out)[0]) for out in outs] == [2, 3, 4, 5] * 2
    assert said("prepare") == ["1", "2", "3", "4"]
    add(host, x, 5)
    finish(host)
    assert said("close") == ["1", "2", "3"]
    assert left(host) == {"entries": 2, "hits": 4, "misses": 5, "evictions": 3}


def test_a_restart_closes_plans_before_their_library(host: Hosted) -> None:
    x = ones(host)
    for n in (1, 13):
        add(host, x, n)
        finish(host)
    add(host, x, 99)
    finish(host)
    closed = said("close")
    assert closed[0] == "1"  # it gave way
    assert sorted(closed[1:]) == ["13", "99"]
    assert Holding.log[-1] == "library closed"
    assert left(host)["entries"] == 0
    add(host, x, 1)
    finish(host)
    assert said("close") == closed


def test_checks_come_before_their_plans_are_closed_by_a_restart(host: Hosted) -> None:
    x = ones(host)
    add(host, x, 1)
    host.finish(until=lambda: not len(host.context.parking))
    add(host, x, 99)
    host.finish(until=lambda: bool(host.failed))
    assert Holding.log.index("check 1") < Holding.log.index("close 1") < Holding.log.index("library closed")


def test_the_end_of_the_context_closes_plans_before_their_library(host: Hosted) -> None:
    x = ones(host)
    add(host, x, 1)
    finish(host)
    context = host.context
    context.admission.plans.close()
    assert said("close") == ["1"]


def test_a_plan_that_says_the_context_is_dead_is_believed(host: Hosted) -> None:
    x = ones(host)
    for n in (66, 1):
        add(host, x, n)
        finish(host)
    add(host, x, 2)
    with pytest.raises(ContextPoisoned):
        host.finish(until=lambda: False)


def test_a_call_withdrawn_while_its_plan_is_made_does_not_drop_it(host: Hosted) -> None:
    x = ones(host)
    call, _ = host.outputs(Left(x=x, n=1), withdrawn=True)
    host.context.receive(Calls([call]))
    add(host, x, 1)
    finish(host)
    assert host.failed[call.id].error == "Withdrawn"
    assert left(host)["misses"] == 1


def test_libraries_without_prepares_count_too(host: Hosted) -> None:
    x = ones(host)
    for _ in range(3):
        host.call(Right(x=x))
    finish(host)
    stats = host.context.admission.plans.stats()
    assert stats["right"] == {"entries": 1, "hits": 2, "misses": 1, "evictions": 0}
    assert stats["memory"]["misses"] == 2
