"""Hooks, stopping, behaviours, names."""

import asyncio
from typing import Any

import pytest
from actor_lab import Do, Lab, Note, barrier, child_of, failing, turns, until

from callboard.actors import (
    Actor,
    ActorStopped,
    ActorSystem,
    ManualClock,
    Msg,
    NameInUse,
    Props,
    Request,
    WrongThread,
)


class Hooks(Lab):
    """Writes all four hooks, with the number of its instance."""

    made = 0

    def __init__(self, journal: list[str], counter: list[int]) -> None:
        super().__init__(journal)
        counter[0] += 1
        self.n = counter[0]
        self.write(f"{self.n} init")

    def pre_start(self) -> None:
        self.write(f"{self.n} pre_start")

    def post_stop(self) -> None:
        self.write(f"{self.n} post_stop")

    async def pre_restart(self, cause: BaseException, message: Any) -> None:
        self.write(f"{self.n} pre_restart {cause} {type(message).__name__}")
        await super().pre_restart(cause, message)

    async def post_restart(self, cause: BaseException) -> None:
        self.write(f"{self.n} post_restart {cause}")
        await super().post_restart(cause)


async def test_hooks_in_order(system: ActorSystem) -> None:
    """ActorLifeCycleSpec: invoke preRestart, preStart, postRestart when using OneForOneStrategy."""
    journal: list[str] = []
    ref = system.actor_of(Props(Hooks, journal, [0]))
    await failing(ref, ValueError("boom"))
    await barrier(ref)
    await ref.stop_and_wait()
    assert journal == [
        "1 init",
        "1 pre_start",
        "1 pre_restart boom Fail",
        "1 post_stop",
        "2 init",
        "2 post_restart boom",
        "2 pre_start",
        "2 post_stop",
    ]


async def test_no_restart_hooks_without_a_restart(system: ActorSystem) -> None:
    """ActorLifeCycleSpec: not invoke preRestart and postRestart when never restarted."""
    journal: list[str] = []
    ref = system.actor_of(Props(Hooks, journal, [0]))
    await barrier(ref)
    await ref.stop_and_wait()
    assert journal == ["1 init", "1 pre_start", "1 post_stop"]


async def test_hooks_may_be_async(system: ActorSystem) -> None:
    journal: list[str] = []

    class Slow(Actor):
        async def pre_start(self) -> None:
            await asyncio.sleep(0)
            journal.append("started")

        async def post_stop(self) -> None:
            await asyncio.sleep(0)
            journal.append("stopped")

    ref = system.actor_of(Props(Slow))
    await ref.stop_and_wait()
    assert journal == ["started", "stopped"]


async def test_failing_post_stop_is_logged(system: ActorSystem, caplog: pytest.LogCaptureFixture) -> None:
    """ActorLifeCycleSpec: log failures in postStop; the actor is stopped all the same."""

    class Bad(Actor):
        def post_stop(self) -> None:
            raise OSError("in post_stop")

    ref = system.actor_of(Props(Bad))
    await ref.stop_and_wait()
    assert [r.getMessage() for r in caplog.records] == [f"post_stop of {ref.path} failed"]


async def test_failing_pre_restart_does_not_prevent_the_restart(
    system: ActorSystem, caplog: pytest.LogCaptureFixture
) -> None:
    """SupervisorMiscSpec: not be able to recreate... ; here: logged, and the restart goes on."""

    class Bad(Lab):
        async def pre_restart(self, cause: BaseException, message: Any) -> None:
            raise OSError("in pre_restart")

    journal: list[str] = []
    ref = system.actor_of(Props(Bad, journal))
    assert isinstance(await failing(ref, ValueError("x")), ValueError)
    await barrier(ref)
    assert journal == ["start", "start"]
    assert any("pre_restart" in r.getMessage() for r in caplog.records)


async def test_asker_hears_of_a_failure_whose_hooks_fail(system: ActorSystem) -> None:
    """Ticket669Spec: be able to reply on failure during preRestart / postStop."""

    class Bad(Lab):
        def post_stop(self) -> None:
            raise OSError("in post_stop")

    ref = system.actor_of(Props(Bad))
    assert isinstance(await failing(ref, ValueError("x")), ValueError)


