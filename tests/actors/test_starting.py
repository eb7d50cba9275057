"""Constructors and ``pre_start`` that fail."""

import pytest
from actor_lab import Do, Lab, barrier, child_of, failing

from callboard.actors import (
    ActorInitError,
    ActorRef,
    ActorSystem,
    Directive,
    OneForOne,
    Props,
    Strategy,
)

RESUME, RESTART, STOP, ESCALATE = Directive.RESUME, Directive.RESTART, Directive.STOP, Directive.ESCALATE


async def parent_of(system: ActorSystem, strategy: Strategy, journal: list[str] | None = None) -> ActorRef[Lab]:
    return system.actor_of(Props(Lab, journal, strategy, "parent"))


class Refuses(Lab):
    """Fails in a place, the first ``times`` times."""

    left: int = 0

    def __init__(self, journal: list[str], place: str, box: list[int]) -> None:
        super().__init__(journal)
        self.place, self.box = place, box
        self.trip("constructor")

    def trip(self, place: str) -> None:
        if place == self.place and self.box[0] > 0:
            self.box[0] -= 1
            raise OSError(f"no {place}")

    def pre_start(self) -> None:
        super().pre_start()
        self.trip("pre_start")


@pytest.mark.parametrize("place", ["constructor", "pre_start"])
async def test_failed_start_stops_by_default(system: ActorSystem, place: str) -> None:
    """SupervisorSpec: supervise exceptions on child initialize; no post_stop for an instance that never started."""
    journal: list[str] = []
    ref = system.actor_of(Props(Refuses, journal, place, [1]))
    cause = await ref.stopped()
    assert isinstance(cause, ActorInitError)
    assert isinstance(cause.__cause__, OSError)
    assert "stop" not in journal


@pytest.mark.parametrize("directive", [RESTART, RESUME])
@pytest.mark.parametrize("place", ["constructor", "pre_start"])
async def test_failed_start_can_be_tried_again(system: ActorSystem, place: str, directive: Directive) -> None:
    """SupervisorHierarchySpec: handle failure in creation when supervision strategy returns Resume and Restart."""
    parent = await parent_of(system, OneForOne({ActorInitError: directive}))
    child = await child_of(parent, Props(Refuses, [], place, [2]))
    assert await child.ask(Do(call=lambda _: "alive")) == "alive"


async def test_failed_starts_count_against_the_budget(system: ActorSystem) -> None:
    """Row 12: ActorInitError is counted when it leads to a restart."""
    box = [100]
    parent = await parent_of(system, OneForOne({ActorInitError: RESTART}, max_restarts=3))
    child = await child_of(parent, Props(Refuses, [], "constructor", box))
    await child.stopped()
    assert box == [96]


async def test_failure_during_restart_is_a_further_failure(system: ActorSystem) -> None:
    """SupervisorSpec: attempt restart when exception during restart."""
    box = [0]
    parent = await parent_of(system, OneForOne({ValueError: RESTART, ActorInitError: RESTART}, max_restarts=5))
    child = await child_of(parent, Props(Refuses, [], "pre_start", box))
    await barrier(child)
    box[0] = 2
    await failing(child, ValueError("x"))
    assert await child.ask(Do(call=lambda _: "alive")) == "alive"
    assert box == [0]


async def test_children_of_a_failed_start_are_stopped(system: ActorSystem) -> None:
    """typed SupervisionSpec: stop children when the deferred factory throws."""
    low: list[str] = []

    class Bad(Lab):
        def __init__(self) -> None:
            super().__init__()
            self.actor_of(Props(Lab, low))
            raise OSError("no")

    ref = system.actor_of(Props(Bad))
    await ref.stopped()
    assert low in (["start", "stop"], [])


async def test_children_of_a_failed_start_are_gone_before_the_next_try(system: ActorSystem) -> None:
    """Otherwise the second instance would find its children's names in use."""
    left = [1]

    class Flaky(Lab):
        def __init__(self) -> None:
            super().__init__()
            self.actor_of(Props(Lab), "child")
            if left[0]:
                left[0] -= 1
                raise OSError("once")

    parent = await parent_of(system, OneForOne({ActorInitError: RESTART}, max_restarts=1))
    child = await child_of(parent, Props(Flaky))
    assert await child.ask(Do(call=lambda a: len(a.children))) == 1


async def test_factory_must_make_a_new_instance(system: ActorSystem) -> None:
    """ActorRefSpec: actors are made by the runtime, once each."""
    kept = await system.actor_of(Props(Lab)).ask(Do(call=lambda a: [a]))
    ref = system.actor_of(Props(lambda: kept[0]))
    cause = await ref.stopped()
    assert isinstance(cause, ActorInitError)
    assert isinstance(cause.__cause__, TypeError)
