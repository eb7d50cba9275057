"""The system: start, end, and causes of its end."""

import asyncio
import concurrent.futures
import gc
import pickle
from typing import Any

import pytest
from actor_lab import Do, Fail, Lab, Note, barrier, child_of, failing, until

from callboard.actors import (
    ActorInitError,
    ActorStopped,
    ActorSystem,
    AllForOne,
    Directive,
    OneForOne,
    Pinned,
    Props,
)


async def test_leaving_stops_everything_and_waits() -> None:
    """Structured concurrency: nothing runs after __aexit__."""
    journal: list[str] = []
    before = asyncio.all_tasks()
    async with ActorSystem("test") as system:
        parent = system.actor_of(Props(Lab, journal, None, "p"))
        await child_of(parent, Props(Lab, journal, None, "c"))
        system.actor_of(Props(Lab, journal, None, "pinned").with_dispatcher(Pinned("t")))
    assert sorted(journal) == sorted(f"{n}:{w}" for n in ("p", "c", "pinned") for w in ("start", "stop"))
    assert asyncio.all_tasks() == before


async def test_top_level_actors_stop_in_reverse_order() -> None:
    """OTP: reverse start order."""
    journal: list[str] = []
    async with ActorSystem("test") as system:
        for name in "abc":
            await barrier(system.actor_of(Props(Lab, journal, None, name), name))
        journal.clear()
    assert journal == ["c:stop", "b:stop", "a:stop"]


async def test_no_actors_while_shutting_down() -> None:
    """ActorSystemSpec: deny creation of actors while shutting down."""
    refused: list[BaseException] = []
    async with ActorSystem("test") as system:

        class Late(Lab):
            def post_stop(self) -> None:
                for make in (lambda: self.actor_of(Props(Lab)), lambda: system.actor_of(Props(Lab))):
                    try:
                        make()
                    except ActorStopped as error:
                        refused.append(error)

        system.actor_of(Props(Late))
    with pytest.raises(ActorStopped):
        system.actor_of(Props(Lab))
    assert len(refused) == 2


async def test_termination_callbacks_in_reverse_order(caplog: pytest.LogCaptureFixture) -> None:
    """ActorSystemSpec: run termination callbacks in (reverse) order; a failing one does not stop the others."""
    seen: list[int] = []
    async with ActorSystem("test") as system:
        for i in range(5):
            system.on_termination(lambda i=i: seen.append(i))
        system.on_termination(lambda: 1 / 0)
    assert seen == [4, 3, 2, 1, 0]
    assert [r.getMessage() for r in caplog.records] == ["a termination callback failed"]


async def test_stop_is_idempotent_and_shared() -> None:
    """ActorSystemSpec: repeated terminate."""
    journal: list[str] = []
    async with ActorSystem("test") as system:
        await barrier(system.actor_of(Props(Lab, journal)))
        await asyncio.gather(system.stop(), system.stop())
        await system.terminated(timeout=10.0)
    assert journal == ["start", "stop"]


async def test_a_system_starts_once() -> None:
    async with ActorSystem("test") as system:
        with pytest.raises(RuntimeError, match="before"):
            await system.start()


async def test_a_system_that_is_not_started_says_so() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        ActorSystem("test").actor_of(Props(Lab))
    await ActorSystem("test").stop()


async def test_a_system_belongs_to_one_loop(system: ActorSystem) -> None:
    with pytest.raises(RuntimeError, match="another thread"):
        await asyncio.to_thread(system.actor_of, Props(Lab))
    with pytest.raises(RuntimeError, match="another loop"):
        await asyncio.to_thread(asyncio.run, system.stop())


async def test_escalation_at_the_top_ends_the_system() -> None:
    """ActorSystemSpec: shut down when /user escalates; leaving raises the cause."""
    journal: list[str] = []
    systems: list[ActorSystem] = []

    async def body() -> None:
        async with ActorSystem("test", supervision=OneForOne({ValueError: Directive.RESTART})) as system:
            systems.append(system)
            other = system.actor_of(Props(Lab, journal))
            await failing(system.actor_of(Props(Lab)), KeyError("fatal"))
            await system.terminated(timeout=10.0)
            assert other.is_stopped

    with pytest.raises(KeyError, match="fatal"):
        await body()
    assert journal == ["start", "stop"]
    assert isinstance(systems[0].failure, KeyError)


async def test_supervision_of_the_top(system: ActorSystem) -> None:
    """The system's strategy holds for its children."""
    async with ActorSystem("other", supervision=AllForOne({ValueError: Directive.STOP})) as other:
        a, b = [other.actor_of(Props(Lab)) for _ in range(2)]
        await failing(a, ValueError("x"))
        await b.stopped()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("where", ["handler", "pre_start", "async handler"])
