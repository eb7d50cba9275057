"""The threads of actors: the caller's loop and pinned threads."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from actor_lab import Do, Fail, Lab, Note, barrier, child_of, until

from callboard.actors import (
    ActorInitError,
    ActorRef,
    ActorStopped,
    ActorSystem,
    AskTimeout,
    CallerLoop,
    Pinned,
    Props,
)

FOR_EVER = float("inf")


@pytest.fixture(autouse=True)
def switch_interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


async def thread_of(ref: ActorRef[Any]) -> str:
    name: str = await ref.ask(Do(call=lambda _: threading.current_thread().name), timeout=FOR_EVER)
    return name


def pinned(system: ActorSystem, name: str = "gpu-0") -> ActorRef[Lab]:
    return system.actor_of(Props(Lab).with_dispatcher(Pinned(name)))


async def test_pinned_actor_answers_from_its_own_thread(system: ActorSystem) -> None:
    """PinnedActorSpec: support tell; support ask / reply."""
    ref = pinned(system)
    assert await thread_of(ref) == "gpu-0"
    ref.tell(Note(text="told"))
    assert await ref.ask(Do(call=lambda a: a.journal[-1]), timeout=FOR_EVER) == "told"


async def test_same_name_same_thread(system: ActorSystem) -> None:
    """Handles of one device stay on one thread."""
    idents = [
        await pinned(system, name).ask(Do(call=lambda _: threading.get_ident()), timeout=FOR_EVER)
        for name in ("a", "a", "b")
    ]
    assert idents[0] == idents[1] != idents[2]
    assert threading.get_ident() not in idents


async def test_children_run_where_their_parent_runs(system: ActorSystem) -> None:
    """Unless their props name a dispatcher; CallerLoop is the system's own loop."""
    parent = pinned(system)
    assert await thread_of(await child_of(parent, Props(Lab))) == "gpu-0"
    assert await thread_of(await child_of(parent, Props(Lab).with_dispatcher(Pinned("other")))) == "other"
    here = await child_of(parent, Props(Lab).with_dispatcher(CallerLoop()))
    assert await thread_of(here) == threading.current_thread().name


async def test_supervision_across_threads(system: ActorSystem) -> None:
    """SupervisorMiscSpec: restart a crashing actor for any dispatcher."""
    for props in (Props(Lab), Props(Lab).with_dispatcher(Pinned("x"))):
        journal: list[str] = []
        parent = system.actor_of(Props(Lab))
        child = await child_of(parent, props)
        await child.ask(Do(call=lambda a, j=journal: setattr(a, "journal", j)), timeout=FOR_EVER)
        with pytest.raises(ValueError, match="x"):
            await child.ask(Fail(error=ValueError("x")), timeout=FOR_EVER)
        await barrier(child)
        assert journal == ["stop"]
        assert await child.ask(Do(call=lambda a: a.journal), timeout=FOR_EVER) == ["start"]


async def test_parent_stops_its_children_on_other_threads(system: ActorSystem) -> None:
    parent = system.actor_of(Props(Lab))
    children = [await child_of(parent, Props(Lab).with_dispatcher(Pinned(f"t{i % 2}"))) for i in range(6)]
    await asyncio.gather(*(barrier(child) for child in children))
    await parent.stop_and_wait(timeout=1e6)
    assert all(child.is_stopped for child in children)


async def test_actors_on_two_threads_ask_each_other(system: ActorSystem) -> None:
    """Replies come back to the loop of the actor that asked."""
    a, b = pinned(system, "a"), pinned(system, "b")

    async def relay(_: Lab) -> tuple[str, str]:
        before = threading.current_thread().name
        answer = await b.ask(Do(call=lambda _: threading.current_thread().name), timeout=FOR_EVER)
        assert threading.current_thread().name == before
        return before, str(answer)

    assert await a.ask(Do(call=relay), timeout=FOR_EVER) == ("a", "b")


async def test_many_asks_in_flight_across_threads() -> None:
    """Coalesced wake-ups lose none."""
    async with ActorSystem("test") as system:
        ref = pinned(system)
        replies = await asyncio.gather(*(ref.ask(Do(call=lambda _, i=i: i)) for i in range(5000)))
        assert replies == list(range(5000))


