"""Death watch: once per watch, by uid, whatever the order of events."""

import asyncio
from typing import Any

import pytest
from actor_lab import Do, Lab, Note, barrier, child_of, failing, turns, until

from callboard.actors import (
    ActorRef,
    ActorSystem,
    DeathPact,
    Directive,
    ManualClock,
    OneForOne,
    Pinned,
    Props,
    Terminated,
    WatchConflict,
)
from callboard.actors.refs import cell_of


class Mourner(Lab):
    """Writes down who terminated, and why."""

    @Terminated.handles
    def terminated(self, m: Terminated) -> None:
        self.write(f"{m.ref.name} {type(m.cause).__name__}")


async def watch(watcher: ActorRef[Any], target: ActorRef[Any]) -> None:
    await watcher.ask(Do(call=lambda a: a.watch(target)))


def mourner(system: ActorSystem) -> tuple[ActorRef[Mourner], list[str]]:
    journal: list[str] = []
    return system.actor_of(Props(Mourner, journal), "mourner"), journal


async def stop_and_settle(ref: ActorRef[Any], *watchers: ActorRef[Any]) -> None:
    await ref.stop_and_wait()
    for watcher in watchers:
        await barrier(watcher)


async def test_one_terminated_when_the_actor_stops(system: ActorSystem) -> None:
    """DeathWatchSpec: notify with one Terminated message when an actor is stopped."""
    watcher, journal = mourner(system)
    target = system.actor_of(Props(Lab), "target")
    await watch(watcher, target)
    await stop_and_settle(target, watcher)
    await turns()
    assert journal == ["start", "target NoneType"]


async def test_one_terminated_for_an_actor_that_is_dead_already(system: ActorSystem) -> None:
    """DeathWatchSpec: notify with one Terminated message when an actor is already dead; the cause is kept."""
    watcher, journal = mourner(system)
    target = system.actor_of(Props(Lab), "target")
    target.kill()
    await target.stopped()
    await watch(watcher, target)
    await until(lambda: len(journal) == 2)
    assert journal[1:] == ["target ActorKilled"]


async def test_all_watchers_hear_of_it(system: ActorSystem) -> None:
    """DeathWatchSpec: notify with all monitors with one Terminated message each."""
    target = system.actor_of(Props(Lab), "target")
    journals: list[list[str]] = [[], [], []]
    for journal in journals:
        watcher = system.actor_of(Props(Mourner, journal))
        await watch(watcher, target)
    await target.stop_and_wait()
    await until(lambda: all(len(j) == 2 for j in journals))
    assert {j[1] for j in journals} == {"target NoneType"}


async def test_unwatched_is_silent(system: ActorSystem) -> None:
    """DeathWatchSpec: notify with _current_ monitors only."""
    watcher, journal = mourner(system)
    target = system.actor_of(Props(Lab), "target")
    await watch(watcher, target)
    await watcher.ask(Do(call=lambda a: a.unwatch(target)))
    await stop_and_settle(target, watcher)
    await turns()
    assert journal == ["start"]


async def test_unwatch_discards_a_queued_terminated(system: ActorSystem) -> None:
    """DeathWatchSpec: discard Terminated when unwatched between sysmsg and processing."""
    watcher, journal = mourner(system)
    target = system.actor_of(Props(Lab), "target")
    await watch(watcher, target)
    gate = asyncio.Event()

    async def busy(actor: Lab) -> None:
        await gate.wait()
        actor.unwatch(target)

    reply = watcher.ask(Do(call=busy))
    await turns()
    await target.stop_and_wait()
    gate.set()
    await reply
    await barrier(watcher)
    assert journal == ["start"]


async def test_unwatch_then_watch_again_gives_one(system: ActorSystem) -> None:
    """Also when the first Terminated is still queued."""
    watcher, journal = mourner(system)
    target = system.actor_of(Props(Lab), "target")
    await watch(watcher, target)
    gate = asyncio.Event()

    async def busy(actor: Lab) -> None:
        await gate.wait()
        actor.unwatch(target)
        actor.watch(target)

    reply = watcher.ask(Do(call=busy))
    await turns()
    await target.stop_and_wait()
    gate.set()
    await reply
    await turns()
    assert journal == ["start", "target NoneType"]