async def test_behaviour_is_reset_by_a_restart(system: ActorSystem) -> None:
    """ActorLifeCycleSpec: clear the behaviour stack upon restart."""
    ref = system.actor_of(Props(Lab))

    def other(message: Any) -> Any:
        if isinstance(message, Do):
            raise ValueError("x")
        return NotImplemented

    await ref.ask(Do(call=lambda a: a.become(other)))
    with pytest.raises(ValueError, match="x"):
        await barrier(ref)
    assert await ref.ask(Do(call=lambda _: "handlers again")) == "handlers again"


class Which(Request["Lab", str]):
    pass


async def test_become_and_unbecome(system: ActorSystem) -> None:
    """ActorWithBehaviour: stacked behaviours come off one by one; NotImplemented is unhandled."""

    class Moody(Lab):
        @Which.handles
        def which(self, m: Which) -> str:
            return "handlers"

        def mood(self, name: str) -> Any:
            def behave(message: Any) -> Any:
                if isinstance(message, Which):
                    return name
                if isinstance(message, Do):
                    return message.call(self)
                return NotImplemented

            return behave

    ref = system.actor_of(Props(Moody))
    seen = [await ref.ask(Which())]
    await ref.ask(Do(call=lambda a: a.become(a.mood("one"), stacked=True)))
    seen.append(await ref.ask(Which()))
    await ref.ask(Do(call=lambda a: a.become(a.mood("two"), stacked=True)))
    seen.append(await ref.ask(Which()))
    ref.tell(Note(text="unhandled"))
    for _ in range(2):
        await ref.ask(Do(call=lambda a: a.unbecome()))
        seen.append(await ref.ask(Which()))
    assert seen == ["handlers", "one", "two", "one", "handlers"]
    assert system.dead_letters.counts == {"unhandled": 1}


async def test_handlers_are_inherited_and_overridden(system: ActorSystem) -> None:
    """The table holds names, so an undecorated override is called."""

    class Protocol:
        @Which.handles
        def which(self, m: Which) -> str:
            return "protocol"

    class Base(Lab, Protocol):
        pass

    class Derived(Base):
        def which(self, m: Which) -> str:
            return "derived"

    class Again(Derived):
        @Which.handles
        def other(self, m: Which) -> str:
            return "again"

    answers = [await system.actor_of(Props(cls)).ask(Which()) for cls in (Base, Derived, Again)]
    assert answers == ["protocol", "derived", "again"]


class Shape(Msg["Lab"]):
    pass


class Circle(Shape):
    pass


async def test_handler_of_a_base_message(system: ActorSystem) -> None:
    """A handler of a base class takes messages that have none of their own."""

    class Painter(Lab):
        @Shape.handles
        def paint(self, m: Shape) -> None:
            self.write(type(m).__name__)

    journal: list[str] = []
    ref = system.actor_of(Props(Painter, journal))
    for _ in range(2):
        ref.tell(Circle())
    await barrier(ref)
    assert journal == ["start", "Circle", "Circle"]


# -- stopping ----------------------------------------------------------------------------------------------------------


async def test_stop_finishes_the_current_message_and_drops_the_rest(system: ActorSystem) -> None:
    """typed StopSpec; row 20: mailbox to dead letters."""
    journal: list[str] = []
    ref = system.actor_of(Props(Lab, journal))
    gate = asyncio.Event()

    async def work(actor: Lab) -> None:
        await gate.wait()
        actor.write("finished")

    ref.tell(Do(call=work))
    ref.tell(Note(text="never"))
    await turns()
    ref.stop()
    gate.set()
    await ref.stopped()
    assert journal == ["start", "finished", "stop"]
    assert system.dead_letters.counts == {"stopped": 1}
    ref.tell(Note(text="later"))
    assert system.dead_letters.counts == {"stopped": 2}


async def test_children_stop_first_the_youngest_first(system: ActorSystem) -> None:
    """typed GracefulStopSpec: children are gone before post_stop; asked in reverse order."""
    journal: list[str] = []
    parent = system.actor_of(Props(Lab, journal, None, "p"))
    for name in "abc":
        await child_of(parent, Props(Lab, journal, None, name), name)
    await turns()
    journal.clear()
    await parent.stop_and_wait()
    assert journal == ["c:stop", "b:stop", "a:stop", "p:stop"]


async def test_poison_is_taken_in_mailbox_order(system: ActorSystem) -> None:
    journal: list[str] = []
    ref = system.actor_of(Props(Lab, journal))
    ref.tell(Note(text="before"))
    ref.poison()
    ref.tell(Note(text="after"))
    assert await ref.stopped() is None
    assert journal == ["start", "before", "stop"]