async def test_ask_blocking_from_another_pinned_actors_helper_thread() -> None:
    async with ActorSystem("test") as system:
        a, b = pinned(system, "a"), pinned(system, "b")

        async def ask_from_a_helper(_: Lab) -> Any:
            return await asyncio.to_thread(b.ask_blocking, Do(call=lambda _: "blocking"))

        assert await a.ask(Do(call=ask_from_a_helper)) == "blocking"


async def test_ask_blocking_inside_a_pinned_handler_raises() -> None:
    """It would stop that thread's loop."""
    async with ActorSystem("test") as system:
        a, b = pinned(system, "a"), pinned(system, "b")
        with pytest.raises(RuntimeError, match="event loop"):
            await a.ask(Do(call=lambda _: b.ask_blocking(Do(call=lambda _: 1))))


async def test_timeout_across_threads(system: ActorSystem, clock: Any) -> None:
    """The timeout belongs to the asker's loop."""
    ref = pinned(system)
    await barrier(ref)
    release = threading.Event()
    reply = ref.ask(Do(call=lambda _: release.wait(10.0)), timeout=1.0)
    clock.advance(1.0)
    with pytest.raises(AskTimeout):
        await reply
    release.set()
    await barrier(ref)
    await until(lambda: system.dead_letters.counts.get("late_reply"))


async def test_switch_interval_is_lowered_and_never_raised() -> None:
    """Default 5 ms starves a second thread for seconds."""
    sys.setswitchinterval(0.005)
    async with ActorSystem("one") as system:
        await barrier(system.actor_of(Props(Lab).with_dispatcher(Pinned("off", switch_interval=None))))
        assert sys.getswitchinterval() == pytest.approx(0.005)
        await barrier(pinned(system))
        assert sys.getswitchinterval() == pytest.approx(2e-5)
        sys.setswitchinterval(1e-6)
        await barrier(pinned(system, "second"))
        assert sys.getswitchinterval() == pytest.approx(1e-6)


async def test_threads_end_with_the_system() -> None:
    """Nothing runs after the system is left."""
    async with ActorSystem("test") as system:
        await barrier(pinned(system, "short-lived"))
        assert "short-lived" in {t.name for t in threading.enumerate()}
    for thread in threading.enumerate():
        if thread.name == "short-lived":
            thread.join(10.0)
            assert not thread.is_alive()


async def test_actor_of_an_ended_thread_is_stopped() -> None:
    """Messages to it are dead letters, asks fail."""
    async with ActorSystem("test") as system:
        ref = pinned(system)
        await barrier(ref)
    ref.tell(Note(text="x"))
    with pytest.raises(ActorStopped):
        await ref.ask(Do(call=lambda _: 1))
    assert system.dead_letters.counts["stopped"] == 2


@pytest.fixture(scope="module")
def uvloop() -> Any:
    """A loop of it has been run: libuv keeps a pipe of the first one as long as the process lives."""
    package = pytest.importorskip("uvloop", reason="uvloop is an extra")
    first = package.new_event_loop()
    first.run_until_complete(asyncio.sleep(0))
    first.close()
    return package


async def test_uvloop_as_loop_factory(uvloop: Any) -> None:
    async with ActorSystem("test") as system:
        ref = system.actor_of(Props(Lab).with_dispatcher(Pinned("uv", loop_factory=uvloop.new_event_loop)))
        name = await ref.ask(Do(call=lambda _: type(asyncio.get_running_loop()).__module__))
        assert name.startswith("uvloop")


async def test_loop_that_cannot_be_made_is_reported(system: ActorSystem) -> None:
    def broken() -> asyncio.AbstractEventLoop:
        raise OSError("no loop today")

    with pytest.raises(RuntimeError, match="could not make its loop") as caught:
        system.actor_of(Props(Lab).with_dispatcher(Pinned("broken", loop_factory=broken)))
    assert isinstance(caught.value.__cause__, OSError)


async def test_failed_start_on_a_pinned_thread(system: ActorSystem) -> None:
    class Bad(Lab):
        def pre_start(self) -> None:
            raise OSError("no device")

    ref = system.actor_of(Props(Bad).with_dispatcher(Pinned("gpu-0")))
    cause = await ref.stopped(timeout=1e6)
    assert isinstance(cause, ActorInitError)