async def test_watching_twice_gives_one(system: ActorSystem) -> None:
    watcher, journal = mourner(system)
    target = system.actor_of(Props(Lab), "target")
    await watch(watcher, target)
    await watch(watcher, target)
    await stop_and_settle(target, watcher)
    assert journal == ["start", "target NoneType"]


async def test_restart_is_not_death(system: ActorSystem) -> None:
    """DeathWatchSpec: notify with a Terminated message once when restarted but stopped later."""
    watcher, journal = mourner(system)
    target = system.actor_of(Props(Lab), "target")
    await watch(watcher, target)
    for _ in range(2):
        await failing(target, ValueError("restart"))
    await barrier(watcher)
    assert journal == ["start"]
    await stop_and_settle(target, watcher)
    assert journal == ["start", "target NoneType"]


async def test_cause_is_the_failure_that_stopped_it(system: ActorSystem) -> None:
    """Terminated.cause: the error that spent the budget."""
    journal: list[str] = []
    watcher = system.actor_of(Props(Mourner, journal, OneForOne(max_restarts=1)))
    child = await child_of(watcher, Props(Lab), "child")
    await watch(watcher, child)
    for _ in range(2):
        await failing(child, KeyError("x"))
    await until(lambda: len(journal) == 2)
    assert journal[1] == "child KeyError"


async def test_failing_actor_notifies_after_its_children_are_gone(system: ActorSystem) -> None:
    """DeathWatchSpec: a parent's Terminated comes after those of its children."""
    watcher, journal = mourner(system)
    parent = system.actor_of(Props(Lab, None, OneForOne({ValueError: Directive.STOP})), "parent")
    child = await child_of(parent, Props(Lab), "child")
    await watch(watcher, parent)
    await watch(watcher, child)
    await parent.stop_and_wait()
    await until(lambda: len(journal) == 3)
    assert journal[1:] == ["child NoneType", "parent NoneType"]


async def test_unhandled_terminated_is_a_death_pact(system: ActorSystem) -> None:
    """DeathWatchSpec: fail a monitor which does not handle Terminated()."""
    watcher = system.actor_of(Props(Lab), "watcher")
    target = system.actor_of(Props(Lab), "target")
    await watch(watcher, target)
    target.kill()
    cause = await watcher.stopped()
    assert isinstance(cause, DeathPact)
    assert "target" in str(cause)
    assert cause.__cause__ is await target.stopped()


async def test_watch_with_a_message_of_ones_own(system: ActorSystem) -> None:
    """typed WatchSpec: notify a parent of a stopped child with a custom message."""
    watcher, journal = mourner(system)
    target = system.actor_of(Props(Lab), "target")
    await watcher.ask(Do(call=lambda a: a.watch_with(target, Note(text="gone"))))
    await stop_and_settle(target, watcher)
    assert journal == ["start", "gone"]


@pytest.mark.parametrize("first, second", [(None, "a"), ("a", None), ("a", "b")])
async def test_conflicting_watch_is_an_error(system: ActorSystem, first: str | None, second: str | None) -> None:
    """typed WatchSpec: fail when watch is used after watchWith on the same subject, and the other way round."""
    watcher, journal = mourner(system)
    target = system.actor_of(Props(Lab), "target")

    def again(actor: Mourner, text: str | None) -> None:
        if text is None:
            actor.watch(target)
        else:
            actor.watch_with(target, Note(text=text))

    def both(actor: Mourner) -> str:
        again(actor, first)
        again(actor, first)
        try:
            again(actor, second)
        except WatchConflict:
            actor.unwatch(target)
            again(actor, second)
            return "conflict"
        return "accepted"

    assert await watcher.ask(Do(call=both)) == "conflict"
    await stop_and_settle(target, watcher)
    assert journal[1:] == [second or "target NoneType"]