async def test_stop_cancels_a_handler_that_takes_too_long(system: ActorSystem, clock: ManualClock) -> None:
    """stop(timeout=): then the task is cancelled; the asker gets ActorStopped."""
    journal: list[str] = []
    ref = system.actor_of(Props(Lab, journal))

    async def forever(actor: Lab) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            actor.write("cancelled")

    reply = ref.ask(Do(call=forever), timeout=100.0)
    await turns()
    ref.stop(timeout=3.0)
    await turns()
    clock.advance(2.9)
    await turns()
    assert journal == ["start"]
    clock.advance(0.2)
    with pytest.raises(ActorStopped):
        await reply
    await ref.stopped()
    assert journal == ["start", "cancelled", "stop"]


async def test_no_post_stop_for_an_instance_that_never_started(system: ActorSystem, clock: ManualClock) -> None:
    """Row 11, when pre_start is cancelled because the time to stop is over."""
    journal: list[str] = []

    class Stuck(Lab):
        async def pre_start(self) -> None:
            await asyncio.get_running_loop().create_future()

    ref = system.actor_of(Props(Stuck, journal))
    await turns()
    ref.stop(timeout=1.0)
    clock.advance(1.0)
    await ref.stopped()
    assert journal == []


async def test_stop_that_takes_too_long_does_not_take_for_ever(system: ActorSystem, clock: ManualClock) -> None:
    """A post_stop that hangs is cancelled when time and grace are over."""

    class Hangs(Lab):
        async def post_stop(self) -> None:
            await asyncio.get_running_loop().create_future()

    ref = system.actor_of(Props(Hangs))
    await barrier(ref)
    ref.stop(timeout=1.0)
    for _ in range(5):
        await turns()
        clock.advance(1.0)
    await ref.stopped()


async def test_graceful_stop_of_a_dead_actor_and_its_timeout(system: ActorSystem, clock: ManualClock) -> None:
    """PatternSpec: gracefulStop completes for a dead actor, and fails when the actor does not stop in time."""
    ref = system.actor_of(Props(Lab))
    await ref.stop_and_wait()
    await ref.stop_and_wait()
    slow = system.actor_of(Props(Lab))
    gate = asyncio.Event()

    async def work(_: Lab) -> None:
        await gate.wait()

    slow.tell(Do(call=work))
    waiting = asyncio.create_task(slow.stopped(timeout=1.0))
    await turns()
    clock.advance(1.0)
    with pytest.raises(TimeoutError, match="still runs after 1 s"):
        await waiting
    gate.set()


async def test_stop_of_itself(system: ActorSystem) -> None:
    journal: list[str] = []
    ref = system.actor_of(Props(Lab, journal))
    assert await ref.ask(Do(call=lambda a: a.stop() or "answered")) == "answered"
    await ref.stopped()
    assert journal == ["start", "stop"]


async def test_self_is_usable_after_the_end(system: ActorSystem) -> None:
    """ActorLifeCycleSpec: have a non-null context after termination."""
    keep: list[Lab] = await system.actor_of(Props(Lab), "kept").ask(Do(call=lambda a: [a]))
    await keep[0].ref.stop_and_wait()
    assert keep[0].ref.path == "/test/kept"
    assert keep[0].children == []
    with pytest.raises(ActorStopped):
        keep[0].actor_of(Props(Lab))


async def test_restart_stops_the_children(system: ActorSystem) -> None:
    """typed SupervisionSpec: stop children at restart, before the new instance is made."""
    journal: list[str] = []
    parent = system.actor_of(Props(Lab, journal, None, "p"))
    child = await child_of(parent, Props(Lab, journal, None, "c"), "child")
    await barrier(child)
    journal.clear()
    await failing(parent, ValueError("x"))
    await barrier(parent)
    assert journal == ["c:stop", "p:stop", "p:start"]
    again = await child_of(parent, Props(Lab), "child")
    assert again.uid != child.uid


# -- names, children, threads ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "/", "a/b", "$a", "ä", "a b", "\n", "a\n", "-"])
async def test_invalid_names(system: ActorSystem, name: str) -> None:
    """ActorSystemSpec: reject invalid names."""
    with pytest.raises(ValueError, match="not a name"):
        system.actor_of(Props(Lab), name)