async def test_interrupts_end_the_system(error: type[BaseException], where: str) -> None:
    """They leave through the body of the async with, after everything was stopped."""
    journal: list[str] = []

    class Fatal(Lab):
        def pre_start(self) -> None:
            if where == "pre_start":
                raise error

    async def raise_later(_: Lab) -> None:
        await asyncio.sleep(0)
        raise error

    async def body() -> None:
        async with ActorSystem("test") as system:
            await barrier(system.actor_of(Props(Lab, journal)))
            ref = system.actor_of(Props(Fatal))
            if where == "handler":
                ref.tell(Fail(error=error()))
            elif where == "async handler":
                ref.tell(Do(call=raise_later))
            await asyncio.get_running_loop().create_future()

    with pytest.raises(error):
        await body()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0  # the system took back what it did to this task
    assert journal == ["start", "stop"]


async def test_failure_of_the_body_is_not_replaced() -> None:
    async def body() -> None:
        async with ActorSystem("test", supervision=OneForOne({})) as system:
            await failing(system.actor_of(Props(Lab)), KeyError("also"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await body()


async def test_cancelled_body_still_stops_everything() -> None:
    journal: list[str] = []
    inside = asyncio.Event()

    async def body() -> None:
        async with ActorSystem("test") as system:
            await barrier(system.actor_of(Props(Lab, journal)))
            inside.set()
            await asyncio.get_running_loop().create_future()

    task = asyncio.create_task(body())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert journal == ["start", "stop"]


def test_loop_that_ends_without_leaving_the_system(caplog: pytest.LogCaptureFixture) -> None:
    """asyncio.run cancels the actors' tasks: post_stop runs, nothing hangs, and no task is left behind."""
    journal: list[str] = []
    refs: list[Any] = []

    async def forgetful() -> None:
        system = await ActorSystem("test").start()
        system.on_termination(lambda: journal.append("terminated"))
        refs.append(system.actor_of(Props(Lab, journal)))
        await barrier(refs[0])

    asyncio.run(forgetful())
    gc.collect()
    assert journal == ["start", "stop", "terminated"]
    assert "Task was destroyed" not in caplog.text
    refs[0].tell(Note(text="to nobody"))
    with pytest.raises(ActorStopped):
        refs[0].ask_blocking(Do(call=lambda _: 1), timeout=5.0)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_loop_that_is_closed_under_its_actors(elsewhere: bool) -> None:
    """Nobody can run them any more, so whoever asks is told at once, on the loop's old thread and on others."""
    loop = asyncio.new_event_loop()

    async def make() -> tuple[ActorSystem, Any]:
        system = await ActorSystem("test").start()
        ref = system.actor_of(Props(Lab))
        await barrier(ref)
        return system, ref

    system, ref = loop.run_until_complete(make())
    loop.close()
    ref.tell(Note(text="to nobody"))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        ask = pool.submit if elsewhere else lambda call, *args, **kwargs: call(*args, **kwargs)
        with pytest.raises(ActorStopped):
            ask(ref.ask_blocking, Do(call=lambda _: 1), timeout=5.0).result()
    assert system.dead_letters.counts["stopped"] == 2


async def test_dead_letters_are_shared_by_the_system(system: ActorSystem) -> None:
    """ActorSystemSpec: log dead letters."""
    ref = system.actor_of(Props(Lab), "gone")
    await ref.stop_and_wait()
    ref.tell(Note(text="x"))
    letter = system.dead_letters.recent()[-1]
    assert (letter.message, letter.target, letter.reason) == (Note(text="x"), "/test/gone", "stopped")


async def test_failed_top_level_start_does_not_end_the_system(system: ActorSystem) -> None:
    class Bad(Lab):
        def pre_start(self) -> None:
            raise OSError("no")

    cause = await system.actor_of(Props(Bad)).stopped()
    assert isinstance(cause, ActorInitError)
    await barrier(system.actor_of(Props(Lab)))
    await until(lambda: len(system.actors) == 1)


async def test_refs_say_where_they_are_and_do_not_pickle(system: ActorSystem) -> None:
    parent = system.actor_of(Props(Lab), "parent")
    child = await child_of(parent, Props(Lab), "child")
    assert (child.path, child.name, repr(child)) == (
        "/test/parent/child",
        "child",
        f"<ActorRef /test/parent/child#{child.uid}>",
    )
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(child)
