"""Execution of strategies by the runtime: restart, resume, stop, escalate."""

import asyncio
import logging
from typing import Any

import pytest
from actor_lab import Do, Fail, Lab, Note, barrier, child_of, failing, turns, until

from callboard.actors import (
    ActorKilled,
    ActorRef,
    ActorSystem,
    AllForOne,
    Backoff,
    Directive,
    ManualClock,
    OneForOne,
    Props,
    Strategy,
)

RESUME, RESTART, STOP, ESCALATE = Directive.RESUME, Directive.RESTART, Directive.STOP, Directive.ESCALATE


class Worse(Exception):
    pass


# -- one child ---------------------------------------------------------------------------------------------------------


async def parent_of(system: ActorSystem, strategy: Strategy, journal: list[str] | None = None) -> ActorRef[Lab]:
    return system.actor_of(Props(Lab, journal, strategy, "parent"))


async def test_restart_keeps_identity_mailbox_and_watchers(system: ActorSystem) -> None:
    """SupervisorSpec; promises 5, 6, 7: the failing message is lost, the others are not."""
    journal: list[str] = []
    ref = system.actor_of(Props(Lab, journal), "child")
    uid = ref.uid
    failed = ref.ask(Fail(error=ValueError("x")))
    ref.tell(Note(text="a"))
    ref.tell(Note(text="b"))
    with pytest.raises(ValueError, match="x"):
        await failed
    await barrier(ref)
    assert journal == ["start", "stop", "start", "a", "b"]
    assert (ref.uid, ref.is_stopped) == (uid, False)


async def test_restart_makes_a_new_instance_and_resume_keeps_it(system: ActorSystem) -> None:
    parent = await parent_of(system, OneForOne({ValueError: RESTART, KeyError: RESUME}))
    child = await child_of(parent, Props(Lab))
    first = await child.ask(Do(call=id))
    await failing(child, KeyError("resume"))
    assert await child.ask(Do(call=id)) == first
    keep = await child.ask(Do(call=lambda a: [a]))
    await failing(child, ValueError("restart"))
    assert await child.ask(Do(call=lambda a: a is keep[0])) is False


async def test_not_restarted_more_than_permitted(system: ActorSystem, clock: ManualClock) -> None:
    """RestartStrategySpec: ensure that actor stays dead after max restarts within time range."""
    journal: list[str] = []
    parent = await parent_of(system, OneForOne(max_restarts=2, within=1.0))
    child = await child_of(parent, Props(Lab, journal))
    for _ in range(3):
        await failing(child, ValueError("x"))
    cause = await child.stopped(timeout=9.0)
    assert isinstance(cause, ValueError)
    assert journal == ["start"] + ["stop", "start"] * 2 + ["stop"]


async def test_restarts_outside_the_window_do_not_count(system: ActorSystem, clock: ManualClock) -> None:
    """RestartStrategySpec: ensure that actor restarts after crashes not within time range."""
    parent = await parent_of(system, OneForOne(max_restarts=1, within=10.0))
    child = await child_of(parent, Props(Lab))
    for _ in range(5):
        await failing(child, ValueError("x"))
        await barrier(child)
        clock.advance(10.0)
    assert not child.is_stopped


async def test_immortal_without_limit(system: ActorSystem) -> None:
    """RestartStrategySpec: ensure that actor is immortal without max restarts and time range."""
    ref = system.actor_of(Props(Lab))
    for _ in range(100):
        await failing(ref, ValueError("x"))
    await barrier(ref)
    assert not ref.is_stopped


async def test_stop_directive(system: ActorSystem) -> None:
    """SupervisorSpec: not restart temporary actor."""
    journal: list[str] = []
    parent = await parent_of(system, OneForOne({ValueError: STOP}))
    child = await child_of(parent, Props(Lab, journal))
    error = await failing(child, ValueError("x"))
    assert await child.stopped() is error
    assert journal == ["start", "stop"]
    assert await parent.ask(Do(call=lambda a: a.children)) == []