async def test_what_is_no_actor_is_refused(system: ActorSystem) -> None:
    with pytest.raises(TypeError, match=r"Lab is not a Props; pass actor_of\(Props\(Lab, \.\.\.\)\)"):
        system.actor_of(Lab)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="dict is not an Actor; derive from it"):
        system.actor_of(Props(dict))  # type: ignore[type-var]
    assert system.actors == []


@pytest.mark.parametrize("name", ["a", "gpu-0", "a.b", "GPU_1", "7", "x:y", "me@host"])
async def test_valid_names(system: ActorSystem, name: str) -> None:
    """ActorSystemSpec: accept valid names."""
    ref = system.actor_of(Props(Lab), name)
    assert (ref.name, ref.path) == (name, f"/test/{name}")


async def test_name_is_taken_while_alive_and_free_afterwards(system: ActorSystem) -> None:
    """SupervisorMiscSpec: re-create child with the same name; name in use while alive."""
    first = system.actor_of(Props(Lab), "one")
    with pytest.raises(NameInUse, match="one"):
        system.actor_of(Props(Lab), "one")
    await first.stop_and_wait()
    second = system.actor_of(Props(Lab), "one")
    assert second.path == first.path
    assert second != first


async def test_automatic_names_are_unique_and_props_may_name(system: ActorSystem) -> None:
    refs = [system.actor_of(Props(Lab)) for _ in range(20)]
    assert len({ref.name for ref in refs}) == 20
    assert system.actor_of(Props(Lab).with_name("given")).name == "given"
    assert system.actor_of(Props(Lab).with_name("given"), "stronger").name == "stronger"


async def test_children_can_be_made_in_the_constructor(system: ActorSystem) -> None:
    """SupervisorMiscSpec: be able to create children in constructor."""

    class Parent(Lab):
        def __init__(self) -> None:
            super().__init__()
            self.first = self.actor_of(Props(Lab), "first")

    parent = system.actor_of(Props(Parent), "parent")
    assert await parent.ask(Do(call=lambda a: [c.path for c in a.children])) == ["/test/parent/first"]
    assert await parent.ask(Do(call=lambda a: a.child("first") is a.first and a.child("second") is None))


async def test_actor_called_directly_says_so() -> None:
    with pytest.raises(RuntimeError, match="actor_of"):
        _ = Lab().ref


CONTEXT: list[tuple[str, Any]] = [
    ("actor_of", lambda a: a.actor_of(Props(Lab))),
    ("children", lambda a: a.children),
    ("child", lambda a: a.child("x")),
    ("watch", lambda a: a.watch(a.ref)),
    ("unwatch", lambda a: a.unwatch(a.ref)),
    ("stash", lambda a: a.stash()),
    ("timers", lambda a: a.timers),
    ("receive timeout", lambda a: a.set_receive_timeout(1.0)),
    ("become", lambda a: a.become(lambda m: None)),
    ("stop", lambda a: a.stop()),
]


@pytest.mark.parametrize("use", [use for _, use in CONTEXT], ids=[name for name, _ in CONTEXT])
async def test_context_is_for_its_own_thread(system: ActorSystem, use: Any) -> None:
    """typed ActorThreadSpec: illegal access from other threads is detected."""
    keep: list[Lab] = await system.actor_of(Props(Lab)).ask(Do(call=lambda a: [a]))
    with pytest.raises(WrongThread, match="another thread"):
        await asyncio.to_thread(use, keep[0])


async def test_long_queue_lets_others_run(system: ActorSystem) -> None:
    """Row 28: after 128 messages the loop gets its turn."""
    seen: list[int] = []
    ref = system.actor_of(Props(Lab))
    await barrier(ref)
    for i in range(1000):
        ref.tell(Do(call=lambda _, i=i: seen.append(i)))
    widths = []
    while len(seen) < 1000:
        before = len(seen)
        await asyncio.sleep(0)
        widths.append(len(seen) - before)
    assert max(widths) <= 128


async def test_many_actors_in_waves(system: ActorSystem) -> None:
    """ActorModelSpec / ActorSystemSpec: reliably create and stop waves of actors."""
    for _ in range(3):
        refs = [system.actor_of(Props(Lab)) for _ in range(300)]
        answers = await asyncio.gather(*(ref.ask(Do(call=lambda _: 1)) for ref in refs))
        assert sum(answers) == 300
        await asyncio.gather(*(ref.stop_and_wait() for ref in refs))
    await until(lambda: system.actors == [])