async def test_new_actor_of_the_same_name_is_not_confused_with_the_old(system: ActorSystem) -> None:
    """UidClashTest: a Terminated of the old child does not arrive for the new one."""
    watcher, journal = mourner(system)
    first = system.actor_of(Props(Lab), "same")
    await watch(watcher, first)
    await stop_and_settle(first, watcher)
    second = system.actor_of(Props(Lab), "same")
    await watch(watcher, second)
    await watcher.ask(Do(call=lambda a: a.unwatch(first)))
    await stop_and_settle(second, watcher)
    assert journal == ["start", "same NoneType", "same NoneType"]


async def test_watch_survives_the_watchers_restart(system: ActorSystem) -> None:
    """The cell watches, not the instance; children stopped by the restart are not reported."""
    watcher, journal = mourner(system)
    other = system.actor_of(Props(Lab), "other")
    child = await child_of(watcher, Props(Lab), "child")
    await watch(watcher, other)
    await watch(watcher, child)
    await failing(watcher, ValueError("restart"))
    await barrier(watcher)
    await stop_and_settle(other, watcher)
    assert journal == ["start", "stop", "start", "other NoneType"]


async def test_terminated_can_be_stashed(system: ActorSystem) -> None:
    """ActorWithStashSpec: re-receive unstashed Terminated messages."""

    class Later(Mourner):
        ready = False

        @Terminated.handles
        def terminated(self, m: Terminated) -> None:
            if self.ready:
                super().terminated(m)
            else:
                self.stash()

    def unstash(actor: Later) -> None:
        actor.ready = True
        actor.unstash_all()

    journal: list[str] = []
    watcher = system.actor_of(Props(Later, journal))
    target = system.actor_of(Props(Lab), "target")
    await watch(watcher, target)
    await stop_and_settle(target, watcher)
    assert journal == ["start"]
    await watcher.ask(Do(call=unstash))
    await barrier(watcher)
    assert journal == ["start", "target NoneType"]


async def test_terminated_follows_what_the_actor_told_before(system: ActorSystem) -> None:
    """It goes through the mailbox: no overtaking."""
    watcher, journal = mourner(system)
    target = system.actor_of(Props(Lab), "target")
    await watch(watcher, target)
    await target.ask(Do(call=lambda a: watcher.tell(Note(text="last words")) or a.stop()))
    await target.stopped()
    await barrier(watcher)
    assert journal == ["start", "last words", "target NoneType"]


async def test_nobody_watches_itself(system: ActorSystem) -> None:
    watcher, _ = mourner(system)
    with pytest.raises(ValueError, match="itself"):
        await watcher.ask(Do(call=lambda a: a.watch(a.ref)))


async def test_watch_across_threads(system: ActorSystem) -> None:
    """Watcher and watched on different loops; exactly one message each, for living and dead targets."""
    watcher, journal = mourner(system)
    pinned = Props(Lab).with_dispatcher(Pinned("other"))
    targets = [system.actor_of(pinned, f"t{i}") for i in range(20)]
    for target in targets[:10]:
        await watch(watcher, target)
    for target in targets:
        target.stop()
    await asyncio.gather(*(target.stopped(timeout=1e6) for target in targets))
    for target in targets[10:]:
        await watch(watcher, target)
    await until(lambda: len(journal) >= 21)
    await turns()
    assert sorted(journal[1:]) == sorted(f"t{i} NoneType" for i in range(20))


async def test_stopping_the_watcher_unwatches(system: ActorSystem, clock: ManualClock) -> None:
    """Nothing is kept in the target for a watcher that is gone."""
    watcher, _ = mourner(system)
    target = system.actor_of(Props(Lab), "target")
    await watch(watcher, target)
    await watcher.stop_and_wait()
    await barrier(target)
    assert cell_of(target).listeners == {}