@pytest.mark.parametrize("outcome", [STOP, RESTART])
async def test_all_for_one_takes_the_siblings_along(system: ActorSystem, outcome: Directive) -> None:
    """SupervisorSpec: restart/kill multiple actors AllForOne."""
    journal: list[str] = []
    parent = await parent_of(system, AllForOne({ValueError: outcome}))
    children = [await child_of(parent, Props(Lab, journal, None, name), name) for name in "abc"]
    await turns()
    journal.clear()
    await failing(children[1], ValueError("x"))
    if outcome is STOP:
        for child in children:
            assert isinstance(await child.stopped(), ValueError)
        assert sorted(journal) == ["a:stop", "b:stop", "c:stop"]
    else:
        for child in children:
            await barrier(child)
        assert sorted(journal) == sorted(f"{n}:{what}" for n in "abc" for what in ("stop", "start"))


async def test_one_for_one_leaves_the_siblings_alone(system: ActorSystem) -> None:
    """SupervisorSpec: kill single actor OneForOne."""
    parent = await parent_of(system, OneForOne({ValueError: STOP}))
    a, b = [await child_of(parent, Props(Lab)) for _ in range(2)]
    await failing(a, ValueError("x"))
    await a.stopped()
    await barrier(b)
    assert not b.is_stopped


async def test_all_for_one_shares_a_budget(system: ActorSystem) -> None:
    parent = await parent_of(system, AllForOne(max_restarts=2))
    a, b = [await child_of(parent, Props(Lab)) for _ in range(2)]
    for child in (a, b, a):
        await failing(child, ValueError("x"))
    await a.stopped()
    await b.stopped()


async def test_all_for_one_keeps_the_siblings_mailboxes(system: ActorSystem) -> None:
    journal: list[str] = []
    parent = await parent_of(system, AllForOne())
    a = await child_of(parent, Props(Lab))
    b = await child_of(parent, Props(Lab, journal))
    await barrier(b)
    a.tell(Fail(error=ValueError("x")))
    b.tell(Note(text="kept"))
    await barrier(a)
    await barrier(b)
    assert sorted(journal) == ["kept", "start", "start", "stop"]


async def test_escalation_fails_the_parent_with_the_cause(system: ActorSystem) -> None:
    """SupervisorSpec: restart killed actors in nested supervisor hierarchy; the parent's restart stops the child."""
    top: list[str] = []
    low: list[str] = []
    grandparent = await parent_of(system, OneForOne({Worse: RESTART}))
    parent = await child_of(grandparent, Props(Lab, top, OneForOne({Worse: ESCALATE})))
    child = await child_of(parent, Props(Lab, low))
    error = await failing(child, Worse("deep"))
    await child.stopped()
    await barrier(parent)
    assert isinstance(error, Worse)
    assert (top, low) == (["start", "stop", "start"], ["start", "stop"])


async def test_uncovered_error_escalates(system: ActorSystem) -> None:
    """Row 15: a strategy that does not cover an exception escalates."""
    grandparent = await parent_of(system, OneForOne({ValueError: STOP}))
    parent = await child_of(grandparent, Props(Lab, None, OneForOne({KeyError: RESTART})))
    child = await child_of(parent, Props(Lab))
    error = await failing(child, ValueError("uncovered"))
    assert await parent.stopped() is error
    assert child.is_stopped


async def test_escalation_then_resume_resumes_the_child(system: ActorSystem) -> None:
    """SupervisorHierarchySpec: resume children after Resume."""
    journal: list[str] = []
    grandparent = await parent_of(system, OneForOne({Worse: RESUME}))
    parent = await child_of(grandparent, Props(Lab, None, OneForOne({Worse: ESCALATE})))
    child = await child_of(parent, Props(Lab, journal))
    await failing(child, Worse("x"))
    child.tell(Note(text="after"))
    await barrier(child)
    assert journal == ["start", "after"]


async def test_escalating_actor_handles_nothing_until_it_is_decided(system: ActorSystem) -> None:
    """ActorModelSpec: not process messages while suspended."""
    journal: list[str] = []
    grandparent = await parent_of(system, OneForOne({Worse: RESUME}))
    parent = await child_of(grandparent, Props(Lab, None, OneForOne({Worse: ESCALATE})))
    child = await child_of(parent, Props(Lab, journal))
    gate = asyncio.Event()

    async def busy(_: Lab) -> None:
        await gate.wait()

    occupied = parent.ask(Do(call=busy))
    await failing(child, Worse("x"))
    child.tell(Note(text="after"))
    await turns()
    assert journal == ["start"]
    gate.set()
    await occupied
    await barrier(child)
    assert journal == ["start", "after"]


async def test_children_that_survive_a_restart_are_restarted(system: ActorSystem) -> None:
    """SupervisorSpec / typed: keep children when pre_restart is overridden."""

    class Keeper(Lab):
        async def pre_restart(self, cause: BaseException, message: Any) -> None:
            self.write("kept")

    top: list[str] = []
    low: list[str] = []
    parent = system.actor_of(Props(Keeper, top))
    child = await child_of(parent, Props(Lab, low), "child")
    await failing(parent, ValueError("x"))
    await barrier(parent)
    await barrier(child)
    assert (top, low) == (["start", "kept", "start"], ["start", "stop", "start"])
    assert await parent.ask(Do(call=lambda a: a.children)) == [child]


async def test_awaiting_parent_cannot_dead_lock_the_restart(system: ActorSystem) -> None:
    """The decision is taken in the failing cell: the parent is busy, waiting for that very child."""
    parent = await parent_of(system, OneForOne({ValueError: RESTART}))
    child = await child_of(parent, Props(Lab))

    async def ask_twice(_: Lab) -> str:
        try:
            await child.ask(Fail(error=ValueError("x")))
        except ValueError:
            return str(await child.ask(Do(call=lambda _: "restarted")))
        return "no failure"

    assert await parent.ask(Do(call=ask_twice)) == "restarted"


async def test_escalation_of_a_child_that_was_stopped_meanwhile_is_void(system: ActorSystem) -> None:
    """The parent failed by its own handler with the same error: one restart, not two."""
    top: list[str] = []
    grandparent = await parent_of(system, OneForOne({Worse: RESTART}))
    parent = await child_of(grandparent, Props(Lab, top, OneForOne({Worse: ESCALATE})))
    child = await child_of(parent, Props(Lab))

    async def ask_child(_: Lab) -> None:
        await child.ask(Fail(error=Worse("shared")))

    with pytest.raises(Worse):
        await parent.ask(Do(call=ask_child))
    await barrier(parent)
    await turns()
    assert top == ["start", "stop", "start"]


# -- backoff -----------------------------------------------------------------------------------------------------------


async def test_backoff_waits_and_the_mailbox_holds(system: ActorSystem, clock: ManualClock) -> None:
    """BackoffSupervisorSpec: messages meanwhile are kept; the delay doubles."""
    journal: list[str] = []
    parent = await parent_of(system, OneForOne(backoff=Backoff(1.0, 100.0, jitter=0.0)))
    child = await child_of(parent, Props(Lab, journal))
    await failing(child, ValueError("x"))
    child.tell(Note(text="held"))
    await turns()
    clock.advance(0.99)
    await turns()
    assert journal == ["start", "stop"]
    clock.advance(0.02)
    await barrier(child)
    assert journal == ["start", "stop", "start", "held"]
    await failing(child, ValueError("x"))
    await turns()
    clock.advance(1.5)
    await turns()
    assert journal[-1] == "stop"
    clock.advance(0.5)
    await barrier(child)
    assert journal[-1] == "start"


async def test_stop_during_backoff(system: ActorSystem) -> None:
    """BackoffSupervisorSpec: stop while waiting for the restart."""
    journal: list[str] = []
    parent = await parent_of(system, OneForOne(backoff=Backoff(1000.0, 1000.0)))
    child = await child_of(parent, Props(Lab, journal))
    await failing(child, ValueError("x"))
    await child.stop_and_wait()
    assert journal == ["start", "stop"]


# -- the rest ----------------------------------------------------------------------------------------------------------


async def test_kill_is_a_failure_that_stops(system: ActorSystem) -> None:
    """Row 21: ActorKilled, in mailbox order."""
    journal: list[str] = []
    ref = system.actor_of(Props(Lab, journal))
    ref.tell(Note(text="before"))
    ref.kill()
    ref.tell(Note(text="after"))
    assert isinstance(await ref.stopped(), ActorKilled)
    assert journal == ["start", "before", "stop"]


async def test_kill_can_be_a_restart(system: ActorSystem) -> None:
    journal: list[str] = []
    parent = await parent_of(system, OneForOne({ActorKilled: RESTART}))
    child = await child_of(parent, Props(Lab, journal))
    child.kill()
    await barrier(child)
    assert journal == ["start", "stop", "start"]


async def test_system_messages_survive_a_failure(system: ActorSystem) -> None:
    """SupervisorSpec: not lose system messages when an exception occurs while processing a system message."""
    ref = system.actor_of(Props(Lab))
    ref.tell(Fail(error=ValueError("x")))
    waiting = asyncio.create_task(ref.stopped())
    ref.tell(Fail(error=ValueError("y")))
    await turns()
    ref.stop()
    assert await waiting is None


async def test_background_failure_is_the_actors_failure(system: ActorSystem) -> None:
    journal: list[str] = []
    ref = system.actor_of(Props(Lab, journal))

    async def bad() -> None:
        raise OSError("background")

    await ref.ask(Do(call=lambda a: [a.background(bad())]))
    await until(lambda: journal == ["start", "stop", "start"])


@pytest.mark.parametrize("how", ["restart", "stop"])
async def test_background_is_cancelled_by_restart_and_stop(system: ActorSystem, how: str) -> None:
    """The tokio/atomr spawn leaks there."""
    ref = system.actor_of(Props(Lab))
    ended: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("cancelled")

    await ref.ask(Do(call=lambda a: [a.background(forever())]))
    await turns()
    if how == "stop":
        await ref.stop_and_wait()
    else:
        await failing(ref, ValueError("x"))
        await barrier(ref)
    assert ended == ["cancelled"]


@pytest.mark.parametrize("directive", [RESTART, STOP, RESUME, ESCALATE])
async def test_one_failure_is_logged_once(
    system: ActorSystem, caplog: pytest.LogCaptureFixture, directive: Directive
) -> None:
    """Also when it passes through a parent."""
    grandparent = await parent_of(system, OneForOne({Worse: STOP}))
    parent = await child_of(grandparent, Props(Lab, None, OneForOne({Worse: directive})))
    child = await child_of(parent, Props(Lab), "child")
    await failing(child, Worse("logged"))
    await (child.stopped() if directive in (STOP, ESCALATE) else barrier(child))
    records = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(records) == 1
    assert records[0].levelno == (logging.WARNING if directive is RESUME else logging.ERROR)
    assert records[0].exc_info is not None


async def test_broken_rules_stop_the_child(system: ActorSystem) -> None:
    def broken(_: BaseException) -> Directive:
        raise RuntimeError("in the rules")

    parent = await parent_of(system, OneForOne(broken))
    child = await child_of(parent, Props(Lab))
    await failing(child, ValueError("x"))
    await child.stopped()


async def test_instance_strategy(system: ActorSystem) -> None:
    """ActorLifeCycleSpec: the strategy belongs to the instance, and holds while it has no instance."""
    parent = await parent_of(system, OneForOne({ValueError: RESUME}))
    child = await child_of(parent, Props(Lab))
    first = await child.ask(Do(call=id))
    await failing(child, ValueError("x"))
    assert await child.ask(Do(call=id)) == first
